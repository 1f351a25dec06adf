"""Rings of rows: doubly linked lists in two integer arrays, for orders in which every change takes constant time.

A row stands in one ring at most. There is no object per row and nothing for the garbage collector to visit. The
sentinel of ring k is row ``capacity + k``; nothing follows a row outside of all rings.
Invariants: changes do not check what they are given.
Threading: the owner thread of the table.
"""

from array import array
from collections.abc import Iterable, Iterator, MutableSequence, Sequence
from typing import Final, cast, final

import numpy as np

from blockyard.core.vocabulary import BlockId

_OUTSIDE: Final = BlockId(-1)


@final
class RowRings:
    """A number of ordered rings over rows 0 to ``capacity - 1``."""

    __slots__ = ("_links", "_links_back", "_next", "_previous", "_sentinels")

    def __init__(self, capacity: int, rings: int = 1) -> None:
        """Make ``rings`` empty rings."""
        self._sentinels = [BlockId(capacity + ring) for ring in range(rings)]
        following = array("i", (_OUTSIDE,)) * (capacity + rings)
        previous = array("i", (_OUTSIDE,)) * (capacity + rings)
        for sentinel in self._sentinels:
            following[sentinel] = previous[sentinel] = sentinel
        self._links = np.frombuffer(following, dtype=np.int32)
        self._links_back = np.frombuffer(previous, dtype=np.int32)
        # Sentinels pass for rows, and rows need no conversion when they are read, which would cost as much as the rest.
        self._next = cast("MutableSequence[BlockId]", following)
        self._previous = cast("MutableSequence[BlockId]", previous)

    def rows(self, ring: int = 0) -> Iterator[BlockId]:
        """Rows of a ring, first to last."""
        following, sentinel = self._next, self._sentinels[ring]
        row = following[sentinel]
        while row != sentinel:
            yield row
            row = following[row]

    def has_rows(self, ring: int = 0) -> bool:
        """Whether anything stands in a ring."""
        sentinel = self._sentinels[ring]
        return self._next[sentinel] != sentinel

    def append(self, rows: Iterable[BlockId], ring: int = 0) -> None:
        """Put rows behind all others of a ring, in the given order."""
        following, previous, sentinel = self._next, self._previous, self._sentinels[ring]
        last = previous[sentinel]
        for row in rows:
            following[last] = row
            previous[row] = last
            last = row
        following[last] = sentinel
        previous[sentinel] = last

    def prepend(self, rows: Sequence[BlockId], ring: int = 0) -> None:
        """Put rows in front of all others of a ring, in the given order."""
        following, previous, sentinel = self._next, self._previous, self._sentinels[ring]
        for row in reversed(rows):
            first = following[sentinel]
            following[sentinel] = row
            previous[row] = sentinel
            following[row] = first
            previous[first] = row

    def unlink(self, rows: Iterable[BlockId]) -> None:
        """Take rows out of the rings in which they stand; those that stand nowhere stay there."""
        following, previous = self._next, self._previous
        for row in rows:
            after, before = following[row], previous[row]
            if after != _OUTSIDE:
                following[before] = after
                previous[after] = before
                following[row] = _OUTSIDE

    def take(self, count: int, ring: int = 0) -> list[BlockId]:
        """Remove and return up to ``count`` rows from the front of a ring."""
        following, previous, sentinel = self._next, self._previous, self._sentinels[ring]
        taken: list[BlockId] = []
        row = following[sentinel]
        while row != sentinel and len(taken) < count:
            taken.append(row)
            after = following[row]
            following[row] = _OUTSIDE
            row = after
        following[sentinel] = row
        previous[row] = sentinel
        return taken

    def violations(self) -> list[str]:
        """What contradicts the invariants, for checks."""
        following, previous, size = self._links, self._links_back, len(self._links)
        linked = np.flatnonzero(following != _OUTSIDE)
        after = following[linked]
        if not (0 <= after.min() and after.max() < size):
            return ["a ring names a row that there is not"]
        if (previous[after] != linked).any() or (following[after] == _OUTSIDE).any():
            return ["rows of a ring do not name each other"]
        reached = sum(1 + self._walk(sentinel, len(linked)) for sentinel in self._sentinels)
        return [f"{len(linked)} rows are linked, and the rings reach {reached}"] if reached != len(linked) else []

    def _walk(self, sentinel: BlockId, limit: int) -> int:
        """Rows of a ring, if it closes within so many."""
        row, steps = self._next[sentinel], 0
        while row != sentinel and steps < limit:
            row, steps = self._next[row], steps + 1
        return steps
