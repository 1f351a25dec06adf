"""Rows in the order of a rank, the smallest first; equal ranks in the order in which they came.

A binary heap of plain integers (rank, number of the entry, row), so that comparing is one step and nothing is kept
alive. A row that leaves only loses its mark: its entry is dropped when it comes up, or when entries are twice as many
as rows.
Invariants: an entry counts exactly while its row is marked and its number is the row's latest; ranks are not negative.
Changes do not check what they are given; ``require`` does, for a policy of which all rows stand here.
Threading: the owner thread of the table.
"""

import heapq
from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, final

from blockyard.core.errors import KernelError
from blockyard.core.vocabulary import BlockId

_ROW_BITS: Final = 32
_ROW_MASK: Final = (1 << _ROW_BITS) - 1
_NUMBER_MASK: Final = (1 << 64) - 1
_RANK_SHIFT: Final = 96
_FEW: Final = 256


@final
class RowHeap:
    """A priority queue over rows 0 to ``capacity - 1``; each stands in it once at most."""

    __slots__ = ("_entries", "_latest", "_marks", "_numbers", "_size")

    def __init__(self, capacity: int) -> None:
        """Start empty."""
        self._entries: list[int] = []
        self._numbers = array("Q", bytes(8 * capacity))
        self._marks = bytearray(capacity)
        self._latest = 0
        self._size = 0

    def __len__(self) -> int:
        """Number of rows."""
        return self._size

    def __iter__(self) -> Iterator[BlockId]:
        """Rows in order; changes nothing. The first few cost little, however many there are."""
        entries, shown = self._entries, -1
        # Nothing below a place of the heap is smaller than what stands there.
        open_places = [(entry, 0) for entry in entries[:1]]
        while open_places:
            entry, place = heapq.heappop(open_places)
            for below in range(2 * place + 1, min(2 * place + 3, len(entries))):
                heapq.heappush(open_places, (entries[below], below))
            # A row that left and came back to its place has two equal entries.
            if entry != shown and self._counts(entry):
                shown = entry
                yield BlockId(entry & _ROW_MASK)

    def require(self, rows: Sequence[BlockId], *, inside: bool) -> None:
        """Refuse a batch before anything of it is done.

        Raises:
            KernelError: a row stands here, or with ``inside`` does not; or a row is named twice.
        """
        if sum(map(self._marks.__getitem__, rows)) != (len(rows) if inside else 0):
            raise KernelError("a row is in the order already, or not at all", rows=len(rows), wanted_in=inside)
        if len(set(rows)) != len(rows):
            raise KernelError("a row is named twice", rows=len(rows))

    def push(self, rows: Iterable[BlockId], ranks: Iterable[int]) -> None:
        """Add rows that do not stand here, behind those of the same rank."""
        entries, numbers, marks, latest = self._entries, self._numbers, self._marks, self._latest
        for row, rank in zip(rows, ranks, strict=True):
            latest += 1
            numbers[row] = latest
            marks[row] = 1
            heapq.heappush(entries, rank << _RANK_SHIFT | latest << _ROW_BITS | row)
            self._size += 1
        self._latest = latest
        self._shrink()

    def restore(self, rows: Iterable[BlockId], ranks: Iterable[int]) -> None:
        """Add rows that stood here before, at the places they had among those of their rank."""
        entries, numbers, marks = self._entries, self._numbers, self._marks
        for row, rank in zip(rows, ranks, strict=True):
            marks[row] = 1
            heapq.heappush(entries, rank << _RANK_SHIFT | numbers[row] << _ROW_BITS | row)
            self._size += 1
        self._shrink()

    def discard(self, rows: Iterable[BlockId]) -> None:
        """Take out those of these rows that stand here."""
        marks = self._marks
        for row in rows:
            self._size -= marks[row]
            marks[row] = 0

    def take(self, count: int, below: int | None = None) -> list[BlockId]:
        """Remove and return up to ``count`` rows from the front; with ``below`` only those of a smaller rank."""
        entries, marks = self._entries, self._marks
        taken: list[BlockId] = []
        while entries and len(taken) < count:
            entry = entries[0]
            if below is not None and entry >> _RANK_SHIFT >= below:
                break
            heapq.heappop(entries)
            if self._counts(entry):
                row = BlockId(entry & _ROW_MASK)
                marks[row] = 0
                taken.append(row)
        self._size -= len(taken)
        return taken

    # --- checks -------------------------------------------------------------------------------------------------------
    def ranks(self) -> dict[BlockId, int]:
        """Rank of every row, in no order."""
        entries = filter(self._counts, self._entries)
        return {BlockId(entry & _ROW_MASK): entry >> _RANK_SHIFT for entry in entries}

    def violations(self) -> list[str]:
        """What contradicts the invariants, for checks."""
        entries, capacity = self._entries, len(self._marks)
        if any(entry < 0 or entry & _ROW_MASK >= capacity for entry in entries):
            return ["a heap names a row that there is not"]
        marked = [BlockId(row) for row, mark in enumerate(self._marks) if mark]
        rules = {
            f"a heap is said to have {self._size} rows, and {len(marked)} are marked": self._size == sum(self._marks),
            "not exactly the marked rows have an entry in their heap": sorted(self.ranks()) == marked,
            "a heap is out of order": all(
                entries[(place - 1) // 2] <= entry for place, entry in enumerate(entries[1:], 1)
            ),
            "a heap will give a number a second time": max(self._numbers, default=0) <= self._latest,
        }
        return [rule for rule, holds in rules.items() if not holds]

    # --- inside -------------------------------------------------------------------------------------------------------
    def _counts(self, entry: int) -> bool:
        row = entry & _ROW_MASK
        return bool(self._marks[row]) and self._numbers[row] == entry >> _ROW_BITS & _NUMBER_MASK

    def _shrink(self) -> None:
        if len(self._entries) > 2 * self._size + _FEW:
            self._entries = list(set(filter(self._counts, self._entries)))
            heapq.heapify(self._entries)
