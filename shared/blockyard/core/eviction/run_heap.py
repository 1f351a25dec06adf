"""Order of TIDE: rows in runs, the runs in a heap.

A run is what was inserted in one call, in chain order. Its tail goes before the rest of it, and of all runs the one
whose tail has the least ``keep_value`` gives first, of equal ones the one whose tail is deeper in its chain, then the
older one. Within a run values do not rise towards the tail, so this is the order of all values; where a history was
lost and they do, the tail still goes first, since a chain is of no use without what is before.
A run stands in the heap with the value that its tail had when it was looked at last. Rows that were removed since are
dropped when the run comes up, or when more rows are gone than there are; only then a value may change.
Histories and positions are read of the rows that come up, not kept: while a row is in the order, its block stays.
Runs that were put back stand before all others, the latest first, whatever their histories.
Invariants: a row is in the order exactly while ``_run_of`` names a run for it, and counts in that run only.
Threading: the owner thread of the table.
"""

from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heappush
from math import inf
from operator import countOf
from typing import Final, cast, final

from blockyard.core.errors import KernelError
from blockyard.core.eviction.base import RowColumns
from blockyard.core.eviction.tide_history import History, keep_value
from blockyard.core.vocabulary import BlockId

_Run = tuple[float, int, int, int, Sequence[BlockId]]
"""Value and negative position of the tail, number, rows left, and the rows. Of runs that were put back the value is
``_FRONT``, and the second number the negative one of the run."""

_FRONT: Final = -inf
_NONE: Final = 0
_PART: Final = 64
"""Rows that are read at once from the front, by who only looks."""
_STALE_SHARE: Final = 3
_STALE_SLACK: Final = 1024
"""Runs are gone through when more than 3 n + 1024 rows were inserted since, n of them being in the order."""


@final
class RunHeap:
    """Rows of a table by ``keep_value`` under one half-life."""

    __slots__ = ("_columns", "_half_life", "_heap", "_histories", "_inserted", "_run_of", "_runs", "_size")

    def __init__(self, columns: RowColumns, histories: Sequence[History | None], half_life: int) -> None:
        """Make an empty order of rows whose histories stand in ``histories``, now and later."""
        self._columns = columns
        self._histories = histories
        self._half_life = half_life
        self._run_of = [_NONE] * columns.capacity
        self._runs = _NONE
        self._heap: list[_Run] = []
        self._size = 0
        self._inserted = 0

    def __len__(self) -> int:
        """Number of rows."""
        return self._size

    def insert(self, rows: Sequence[BlockId]) -> None:
        """Take in a run of rows with histories.

        Raises:
            KernelError: a row is in the order already, or named twice; nothing changed.
        """
        if not rows:
            return
        run = self._enter(rows)
        tail = rows[-1]
        heappush(self._heap, (self._value(tail), self._depth(tail), run, len(rows), _kept(rows)))
        if self._inserted > _STALE_SHARE * self._size + _STALE_SLACK:
            self.rank_by(self._half_life)

    def put_back(self, rows: Sequence[BlockId]) -> None:
        """Take in rows before all others, in the order in which they go.

        Raises:
            KernelError: a row is in the order already, or named twice; nothing changed.
        """
        if rows:
            run = self._enter(rows)
            heappush(self._heap, (_FRONT, -run, run, len(rows), rows[::-1]))

    def remove(self, rows: Sequence[BlockId]) -> None:
        """Take rows out.

        Raises:
            KernelError: a row is not in the order, or named twice; nothing changed.
        """
        run_of = self._run_of
        runs = list(map(run_of.__getitem__, rows))
        for row in rows:
            if not run_of[row]:
                self._restore(rows, runs)
                raise KernelError("a row is not in the order, or named twice", rows=len(rows))
            run_of[row] = _NONE
        self._size -= len(rows)

    def take(self, count: int) -> list[BlockId]:
        """Remove and return up to ``count`` rows, first victim first."""
        taken = self._first(self._heap, count)
        run_of = self._run_of
        for row in taken:
            run_of[row] = _NONE
        self._size -= len(taken)
        return taken

    def rows(self) -> Iterator[BlockId]:
        """All rows in the order in which ``take`` gives them; changes nothing. Few of them cost a copy of the heap."""
        heap = self._heap.copy()
        while part := self._first(heap, _PART):
            yield from part

    def rank_by(self, half_life: int) -> None:
        """Order by this half-life from now on, and drop what was removed. Linear in the rows."""
        self._half_life = half_life
        run_of = self._run_of
        ranked: list[_Run] = []
        for value, depth, run, left, rows in self._heap:
            if left < len(rows):
                rows = rows[:left]
            kept = countOf(map(run_of.__getitem__, rows), run)
            if not kept:
                continue
            if kept < left:
                rows = [row for row in rows if run_of[row] == run]
            if value != _FRONT:
                value, depth = self._value(rows[-1]), self._depth(rows[-1])
            ranked.append((value, depth, run, kept, rows))
        heapify(ranked)
        self._heap = ranked
        self._inserted = 0

    def _value(self, row: BlockId) -> float:
        return keep_value(cast("History", self._histories[row]), self._half_life)

    def _depth(self, row: BlockId) -> int:
        return -self._columns.positions_of((row,))[0]

    def _enter(self, rows: Sequence[BlockId]) -> int:
        """Number of the new run that these rows are in from now on."""
        run_of = self._run_of
        run = self._runs = self._runs + 1
        for row in rows:
            if run_of[row]:
                self._restore(rows, [_NONE if run_of[row] == run else run_of[row] for row in rows])
                raise KernelError("a row is in the order already, or named twice", rows=len(rows))
            run_of[row] = run
        self._size += len(rows)
        self._inserted += len(rows)
        return run

    def _restore(self, rows: Sequence[BlockId], runs: Sequence[int]) -> None:
        for row, run in zip(rows, runs, strict=True):
            self._run_of[row] = run

    def _first(self, heap: list[_Run], count: int) -> list[BlockId]:
        """The first rows by ``heap``, which loses them; marks nothing, so ``heap`` may be a copy."""
        found: list[BlockId] = []
        while heap and len(found) < count:
            self._first_of_run(heap, heappop(heap), found, count)
        return found

    def _first_of_run(self, heap: list[_Run], entry: _Run, found: list[BlockId], count: int) -> None:
        """Rows of a run up to one that another run goes before; what is left of the run goes back into ``heap``."""
        run_of, histories, half_life = self._run_of, self._histories, self._half_life
        value, depth, run, left, rows = entry
        bound, *bound_depth = heap[0][:3] if heap else (inf, 0, run)
        front = value == _FRONT
        known: History | None = None
        seen: BlockId | None = None
        while left and len(found) < count:
            row = rows[left - 1]
            if run_of[row] == run:
                if not front:
                    seen, history = row, histories[row]
                    if history is not known:
                        known = history
                        value = keep_value(cast("History", history), half_life)
                    if value >= bound and (value > bound or [self._depth(row), run] > bound_depth):
                        break
                found.append(row)
            left -= 1
        if left:
            heappush(heap, (value, depth if seen is None else self._depth(seen), run, left, rows))


def _kept(rows: Sequence[BlockId]) -> Sequence[BlockId]:
    """These rows, whatever the caller does with them later."""
    if isinstance(rows, range):
        return cast("Sequence[BlockId]", rows)
    return list(rows)
