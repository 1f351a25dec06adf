"""NIXL's POSIX backend is a mover, on every kernel interface that works here."""

import pytest

from blockyard.core.errors import TransferError
from blockyard.testing.mover_conformance import MoverConformance
from blockyard.tiers.arena import Arena
from blockyard.tiers.base import Mover
from blockyard.tiers.nixl.posix_agent import PosixQueue
from blockyard.tiers.nixl.posix_mover import PosixMover


class _OnQueue(MoverConformance):
    queue: PosixQueue

    async def open_mover(self, arena: Arena) -> Mover:
        """Open it, or skip where this kernel does not offer the interface."""
        try:
            return await PosixMover.open(arena, self.queue)
        except TransferError as error:
            pytest.skip(str(error))


class TestNixlUring(_OnQueue):
    """On io_uring."""

    queue = PosixQueue.URING


class TestNixlAio(_OnQueue):
    """On Linux native AIO."""

    queue = PosixQueue.AIO
