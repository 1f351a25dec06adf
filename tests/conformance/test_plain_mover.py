"""The plain mover is a mover."""

from blockyard.testing.mover_conformance import MoverConformance
from blockyard.tiers.arena import Arena
from blockyard.tiers.base import Mover
from blockyard.tiers.plain_mover import PlainMover


class TestPlainMover(MoverConformance):
    """Positioned reads and writes in threads."""

    async def open_mover(self, arena: Arena) -> Mover:
        """Open it."""
        return PlainMover(arena)
