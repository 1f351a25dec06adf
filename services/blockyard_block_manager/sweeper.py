"""Slices of what was cleared, one after another: between two of them everybody else has a turn.

Threading: one event loop; one task per node.
"""

import asyncio

from blockyard_block_manager.decisions import deciding
from blockyard_block_manager.node_core import NodeCore
from blockyard_block_manager.section_waiters import SectionWaiters


async def sweep_cleared(core: NodeCore, waiters: SectionWaiters) -> None:
    """Sweep as long as there is something, then wait until there is; does not return."""
    while True:
        await waiters.until(lambda: core.clearing.unswept)
        with deciding():
            core.sweep()
        await asyncio.sleep(0)
