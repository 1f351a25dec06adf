"""Least recently used: the row that became inactive first goes first, the tail of a batch before its head.

A block is of use only with all blocks before it, so within one released batch (chain order) the tail is evicted first.
Threading: the owner thread of the table.
"""

from collections.abc import Sequence
from typing import final

from blockyard.core.eviction.base import RowColumns
from blockyard.core.eviction.run_order import RunOrder
from blockyard.core.vocabulary import BlockId


@final
class LruPolicy(RunOrder):
    """LRU over the rows of a table: an order that hears of no uses and keeps no history."""

    __slots__ = ()

    def __init__(self, columns: RowColumns) -> None:
        """Make an empty order for the rows of a table."""
        super().__init__(columns.capacity)

    def touch(self, blocks: Sequence[BlockId]) -> None:
        """Nothing: the order follows from when rows became inactive."""

    def forget(self, blocks: Sequence[BlockId]) -> None:
        """Nothing: no history is kept."""
