"""Rows that may be granted: first returned, first granted, so that a slot rests as long as possible.

Invariants: a row stands here at most once. Rows taken from the middle are struck off in one pass at the next use, so
that recovery may take thousands of them one page at a time.
Threading: the owner thread of the table.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from typing import final

from blockyard.core.vocabulary import BlockId


@final
class FreeRows:
    """A queue of rows that also gives named ones."""

    __slots__ = ("_queue", "_struck")

    def __init__(self, capacity: int) -> None:
        """Start with the rows 0 to ``capacity - 1``."""
        self._queue: deque[BlockId] = deque(map(BlockId, range(capacity)))
        self._struck: set[BlockId] = set()

    def __len__(self) -> int:
        """Number of rows."""
        return len(self._queue) - len(self._struck)

    def __iter__(self) -> Iterator[BlockId]:
        """Rows in the order of their grants."""
        return (row for row in self._queue if row not in self._struck)

    def pop(self, count: int) -> list[BlockId]:
        """Take the ``count`` rows that go first; there are that many."""
        if count:
            self._strike_off()
        take = self._queue.popleft
        return [take() for _ in range(count)]

    def push(self, rows: Sequence[BlockId]) -> None:
        """Put rows behind all others."""
        if rows:
            self._strike_off()
            self._queue.extend(rows)

    def remove(self, rows: Sequence[BlockId]) -> None:
        """Take these rows, all of which are here."""
        self._struck.update(rows)

    def _strike_off(self) -> None:
        if self._struck:
            self._queue = deque(self)
            self._struck.clear()
