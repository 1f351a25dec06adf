"""Rings of rows: doubly linked lists in two integer arrays, for orders in which every change takes constant time.

A row stands in one ring at most. There is no object per row and nothing for the garbage collector to visit. The
sentinel of ring k is row ``capacity + k``; nothing follows a row outside of all rings. A chain whose rows lie side by
side is linked tail first, so that of each of its rows the next lower one follows: such runs change by slices.
Invariants: changes do not check what they are given; ``require`` does, for a policy of which all rows stand here.
Threading: the owner thread of the table.
"""

from array import array
from collections.abc import Iterable, Iterator, MutableSequence, Sequence
from itertools import pairwise
from typing import Final, cast, final

import numpy as np

from blockyard.core.errors import KernelError
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

    def require(self, rows: Sequence[BlockId], *, inside: bool) -> None:
        """Refuse a batch before anything of it is done.

        Raises:
            KernelError: a row stands in a ring, or with ``inside`` in none; or a row is named twice.
        """
        outside = list(map(self._next.__getitem__, rows)).count(_OUTSIDE)
        if outside != (0 if inside else len(rows)):
            raise KernelError("a row is in the order already, or not at all", rows=len(rows), wanted_in=inside)
        if not isinstance(rows, range) and len(set(rows)) != len(rows):
            raise KernelError("a row is named twice", rows=len(rows))

    def require_run(self, run: range, *, inside: bool) -> None:
        """As ``require``, for adjacent rows in ascending order, one at least as in all calls with runs."""
        outside = self._next[run.start : run.stop].count(_OUTSIDE)
        if outside != (0 if inside else len(run)):
            raise KernelError("a row is in the order already, or not at all", rows=len(run), wanted_in=inside)

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

    def append_run(self, run: range, ring: int = 0) -> None:
        """Put adjacent rows, given in ascending order, behind all others of a ring, the highest first."""
        start, stop, sentinel = BlockId(run.start), BlockId(run.stop), self._sentinels[ring]
        around = np.arange(start - 1, stop + 1, dtype=np.int32)
        self._links[start:stop] = around[:-2]
        self._links_back[start:stop] = around[2:]
        head, last = BlockId(stop - 1), self._previous[sentinel]
        self._next[last], self._previous[head] = head, last
        self._next[start], self._previous[sentinel] = sentinel, start

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

    def unlink_run(self, run: range) -> None:
        """Take adjacent rows, given in ascending order, out of their rings: one step where they stand tail first."""
        following, previous, start, stop = self._next, self._previous, run.start, run.stop
        lower = np.arange(start, stop - 1, dtype=np.int32)
        links = self._links[start + 1 : stop]
        parts = [start, stop]
        if links.tobytes() != lower.tobytes():
            parts[1:1] = (np.flatnonzero(links != lower) + (start + 1)).tolist()
        for lowest, end in pairwise(parts):
            after, before = following[lowest], previous[end - 1]
            following[before] = after
            previous[after] = before
        self._links[start:stop] = _OUTSIDE

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
