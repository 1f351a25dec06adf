"""Order of TIDE: rows in runs, the runs in a heap.

A run is what was inserted in one call, in chain order. Its tail goes before the rest of it, and of all runs the one
whose tail has the least ``keep_value`` gives first, of equal ones the one whose tail is deeper in its chain, then the
older one. Within a run values do not rise towards the tail, so this is the order of all values; where a history was
lost and they do, the tail still goes first, since a chain is of no use without what is before.
A run stands in the heap with the value that its tail had when it was looked at last. Rows that were removed since are
dropped when the run comes up, or when more rows are gone than there are; only then a value may change.
Invariants: a row is in the order exactly while ``_run_of`` names a run for it, and counts in that run only.
Threading: the owner thread of the table.
"""

from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heappush
from itertools import compress
from math import inf
from operator import countOf
from typing import Final, final

from blockyard.core.errors import KernelError
from blockyard.core.eviction.tide_history import History, keep_value
from blockyard.core.vocabulary import BlockId

_Run = tuple[float, int, int, int, Sequence[BlockId], Sequence[int], Sequence[History]]
"""Value and negative position of the tail, number, rows left, and columns: rows, positions, histories."""

_NONE: Final = 0
_PART: Final = 64
"""Rows that are read at once from the front, by who only looks."""
_STALE_SHARE: Final = 3
_STALE_SLACK: Final = 1024
"""Runs are gone through when more than 3 n + 1024 rows were inserted since, n of them being in the order."""


@final
class RunHeap:
    """Rows 0 to ``capacity - 1`` by ``keep_value`` under one half-life."""

    __slots__ = ("_half_life", "_heap", "_inserted", "_run_of", "_runs", "_size")

    def __init__(self, capacity: int, half_life: int) -> None:
        """Make an empty order."""
        self._half_life = half_life
        self._run_of = [_NONE] * capacity
        self._runs = _NONE
        self._heap: list[_Run] = []
        self._size = 0
        self._inserted = 0

    def __len__(self) -> int:
        """Number of rows."""
        return self._size

    def insert(self, rows: Sequence[BlockId], positions: Sequence[int], histories: Sequence[History]) -> None:
        """Take in a run; its columns are aligned and do not change any more.

        Raises:
            KernelError: a row is in the order already, or named twice; nothing changed.
        """
        run_of = self._run_of
        if any(map(run_of.__getitem__, rows)) or len(set(rows)) != len(rows):
            raise KernelError("a row is in the order already, or named twice", rows=len(rows))
        if not rows:
            return
        run = self._runs = self._runs + 1
        for row in rows:
            run_of[row] = run
        value = keep_value(histories[-1], self._half_life)
        heappush(self._heap, (value, -positions[-1], run, len(rows), rows, positions, histories))
        self._size += len(rows)
        self._inserted += len(rows)
        if self._inserted > _STALE_SHARE * self._size + _STALE_SLACK:
            self.rank_by(self._half_life)

    def remove(self, rows: Sequence[BlockId]) -> None:
        """Take rows out.

        Raises:
            KernelError: a row is not in the order, or named twice; nothing changed.
        """
        run_of = self._run_of
        if not all(map(run_of.__getitem__, rows)) or len(set(rows)) != len(rows):
            raise KernelError("a row is not in the order, or named twice", rows=len(rows))
        self._leave(rows)

    def take(self, count: int) -> list[BlockId]:
        """Remove and return up to ``count`` rows, first victim first."""
        taken = self._first(self._heap, count)
        self._leave(taken)
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
        for _, _, run, left, rows, positions, histories in self._heap:
            rows = rows[:left]
            kept = countOf(map(run_of.__getitem__, rows), run)
            if not kept:
                continue
            if kept < left:
                marks = [run_of[row] == run for row in rows]
                rows = list(compress(rows, marks))
                positions = list(compress(positions, marks))
                histories = list(compress(histories, marks))
            value = keep_value(histories[kept - 1], half_life)
            ranked.append((value, -positions[kept - 1], run, kept, rows, positions, histories))
        heapify(ranked)
        self._heap = ranked
        self._inserted = 0

    def _leave(self, rows: Sequence[BlockId]) -> None:
        run_of = self._run_of
        for row in rows:
            run_of[row] = _NONE
        self._size -= len(rows)

    def _first(self, heap: list[_Run], count: int) -> list[BlockId]:
        """The first rows by ``heap``, which loses them; marks nothing, so ``heap`` may be a copy."""
        run_of, half_life = self._run_of, self._half_life
        found: list[BlockId] = []
        while heap and len(found) < count:
            value, depth, run, left, rows, positions, histories = heappop(heap)
            bound = heap[0][:3] if heap else (inf, 0, run)
            known = None
            while left and len(found) < count:
                row = rows[left - 1]
                if run_of[row] == run:
                    history = histories[left - 1]
                    if history is not known:
                        known = history
                        value = keep_value(history, half_life)
                    depth = -positions[left - 1]
                    if (value, depth, run) > bound:
                        break
                    found.append(row)
                left -= 1
            if left:
                heappush(heap, (value, depth, run, left, rows, positions, histories))
        return found
