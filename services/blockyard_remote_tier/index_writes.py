"""Index writes that could not be made yet: kept, bounded, and repeated in order until the server takes them.

A lost write costs a miss until the pack is put again or the index is rebuilt, so when the queue is full the oldest
write is dropped and counted. Order is kept: while one write waits, later ones wait behind it.
Threading: one event loop.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from blockyard.core.errors import UnavailableError
from blockyard.core.stored_key import StoredKey
from blockyard.core.vocabulary import IdentityDigest, PackId
from blockyard.runtime.logs import get_logger
from blockyard.tiers.index_value import Locator
from blockyard.tiers.prefix_index import PrefixIndex

WRITES_KEPT: Final = 1_024
TOUCHES_KEPT: Final = 64
"""Touches keep entries in use from expiring after a day; losing some changes nothing."""
_log: Final = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class SetLocators:
    """The blocks of a pack that was stored."""

    identity: IdentityDigest
    entries: tuple[tuple[StoredKey, Locator], ...]

    async def write(self, index: PrefixIndex) -> None:
        """Write to ``index``."""
        await index.set_locators(self.identity, self.entries)


@dataclass(frozen=True, slots=True)
class DropLocators:
    """Blocks that a pack does not hold after all."""

    identity: IdentityDigest
    pack: PackId
    keys: tuple[StoredKey, ...]

    async def write(self, index: PrefixIndex) -> None:
        """Write to ``index``."""
        await index.drop_locators(self.identity, self.pack, self.keys)


@dataclass(frozen=True, slots=True)
class Touch:
    """Blocks that were asked for and are in use."""

    identity: IdentityDigest
    keys: tuple[StoredKey, ...]


IndexWrite = SetLocators | DropLocators


class IndexWrites:
    """Writes to the index, at once where it answers, later where it does not."""

    def __init__(self, index: PrefixIndex, dropped: Callable[[], None], capacity: int = WRITES_KEPT) -> None:
        """Write to ``index``; ``dropped`` is told of every write that is given up."""
        self._index = index
        self._dropped = dropped
        self._capacity = capacity
        self._waiting: deque[IndexWrite] = deque()
        self._touches: deque[Touch] = deque(maxlen=TOUCHES_KEPT)

    def __len__(self) -> int:
        """Writes that wait, not counting touches."""
        return len(self._waiting)

    async def write(self, write: IndexWrite, deadline: float) -> bool:
        """Make a write now, after those that wait; False where it waits too, also past ``deadline`` (loop time)."""
        if not self._waiting:
            try:
                async with asyncio.timeout_at(deadline):
                    await write.write(self._index)
            except (UnavailableError, TimeoutError) as error:
                _log.warning("index write waits", reason=str(error))
            else:
                return True
        if len(self._waiting) >= self._capacity:
            self._waiting.popleft()
            self._dropped()
        self._waiting.append(write)
        return False

    def touch_later(self, touch: Touch) -> None:
        """Mark entries as in use at the next ``flush``."""
        self._touches.append(touch)

    async def flush(self) -> None:
        """Make the writes that wait, oldest first, until one fails.

        Raises:
            UnavailableError: the server did not take one; it and those after it still wait.
        """
        while self._waiting:
            write = self._waiting[0]
            await write.write(self._index)
            # Meanwhile a full queue may have dropped it.
            if self._waiting and self._waiting[0] is write:
                self._waiting.popleft()
        while self._touches:
            touch = self._touches.popleft()
            await self._index.touch(touch.identity, touch.keys)
