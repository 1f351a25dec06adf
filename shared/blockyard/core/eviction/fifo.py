"""First in, first out: blocks go in the order in which they first became inactive, whatever use they were of since.

Within the batch in which they came the tail goes before the head. A block keeps its place through all uses and loses
it when it leaves the tier.
Threading: the owner thread of the table.
"""

from array import array
from collections.abc import Iterator, Sequence
from typing import final

from blockyard.core.eviction.base import RowColumns
from blockyard.core.eviction.row_heap import RowHeap
from blockyard.core.vocabulary import BlockId


@final
class FifoPolicy:
    """FIFO over the rows of a table."""

    __slots__ = ("_births", "_born", "_heap")

    def __init__(self, columns: RowColumns) -> None:
        """Make an empty order for the rows of a table."""
        self._heap = RowHeap(columns.capacity)
        self._born = array("Q", bytes(8 * columns.capacity))
        """Number of the birth of the block in each row; 0 before it."""
        self._births = 0

    def __len__(self) -> int:
        """Number of rows held."""
        return len(self._heap)

    def __iter__(self) -> Iterator[BlockId]:
        """Rows in eviction order."""
        return iter(self._heap)

    def touch(self, blocks: Sequence[BlockId]) -> None:
        """Nothing: uses do not count."""

    def insert(self, blocks: Sequence[BlockId]) -> None:
        """Put new blocks behind all others, the last row first; known ones return to their places."""
        self._heap.require(blocks, inside=False)
        born, tail_first = self._born, blocks[::-1]
        for row in tail_first:
            if not born[row]:
                self._births += 1
                born[row] = self._births
        self._heap.push(tail_first, [born[row] for row in tail_first])

    def remove(self, blocks: Sequence[BlockId]) -> None:
        """Take rows out of the order; their places are kept."""
        self._heap.require(blocks, inside=True)
        self._heap.discard(blocks)

    def take(self, count: int) -> list[BlockId]:
        """Remove and return the rows that came first."""
        return self._heap.take(count)

    def put_back(self, blocks: Sequence[BlockId]) -> None:
        """Return rows to their places, which are the first."""
        self._heap.require(blocks, inside=False)
        self._heap.push(blocks, [self._born[row] for row in blocks])

    def forget(self, blocks: Sequence[BlockId]) -> None:
        """The next block in such a row comes as a new one."""
        for row in blocks:
            self._born[row] = 0

    def violations(self) -> list[str]:
        """What contradicts the invariants, for checks."""
        broken = self._heap.violations()
        if broken:
            return broken
        rules = {
            "a row does not stand in the place of its birth": all(
                rank == self._born[row] > 0 for row, rank in self._heap.ranks().items()
            ),
            "the next birth is not the latest": max(self._born, default=0) <= self._births,
        }
        return [rule for rule, holds in rules.items() if not holds]
