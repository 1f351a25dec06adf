"""Least recently used: the row that became inactive first goes first, the tail of a batch before its head.

A block is of use only with all blocks before it, so within one released batch (chain order) the tail is evicted first.
Links lie in two integer arrays indexed by row: constant time for every change, no object per row, nothing for the
garbage collector to visit. Row ``capacity`` is the sentinel of the ring; a row outside the ring links to itself.
Threading: the owner thread of the table.
"""

from array import array
from collections.abc import Iterator, Sequence
from typing import final

from blockyard.core.errors import KernelError
from blockyard.core.eviction.base import RowColumns
from blockyard.core.vocabulary import BlockId


@final
class LruPolicy:
    """LRU over rows 0 to ``capacity - 1``."""

    __slots__ = ("_capacity", "_next", "_previous", "_size")

    def __init__(self, columns: RowColumns) -> None:
        """Make an empty order for the rows of a table."""
        capacity = self._capacity = columns.capacity
        self._next = array("i", range(capacity + 1))
        self._previous = array("i", range(capacity + 1))
        self._size = 0

    def __len__(self) -> int:
        """Number of rows held."""
        return self._size

    def __iter__(self) -> Iterator[BlockId]:
        """Rows in eviction order."""
        row = self._next[self._capacity]
        while row != self._capacity:
            yield BlockId(row)
            row = self._next[row]

    def touch(self, blocks: Sequence[BlockId]) -> None:
        """Nothing: the order follows from when rows became inactive."""

    def insert(self, blocks: Sequence[BlockId]) -> None:
        """Put the batch behind all others, its last row first."""
        following, previous, sentinel = self._next, self._previous, self._capacity
        self._require(blocks, linked=False)
        newest = previous[sentinel]
        for row in reversed(blocks):
            following[newest] = row
            previous[row] = newest
            newest = row
        following[newest] = sentinel
        previous[sentinel] = newest
        self._size += len(blocks)

    def remove(self, blocks: Sequence[BlockId]) -> None:
        """Take rows out of the order."""
        following, previous = self._next, self._previous
        self._require(blocks, linked=True)
        for row in blocks:
            after, before = following[row], previous[row]
            following[before] = after
            previous[after] = before
            following[row] = previous[row] = row
        self._size -= len(blocks)

    def take(self, count: int) -> list[BlockId]:
        """Remove and return the oldest rows."""
        following, previous, sentinel = self._next, self._previous, self._capacity
        taken: list[BlockId] = []
        row = following[sentinel]
        while row != sentinel and len(taken) < count:
            taken.append(BlockId(row))
            after = following[row]
            following[row] = previous[row] = row
            row = after
        following[sentinel] = row
        previous[row] = sentinel
        self._size -= len(taken)
        return taken

    def put_back(self, blocks: Sequence[BlockId]) -> None:
        """Put rows in front of all others, in the given order."""
        following, previous, sentinel = self._next, self._previous, self._capacity
        for row in reversed(blocks):
            first = following[sentinel]
            following[sentinel] = row
            previous[row] = sentinel
            following[row] = first
            previous[first] = row
        self._size += len(blocks)

    def forget(self, blocks: Sequence[BlockId]) -> None:
        """Nothing: no history is kept."""

    def _require(self, blocks: Sequence[BlockId], *, linked: bool) -> None:
        """Refuse a batch before anything of it is done."""
        following = self._next
        for row in blocks:
            if (following[row] != row) != linked:
                raise KernelError("the row is in the order already, or not at all", block=row, wanted_in=linked)
        if len(set(blocks)) != len(blocks):
            raise KernelError("a row is named twice", blocks=len(blocks))
