"""Rings of rows: doubly linked lists in two integer arrays, for orders in which every change takes constant time.

A row stands in one ring at most. There is no object per row and nothing for the garbage collector to visit. The
sentinel of ring k is row ``capacity + k``; a row outside of all rings links to itself.
Invariants: callers say where rows stand; nothing is checked here (``RowSet`` does that for a whole policy).
Threading: the owner thread of the table.
"""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import final

from blockyard.core.vocabulary import BlockId


@final
class RowRings:
    """A number of ordered rings over rows 0 to ``capacity - 1``."""

    __slots__ = ("_capacity", "_next", "_previous")

    def __init__(self, capacity: int, rings: int = 1) -> None:
        """Make ``rings`` empty rings."""
        self._capacity = capacity
        self._next = array("i", range(capacity + rings))
        self._previous = array("i", range(capacity + rings))

    def rows(self, ring: int = 0) -> Iterator[BlockId]:
        """Rows of a ring, first to last."""
        following, sentinel = self._next, self._capacity + ring
        row = following[sentinel]
        while row != sentinel:
            yield BlockId(row)
            row = following[row]

    def has_rows(self, ring: int = 0) -> bool:
        """Whether anything stands in a ring."""
        sentinel = self._capacity + ring
        return self._next[sentinel] != sentinel

    def append(self, rows: Iterable[BlockId], ring: int = 0) -> None:
        """Put rows behind all others of a ring, in the given order."""
        following, previous, sentinel = self._next, self._previous, self._capacity + ring
        last = previous[sentinel]
        for row in rows:
            following[last] = row
            previous[row] = last
            last = row
        following[last] = sentinel
        previous[sentinel] = last

    def prepend(self, rows: Sequence[BlockId], ring: int = 0) -> None:
        """Put rows in front of all others of a ring, in the given order."""
        following, previous, sentinel = self._next, self._previous, self._capacity + ring
        for row in reversed(rows):
            first = following[sentinel]
            following[sentinel] = row
            previous[row] = sentinel
            following[row] = first
            previous[first] = row

    def unlink(self, rows: Iterable[BlockId]) -> None:
        """Take rows out of the rings in which they stand."""
        following, previous = self._next, self._previous
        for row in rows:
            after, before = following[row], previous[row]
            following[before] = after
            previous[after] = before
            following[row] = previous[row] = row

    def take(self, count: int, ring: int = 0) -> list[BlockId]:
        """Remove and return up to ``count`` rows from the front of a ring."""
        following, previous, sentinel = self._next, self._previous, self._capacity + ring
        taken: list[BlockId] = []
        row = following[sentinel]
        while row != sentinel and len(taken) < count:
            taken.append(BlockId(row))
            after = following[row]
            following[row] = previous[row] = row
            row = after
        following[sentinel] = row
        previous[row] = sentinel
        return taken
