"""LRU-2 (O'Neil, O'Neil, Weikum 1993): the block whose last use but one is longest ago goes first.

Blocks used once only go before all others, in LRU order, so a scan costs nobody else a place. A block that comes back
continues with the use it had before it left: uses are remembered for as many blocks as eight times the table, and a
parent, which is used at least as often as its children, is forgotten after them. So children go before parents without
any account of who is whose child.
Time is the number of batches that became inactive: uses within one such step are one use, as when a request looks a
block up, leases it and loads it.
Invariants: 0 stands for "never". Threading: the owner thread of the table.
"""

import operator
from array import array
from collections.abc import Iterator, Sequence
from typing import Final, final

from blockyard.core.eviction.base import RowColumns
from blockyard.core.eviction.block_history import BlockHistory
from blockyard.core.eviction.row_heap import RowHeap
from blockyard.core.eviction.row_keys import keys_of
from blockyard.core.vocabulary import BlockId

HISTORY: Final = 8
"""Blocks remembered after they left, per row."""


@final
class Lru2Policy:
    """LRU-2 over the rows of a table."""

    __slots__ = ("_columns", "_heap", "_history", "_last", "_now", "_previous")

    def __init__(self, columns: RowColumns) -> None:
        """Make an empty order for the rows of a table."""
        capacity = columns.capacity
        self._columns = columns
        self._heap = RowHeap(capacity)
        self._history = BlockHistory(HISTORY * capacity)
        self._last = array("Q", bytes(8 * capacity))
        self._previous = array("Q", bytes(8 * capacity))
        self._now = 1

    def __len__(self) -> int:
        """Number of rows held."""
        return len(self._heap)

    def __iter__(self) -> Iterator[BlockId]:
        """Rows in eviction order."""
        return iter(self._heap)

    def touch(self, blocks: Sequence[BlockId]) -> None:
        """Note the use; of a block that is new in its row, the use before is looked up in the history."""
        last, previous, now = self._last, self._previous, self._now
        fresh = [row for row in dict.fromkeys(blocks) if not last[row]]
        for row, name in zip(fresh, keys_of(self._columns, fresh), strict=True):
            last[row] = self._history.recall(name) or 0
        for row in blocks:
            if last[row] != now:
                previous[row] = last[row]
                last[row] = now

    def insert(self, blocks: Sequence[BlockId]) -> None:
        """Place the batch by the uses of its rows; among equals behind all others, the last row first."""
        self._heap.require(blocks, inside=False)
        self._now += 1
        tail_first = blocks[::-1]
        self._heap.push(tail_first, [self._previous[row] for row in tail_first])

    def remove(self, blocks: Sequence[BlockId]) -> None:
        """Take rows out of the order."""
        self._heap.require(blocks, inside=True)
        self._heap.discard(blocks)

    def take(self, count: int) -> list[BlockId]:
        """Remove and return the rows whose last use but one is longest ago."""
        return self._heap.take(count)

    def put_back(self, blocks: Sequence[BlockId]) -> None:
        """Return rows to their places, which are the first."""
        self._heap.require(blocks, inside=False)
        self._heap.restore(blocks, [self._previous[row] for row in blocks])

    def forget(self, blocks: Sequence[BlockId]) -> None:
        """Keep the last use of the blocks by name."""
        last = self._last
        used = [row for row in blocks if last[row]]
        self._history.add(keys_of(self._columns, used), [last[row] for row in used])
        for row in blocks:
            last[row] = self._previous[row] = 0

    def violations(self) -> list[str]:
        """What contradicts the invariants, for checks."""
        broken = self._heap.violations()
        if broken:
            return broken
        last, previous = self._last, self._previous
        rules = {
            "a row does not stand in the place of its last use but one": all(
                rank == previous[row] for row, rank in self._heap.ranks().items()
            ),
            "uses are out of order": all(map(operator.le, previous, last)) and max(last, default=0) <= self._now,
        }
        return [rule for rule, holds in rules.items() if not holds]
