"""An order of rows kept as runs: adjacent rows of which each comes before the next lower one.

Chains mostly lie side by side and leave tail first, so an order of a million rows is one of few runs. What is written
per row is one byte, in slices; links are written at the ends of runs only, so that a chain enters, leaves or moves to
the end in constant time, however long it is.
The links of a run: ``next[low]`` names the highest row of the run behind it, ``previous[high]`` the lowest one of the
run before it; where a run has several rows, ``next[high]`` names its own lowest row and ``previous[low]`` its highest.
The sentinel is the row ``capacity``.
Invariants: a row stands here at most once, its mark says how; runs may touch each other. A call that raises has changed
nothing. Threading: the owner thread of the table.
"""

from array import array
from collections.abc import Iterator, Sequence
from typing import Final, cast

from blockyard.core.errors import KernelError
from blockyard.core.row_batch import runs_of
from blockyard.core.vocabulary import BlockId

_OUTSIDE: Final = 0
_LOWEST: Final = 1
"""The lowest row of its run."""
_ABOVE: Final = 2
"""In one run with the row below."""
_WORTH_CUTTING: Final = 4
"""Runs of so many rows are cut one by one, shorter ones row by row."""
_TEMPLATE_ROWS: Final = 4_096
_RUN: Final = bytearray((_LOWEST,)) + bytearray((_ABOVE,)) * (_TEMPLATE_ROWS - 1)
_NO_RUN: Final = bytearray(_TEMPLATE_ROWS)


