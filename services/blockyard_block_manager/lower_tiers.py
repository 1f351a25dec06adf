"""What the lower tiers learn of blocks that come into G2 and leave it.

Threading: owned by the event loop of the service. No await.
"""

from collections.abc import Sequence
from typing import final

from blockyard.core.block_facts import BlockFacts
from blockyard.core.block_name import BlockName
from blockyard.core.events import BlockScope
from blockyard.core.vocabulary import ContentKey, GroupId, Tier
from blockyard.wire.trace_parent import TraceParent
from blockyard_block_manager.disk_writer import DiskWriter
from blockyard_block_manager.manager_metrics import ManagerMetrics
from blockyard_block_manager.pack_writer import PackWriter


@final
class LowerTiers:
    """G3 and G4 of one node, as far as they are fed from G2."""

    def __init__(self, disk: DiskWriter, packs: PackWriter, metrics: ManagerMetrics) -> None:
        """Tell ``disk`` and ``packs``; count evictions."""
        self._disk = disk
        self._packs = packs
        self._metrics = metrics

    def landed(self, scope: BlockScope, names: Sequence[BlockName], trace: TraceParent) -> None:
        """Blocks were registered in G2."""
        if names:
            self._disk.landed(scope, names, trace)
            self._packs.landed(scope, names, trace)

    def evicted(self, tier: Tier, blocks: Sequence[BlockFacts]) -> None:
        """Blocks have to leave a tier for others."""
        self._metrics.evicted(tier, len(blocks))
        if tier is Tier.G2:
            self._disk.evicted(blocks)

    def left(self, tier: Tier, blocks: Sequence[tuple[ContentKey, GroupId]]) -> None:
        """Blocks left a tier, for whatever reason."""
        if tier is Tier.G2:
            self._disk.left(blocks)
            self._packs.left(blocks)
