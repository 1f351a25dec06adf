"""References to the rows of one table: how many holders pin each.

Threading: the owner thread of the table.
"""

from array import array
from typing import final

from blockyard.core.row_batch import RowBatch


@final
class RowReferences:
    """Four bytes per row."""

    __slots__ = ("column",)

    def __init__(self, capacity: int) -> None:
        """Nobody holds anything."""
        self.column = array("I", (0,)) * capacity

    def start(self, batch: RowBatch) -> None:
        """These rows, each named once, have one holder now."""
        column = self.column
        if batch.span:
            column[batch.span] = _each(1, batch)
        else:
            for row in batch.rows:
                column[row] = 1

    def add(self, batch: RowBatch) -> RowBatch:
        """One more reference per occurrence; returns the rows that had none, each once."""
        column = self.column
        if batch.span and column[batch.span] == _each(0, batch):
            column[batch.span] = _each(1, batch)
            return batch
        woken = []
        for row in batch.rows:
            count = column[row]
            if not count:
                woken.append(row)
            column[row] = count + 1
        return RowBatch(woken)

    def drop(self, batch: RowBatch) -> RowBatch:
        """One reference less per occurrence, of which there are as many; returns the rows that have none now."""
        column = self.column
        if batch.span and column[batch.span] == _each(1, batch):
            column[batch.span] = _each(0, batch)
            return batch
        idle = []
        for row in batch.rows:
            left = column[row] - 1
            column[row] = left
            if not left:
                idle.append(row)
        return batch if len(idle) == len(batch) else RowBatch(idle)


def _each(count: int, batch: RowBatch) -> "array[int]":
    return array("I", (count,)) * len(batch)
