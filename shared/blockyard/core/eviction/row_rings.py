"""Rings of rows: doubly linked lists in two integer arrays, for orders in which every change takes constant time.

A row stands in one ring at most. There is no object per row and nothing for the garbage collector to visit. The
sentinel of ring k is row ``capacity + k``; a row outside of all rings links to itself.
Invariants: changes do not check what they are given; ``require`` does, for a policy of which all rows stand here.
Threading: the owner thread of the table.
"""

import operator
from array import array
from collections.abc import Iterable, Iterator, MutableSequence, Sequence
from typing import cast, final

from blockyard.core.errors import KernelError
from blockyard.core.vocabulary import BlockId


@final
class RowRings:
    """A number of ordered rings over rows 0 to ``capacity - 1``."""

    __slots__ = ("_next", "_previous", "_sentinels")

    def __init__(self, capacity: int, rings: int = 1) -> None:
        """Make ``rings`` empty rings."""
        self._sentinels = [BlockId(capacity + ring) for ring in range(rings)]
        # Sentinels pass for rows, and rows need no conversion when they are read, which would cost as much as the rest.
        self._next = cast("MutableSequence[BlockId]", array("i", range(capacity + rings)))
        self._previous = cast("MutableSequence[BlockId]", array("i", range(capacity + rings)))

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

    def require(self, rows: Sequence[BlockId], *, inside: bool) -> None:
        """Refuse a batch before anything of it is done.

        Raises:
            KernelError: a row stands in a ring, or with ``inside`` in none; or a row is named twice.
        """
        unfit = map(operator.eq if inside else operator.ne, map(self._next.__getitem__, rows), rows)
        if any(unfit):
            raise KernelError("a row is in the order already, or not at all", rows=len(rows), wanted_in=inside)
        if len(set(rows)) != len(rows):
            raise KernelError("a row is named twice", rows=len(rows))

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
        """Take rows out of the rings in which they stand."""
        following, previous = self._next, self._previous
        for row in rows:
            after, before = following[row], previous[row]
            following[before] = after
            previous[after] = before
            following[row] = previous[row] = row

    def take(self, count: int, ring: int = 0) -> list[BlockId]:
        """Remove and return up to ``count`` rows from the front of a ring."""
        following, previous, sentinel = self._next, self._previous, self._sentinels[ring]
        taken: list[BlockId] = []
        row = following[sentinel]
        while row != sentinel and len(taken) < count:
            taken.append(row)
            after = following[row]
            following[row] = previous[row] = row
            row = after
        following[sentinel] = row
        previous[row] = sentinel
        return taken
