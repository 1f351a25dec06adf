"""Blocks that the budget of the day kept from G3: they get another turn when bytes may be written again.

::

    postpone ──► waits ──due, as many as can be paid for──► gone: asked about anew
                   └─ left the tier, or too many wait: gone

Those that wait longest come first: they are the next to leave G2.
Invariants: at most ``limit`` blocks wait, the oldest give way; ``due`` looks at no more blocks than it returns, and
returns none before a whole batch can be paid for, so that a budget that comes back byte by byte costs no job per block.
Threading: owned by one thread.
"""

from collections.abc import Iterable
from itertools import islice
from typing import Final, final

from blockyard.core.vocabulary import ContentKey, GroupId

BlockKey = tuple[ContentKey, GroupId]


@final
class PostponedBlocks:
    """Blocks that wait for budget."""

    __slots__ = ("_limit", "_waiting")

    def __init__(self, limit: int) -> None:
        """Start empty; at most ``limit`` wait."""
        self._limit: Final = limit
        self._waiting: Final[dict[BlockKey, None]] = {}

    def __len__(self) -> int:
        """Blocks that wait."""
        return len(self._waiting)

    def postpone(self, blocks: Iterable[BlockKey]) -> None:
        """These blocks wait from now on; known ones keep their places."""
        self._waiting.update(dict.fromkeys(blocks))
        for oldest in list(islice(self._waiting, max(0, len(self._waiting) - self._limit))):
            del self._waiting[oldest]

    def forget(self, blocks: Iterable[BlockKey]) -> None:
        """These blocks are gone, or written."""
        for block in blocks:
            self._waiting.pop(block, None)

    def due(self, affordable: int, batch: int) -> list[BlockKey]:
        """Take the blocks whose turn it is; none while less than a batch, or than all that wait, can be paid for."""
        if affordable < min(batch, len(self._waiting)):
            return []
        taken = list(islice(self._waiting, min(affordable, batch)))
        self.forget(taken)
        return taken
