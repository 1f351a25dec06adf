"""The arena of the node as this process has it mapped, and the one thread that copies into and out of it.

A new arena replaces the old one at attach; jobs that still run keep theirs mapped until they have ended, so a late
write lands in memory that nobody reads any more instead of in somebody else's block.
Invariants: an arena is closed exactly once, when it is retired and no job uses it; the thread runs one step at a time,
and ``barrier`` returns only when every step begun before has ended.
Threading: methods are called on the event loop; steps run on the owned thread.
"""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from blockyard.core.errors import NotReadyError
from blockyard.tiers.arena import Arena

Result = TypeVar("Result")


class CopyThread:
    """Runs copying and hashing off the event loop, in the order of arrival."""

    def __init__(self) -> None:
        """Make the thread; it starts with the first step."""
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="pack-copies")

    async def run(self, step: Callable[[], Result]) -> Result:
        """Run ``step`` on the thread; it goes on to its end also where the caller is cancelled."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, step)

    async def barrier(self) -> None:
        """Wait for every step accepted before."""
        await self.run(lambda: None)

    def close(self) -> None:
        """End the thread after the accepted steps. Blocks."""
        self._pool.shutdown()


class ArenaLease:
    """The mapped arena and who uses it."""

    def __init__(self) -> None:
        """Start without an arena."""
        self._current: Arena | None = None
        self._uses: dict[bytes, int] = {}
        self._retired: dict[bytes, Arena] = {}

    def replace(self, arena: Arena) -> None:
        """Use ``arena`` from now on; the same one again only gives up the new mapping."""
        held = self._current
        if held is not None and held.arena_id == arena.arena_id:
            arena.close()
            return
        self._current = arena
        if held is not None:
            self._retired[held.arena_id] = held
            self._close_unused(held.arena_id)

    @contextmanager
    def borrowed(self) -> Iterator[Arena]:
        """The current arena, kept mapped inside this context.

        Raises:
            NotReadyError: no arena was handed over yet.
        """
        arena = self._current
        if arena is None:
            raise NotReadyError("no arena was handed over yet")
        self._uses[arena.arena_id] = self._uses.get(arena.arena_id, 0) + 1
        try:
            yield arena
        finally:
            self._uses[arena.arena_id] -= 1
            self._close_unused(arena.arena_id)

    def close(self) -> None:
        """Unmap everything; no job runs any more."""
        for arena in (*self._retired.values(), self._current):
            if arena is not None:
                arena.close()
        self._retired.clear()
        self._current = None

    def _close_unused(self, arena_id: bytes) -> None:
        if not self._uses.get(arena_id):
            self._uses.pop(arena_id, None)
            if (arena := self._retired.pop(arena_id, None)) is not None:
                arena.close()
