"""Lets a request of the demo engine begin when the engine's memory has room for all of it, as a real engine would.

A request takes all its blocks at once or waits with none, so requests that wait never hold up each other; they begin in
the order in which they came, so that a long one has its turn.
Invariants: whoever was admitted leaves; whoever waits holds nothing.
Threading: one event loop.
"""

import asyncio
import contextlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Final, final

from blockyard.connectors.mock.prefix_cache import PrefixCache
from blockyard.core.errors import OutOfBlocksError
from blockyard.core.vocabulary import ContentKey, EngineBlockId

_LOOK_SECONDS: Final = 0.05
"""Nobody tells when blocks that a late write could reach are usable again: they are looked at so often."""


@final
@dataclass(frozen=True, slots=True)
class Admitted:
    """Blocks of one request, in use until it leaves."""

    held: list[EngineBlockId]
    """Its longest cached prefix."""
    taken: list[EngineBlockId]
    """Room for the rest, in order."""


@final
class Admission:
    """The way into one engine's memory."""

    def __init__(self, cache: PrefixCache, blocks: int, unusable: Callable[[], Collection[EngineBlockId]]) -> None:
        """Admit to ``cache`` of ``blocks`` blocks; ``unusable`` names those that must not be given out now."""
        self._cache = cache
        self._blocks = blocks
        self._unusable = unusable
        self._turn = asyncio.Lock()
        self._left = asyncio.Event()

    async def enter(self, keys: Sequence[ContentKey]) -> Admitted:
        """Wait until there is room for all blocks of a request.

        Raises:
            OutOfBlocksError: there never will be: the request is larger than the memory.
        """
        if len(keys) > self._blocks:
            raise OutOfBlocksError(
                "a request needs more blocks than the engine has", asked=len(keys), blocks=self._blocks
            )
        async with self._turn:
            while True:
                self._left.clear()
                held = self._cache.hold_prefix(keys)
                try:
                    taken, _ = self._cache.allocate(len(keys) - len(held), self._unusable())
                except OutOfBlocksError:
                    self._cache.let_go(held)
                else:
                    return Admitted(held, taken)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_LOOK_SECONDS):
                        await self._left.wait()

    def leave(self, admitted: Admitted) -> None:
        """End a request: its blocks are cached or free from now on."""
        self._cache.let_go(admitted.held + admitted.taken)
        self._left.set()
