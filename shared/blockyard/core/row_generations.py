"""Generations of the rows of one table: each grant of a row gets a number above all earlier ones.

An adopted block keeps the generation of its header while it lives, also where the row is known to have been granted
later; the row remembers that, so that no generation is ever given twice.
Invariants: only rows that are not free remember a later grant, and it is above the generation they have.
Threading: the owner thread of the table.
"""

from array import array
from collections.abc import Sequence
from typing import Final, final

import numpy as np

from blockyard.core.row_batch import RowBatch
from blockyard.core.vocabulary import BlockId

_ONE: Final = np.uint64(1)


@final
class RowGenerations:
    """Column of generations, and the later grants that some rows remember."""

    __slots__ = ("_view", "column", "latest")

    def __init__(self, capacity: int) -> None:
        """No row was ever granted."""
        self.column = array("Q", (0,)) * capacity
        self._view = np.frombuffer(self.column, dtype=np.uint64)
        self.latest: dict[BlockId, int] = {}

    def rise(self, batch: RowBatch) -> None:
        """These rows are granted."""
        if batch.span:
            self._view[batch.span] += _ONE
            return
        column = self.column
        for row in batch.rows:
            column[row] += 1

    def set_stored(self, row: BlockId, generation: int) -> None:
        """A free row gets the block that its header names."""
        if self.column[row] > generation:
            self.latest[row] = self.column[row]
        self.column[row] = generation

    def set_free(self, row: BlockId, generation: int) -> None:
        """The header of a free row names this grant: the next one is above it."""
        self.column[row] = max(self.column[row], generation)

    def remember(self, row: BlockId, generation: int) -> None:
        """A later grant of a row is known than the one it has: no generation up to it is given again."""
        if generation > self.column[row]:
            self.latest[row] = max(self.latest.get(row, 0), generation)

    def restore(self, rows: Sequence[BlockId]) -> None:
        """What lived in these rows has ended: they have the generations of their latest grants again."""
        if self.latest:
            for row in rows:
                self.column[row] = max(self.column[row], self.latest.pop(row, 0))
