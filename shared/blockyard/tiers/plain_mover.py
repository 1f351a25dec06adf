"""Mover without any SDK: positioned vector reads and writes in a few threads of its own.

It is the reference that other movers are compared with, and what runs where they do not work. It uses the file seam
only, so it also moves bytes of files that are no files of the operating system.
Invariants: see the port. Threading: calls come from one event loop; the I/O runs in this mover's threads.
"""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Final, final

from blockyard.core.errors import UnsupportedOperationError
from blockyard.tiers.arena import Arena
from blockyard.tiers.base import MoveOutcome, SlabRegion, SlotArray
from blockyard.tiers.block_moves import Direction, check_move, move_blocks

_THREADS: Final = 2
"""Two calls keep a device busy while one of them is between calls; more only help on idle processors."""


@final
class PlainMover:
    """Moves blocks with ``pwritev`` and ``preadv``."""

    def __init__(self, arena: Arena) -> None:
        """Move between ``arena`` and any region of equal stride."""
        self._arena = arena
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="plain-mover")
        self._closed = False

    @property
    def name(self) -> str:
        """Name for metrics and logs."""
        return "plain"

    @property
    def failure(self) -> str:
        """Nothing but single moves can fail here."""
        return ""

    async def write(self, region: SlabRegion, arena_slots: SlotArray, file_slots: SlotArray) -> list[MoveOutcome]:
        """Arena to file."""
        return await self._move(Direction.WRITE, region, arena_slots, file_slots)

    async def read(self, region: SlabRegion, arena_slots: SlotArray, file_slots: SlotArray) -> list[MoveOutcome]:
        """File to arena."""
        return await self._move(Direction.READ, region, arena_slots, file_slots)

    async def close(self) -> None:
        """End after the moves in progress; harmless when repeated."""
        self._closed = True
        await asyncio.to_thread(self._threads.shutdown)

    async def _move(
        self, direction: Direction, region: SlabRegion, arena_slots: SlotArray, file_slots: SlotArray
    ) -> list[MoveOutcome]:
        if self._closed:
            raise UnsupportedOperationError("the mover is closed", mover=self.name)
        check_move(self._arena, region, arena_slots, file_slots)
        work = self._threads.submit(move_blocks, self._arena, region, direction, arena_slots, file_slots)
        return await asyncio.wrap_future(work)