class RunOrder:
    """An order over rows 0 to ``capacity - 1``; all changes are those of ``EvictionPolicy``."""

    __slots__ = ("_marks", "_next", "_previous", "_sentinel", "_size")

    def __init__(self, capacity: int) -> None:
        """Make an empty order."""
        self._sentinel = capacity
        self._next = array("i", (0,)) * (capacity + 1)
        self._previous = array("i", (0,)) * (capacity + 1)
        self._next[capacity] = self._previous[capacity] = capacity
        self._marks = bytearray(capacity + 1)
        self._size = 0

    def __len__(self) -> int:
        """Number of rows held."""
        return self._size

    def __iter__(self) -> Iterator[BlockId]:
        """Rows, first to last."""
        high = self._next[self._sentinel]
        while high != self._sentinel:
            low = self._low(high)
            yield from cast("Sequence[BlockId]", range(high, low - 1, -1))
            high = self._next[low]

    # --- changes ------------------------------------------------------------------------------------------------------
    def insert(self, blocks: Sequence[BlockId]) -> None:
        """Put the batch behind all others, its last row first.

        Raises:
            KernelError: a row is here already, or named twice.
        """
        if isinstance(blocks, range) and blocks:
            low, stop = blocks.start, blocks.stop
            if self._marks.count(_OUTSIDE, low, stop) != stop - low:
                raise _refused(stop - low)
            self._append(low, stop)
        else:
            self._require_outside(blocks)
            self._append_rows(blocks)
        self._size += len(blocks)

    def remove(self, blocks: Sequence[BlockId]) -> None:
        """Take rows out of the order.

        Raises:
            KernelError: a row is not here, or named twice.
        """
        marks = self._marks
        if isinstance(blocks, range) and blocks:
            low, stop = blocks.start, blocks.stop
            if marks[low] == _LOWEST and marks[stop] != _ABOVE and marks.count(_ABOVE, low, stop) == stop - low - 1:
                self._unlink(low, stop)
            elif marks.count(_OUTSIDE, low, stop):
                raise _refused(stop - low)
            elif _WORTH_CUTTING * marks.count(_LOWEST, low, stop) < stop - low:
                self._cut(low, stop)
            else:
                self._cut_rows(blocks)
        else:
            if not all(map(marks.__getitem__, blocks)) or len(set(blocks)) != len(blocks):
                raise _refused(len(blocks))
            self._cut_rows(blocks)
        self._size -= len(blocks)

    def take(self, count: int) -> list[BlockId]:
        """Remove and return up to ``count`` rows, first to last."""
        marks, following, previous, sentinel = self._marks, self._next, self._previous, self._sentinel
        taken: list[int] = []
        left, high = count, following[sentinel]
        while left > 0 and high != sentinel:
            if marks[high] == _LOWEST:
                taken.append(high)
                marks[high] = _OUTSIDE
                left -= 1
                high = following[high]
                continue
            low = following[high]
            end = max(low, high + 1 - left)
            taken += range(high, end - 1, -1)
            left -= high + 1 - end
            marks[end : high + 1] = bytes(high + 1 - end)
            if end == low:
                high = following[low]
            else:
                high = end - 1
                self._set_ends(low, high)
        following[sentinel], previous[high] = high, sentinel
        self._size -= len(taken)
        return cast("list[BlockId]", taken)

    def put_back(self, blocks: Sequence[BlockId]) -> None:
        """Put rows in front of all others, in the given order.

        Raises:
            KernelError: a row is here already, or named twice.
        """
        self._require_outside(blocks)
        following, previous, sentinel = self._next, self._previous, self._sentinel
        for low, stop in runs_of(blocks[::-1]):
            self._marks[low:stop] = _run(stop - low)
            self._set_ends(low, stop - 1)
            first = following[sentinel]
            following[low], previous[first] = first, low
            following[sentinel], previous[stop - 1] = stop - 1, sentinel
        self._size += len(blocks)

    # --- checks -------------------------------------------------------------------------------------------------------
    def violations(self) -> list[str]:
        """What contradicts the invariants, for checks."""
        seen = bytearray(len(self._marks))
        high, before, standing = self._next[self._sentinel], self._sentinel, 0
        while high != self._sentinel:
            if not 0 <= high < self._sentinel or self._previous[high] != before:
                return ["runs of the order do not name each other"]
            low = self._low(high)
            if not 0 <= low <= high or self._high(low) != high or any(seen[low : high + 1]):
                return ["a run of the order has other ends than it says, or stands there twice"]
            seen[low : high + 1] = _run(high + 1 - low)
            standing += high + 1 - low
            before, high = low, self._next[low]
        violations = []
        if self._previous[self._sentinel] != before:
            violations.append("runs of the order do not name each other")
        if seen != self._marks:
            violations.append("rows of the order are marked otherwise than they stand in its runs")
        if standing != self._size:
            violations.append(f"{self._size} rows are said to be in the order, and {standing} are")
        return violations

    # --- inside -------------------------------------------------------------------------------------------------------
    def _append(self, low: int, stop: int) -> None:
        following, previous, sentinel, high = self._next, self._previous, self._sentinel, stop - 1
        self._marks[low:stop] = _RUN[: stop - low] if stop - low <= _TEMPLATE_ROWS else _run(stop - low)
        last = previous[sentinel]
        # Of a single row the links to others stand where those to its own ends would.
        following[high], previous[low] = low, high
        following[last], previous[high] = high, last
        following[low], previous[sentinel] = sentinel, low

    def _append_rows(self, blocks: Sequence[BlockId]) -> None:
        """Put rows behind all others, the last one first; those of them that are neighbours as one run."""
        marks, following, previous, sentinel = self._marks, self._next, self._previous, self._sentinel
        last = previous[sentinel]
        high = low = -1
        for row in reversed(blocks):
            if row + 1 == low:
                marks[low] = _ABOVE
                following[high], previous[row] = row, high
            else:
                following[last] = high = row
                previous[row] = last
            marks[row] = _LOWEST
            last = low = row
        following[last], previous[sentinel] = sentinel, last

    def _unlink(self, low: int, stop: int) -> None:
        """Take out one whole run."""
        after, before = self._next[low], self._previous[stop - 1]
        self._next[before], self._previous[after] = after, before
        self._marks[low:stop] = _NO_RUN[: stop - low] if stop - low <= _TEMPLATE_ROWS else bytearray(stop - low)

    def _cut(self, low: int, stop: int) -> None:
        """Take adjacent rows, all of which are here, out of their runs; what is left of those stays in its place."""
        marks, following, previous = self._marks, self._next, self._previous
        while low < stop:
            start = low if marks[low] == _LOWEST else marks.rfind(_LOWEST, 0, low)
            high = self._high(start)
            end = min(stop, high + 1)
            before, after = previous[high], following[start]
            marks[low:end] = bytes(end - low)
            if end <= high:
                marks[end] = _LOWEST
                self._set_ends(end, high)
                before = end
            if start < low:
                self._set_ends(start, low - 1)
                following[before], previous[low - 1] = low - 1, before
                before = start
            following[before], previous[after] = after, before
            low = end

    def _cut_rows(self, blocks: Sequence[int]) -> None:
        """Take rows, all of which are here, out of their runs; scattered ones are mostly runs of their own."""
        marks, following, previous = self._marks, self._next, self._previous
        low = stop = 0
        for row in blocks:
            if marks[row + 1] != _ABOVE and marks[row] == _LOWEST:
                after, before = following[row], previous[row]
                following[before], previous[after] = after, before
                marks[row] = _OUTSIDE
            else:
                if row != stop:
                    self._cut(low, stop)
                    low = row
                stop = row + 1
        self._cut(low, stop)

    def _set_ends(self, low: int, high: int) -> None:
        if low != high:
            self._next[high], self._previous[low] = low, high

    def _low(self, high: int) -> int:
        return high if self._marks[high] == _LOWEST else self._next[high]

    def _high(self, low: int) -> int:
        return self._previous[low] if self._marks[low + 1] == _ABOVE else low

    def _require_outside(self, blocks: Sequence[BlockId]) -> None:
        if any(map(self._marks.__getitem__, blocks)) or len(set(blocks)) != len(blocks):
            raise _refused(len(blocks))


def _refused(rows: int) -> KernelError:
    return KernelError("a row is in the order already, or not at all, or named twice", rows=rows)


def _run(count: int) -> bytearray:
    """Marks of a run."""
    return _RUN[:count] if count <= _TEMPLATE_ROWS else _RUN + bytes((_ABOVE,)) * (count - _TEMPLATE_ROWS)
