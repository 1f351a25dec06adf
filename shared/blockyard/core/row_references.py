"""References to the rows of one table: how many holders pin each.

Threading: the owner thread of the table.
"""

from array import array
from typing import Final, final

import numpy as np

from blockyard.core.row_batch import RowBatch

_UNIT: Final = np.uint32(1)
_NOTHING: Final = RowBatch([])
_TEMPLATE_ROWS: Final = 4_096
_NONE: Final = array("I", (0,)) * _TEMPLATE_ROWS
_ONE: Final = array("I", (1,)) * _TEMPLATE_ROWS


@final
class RowReferences:
    """Four bytes per row."""

    __slots__ = ("_view", "column")

    def __init__(self, capacity: int) -> None:
        """Nobody holds anything."""
        self.column = array("I", (0,)) * capacity
        self._view = np.frombuffer(self.column, dtype=np.uint32)

    def start(self, batch: RowBatch) -> None:
        """These rows, each named once, have one holder now."""
        column = self.column
        if batch.span:
            column[batch.span] = _each(_ONE, batch)
        else:
            for row in batch.rows:
                column[row] = 1

    def add(self, batch: RowBatch) -> RowBatch:
        """One more reference per occurrence; returns the rows that had none, each once."""
        column, span = self.column, batch.span
        if span and column[span] == _each(_NONE, batch):
            column[span] = _each(_ONE, batch)
            return batch
        if span and not column[span].count(0):
            self._view[span] += _UNIT
            return _NOTHING
        woken = []
        for row in batch.rows:
            count = column[row]
            if not count:
                woken.append(row)
            column[row] = count + 1
        return RowBatch(woken)

    def drop(self, batch: RowBatch) -> RowBatch:
        """One reference less per occurrence, of which there are as many; returns the rows that have none now."""
        column, span = self.column, batch.span
        if span and column[span] == _each(_ONE, batch):
            column[span] = _each(_NONE, batch)
            return batch
        if span and not column[span].count(1):
            self._view[span] -= _UNIT
            return _NOTHING
        idle = []
        for row in batch.rows:
            left = column[row] - 1
            column[row] = left
            if not left:
                idle.append(row)
        return batch if len(idle) == batch.size else RowBatch(idle)


def _each(count: "array[int]", batch: RowBatch) -> "array[int]":
    """As many of the template as the batch has rows."""
    rows = batch.size
    return count[:rows] if rows <= _TEMPLATE_ROWS else count[:1] * rows
