"""Least recently used: the row that became inactive first goes first, the tail of a batch before its head.

A block is of use only with all blocks before it, so within one released batch (chain order) the tail is evicted first.
Constant time for every change.
Threading: the owner thread of the table.
"""

from collections.abc import Iterator, Sequence
from typing import final

from blockyard.core.eviction.base import RowColumns
from blockyard.core.eviction.row_rings import RowRings
from blockyard.core.vocabulary import BlockId


@final
class LruPolicy:
    """LRU over the rows of a table."""

    __slots__ = ("_ring", "_size")

    def __init__(self, columns: RowColumns) -> None:
        """Make an empty order for the rows of a table."""
        self._ring = RowRings(columns.capacity)
        self._size = 0

    def __len__(self) -> int:
        """Number of rows held."""
        return self._size

    def __iter__(self) -> Iterator[BlockId]:
        """Rows in eviction order."""
        return self._ring.rows()

    def touch(self, blocks: Sequence[BlockId]) -> None:
        """Nothing: the order follows from when rows became inactive."""

    def insert(self, blocks: Sequence[BlockId]) -> None:
        """Put the batch behind all others, its last row first."""
        if isinstance(blocks, range) and blocks:
            self._ring.require_run(blocks, inside=False)
            self._ring.append_run(blocks)
        else:
            self._ring.require(blocks, inside=False)
            self._ring.append(reversed(blocks))
        self._size += len(blocks)

    def remove(self, blocks: Sequence[BlockId]) -> None:
        """Take rows out of the order."""
        if isinstance(blocks, range) and blocks:
            self._ring.require_run(blocks, inside=True)
            self._ring.unlink_run(blocks)
        else:
            self._ring.require(blocks, inside=True)
            self._ring.unlink(blocks)
        self._size -= len(blocks)

    def take(self, count: int) -> list[BlockId]:
        """Remove and return the oldest rows."""
        taken = self._ring.take(count)
        self._size -= len(taken)
        return taken

    def put_back(self, blocks: Sequence[BlockId]) -> None:
        """Put rows in front of all others, in the given order."""
        self._ring.require(blocks, inside=False)
        self._ring.prepend(blocks)
        self._size += len(blocks)

    def forget(self, blocks: Sequence[BlockId]) -> None:
        """Nothing: no history is kept."""
