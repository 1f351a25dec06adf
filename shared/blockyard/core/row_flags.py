"""Flags of the rows of one table: exceptions that hold for few rows, and cost the others one comparison per call.

Invariants: ``flagged`` is the number of rows with any flag; rows that nobody uses have none.
Threading: the owner thread of the table.
"""

from collections.abc import Iterable
from typing import final

import numpy as np
import numpy.typing as npt

from blockyard.core.row_batch import RowBatch
from blockyard.core.vocabulary import BlockId


@final
class RowFlags:
    """One byte of flags per row; the bits are named in ``core.states``."""

    __slots__ = ("column", "flagged")

    def __init__(self, capacity: int) -> None:
        """No flag is set."""
        self.column = bytearray(capacity)
        self.flagged = 0

    def any_of(self, batch: RowBatch) -> bool:
        """Whether one of these rows has any flag; who asks often asks first whether any row has one."""
        span = batch.span
        if span:
            return self.column.count(0, span.start, span.stop) != batch.size
        return any(map(self.column.__getitem__, batch.rows))

    def count(self, flag: int) -> int:
        """Rows with this flag."""
        if not self.flagged:
            return 0
        return int(np.count_nonzero(np.frombuffer(self.column, dtype=np.uint8) & flag))

    def set(self, rows: Iterable[BlockId], flag: int) -> None:
        """Set a flag."""
        column = self.column
        for row in rows:
            self.flagged += not column[row]
            column[row] |= flag

    def unset(self, rows: Iterable[BlockId], flag: int) -> None:
        """Take a flag away."""
        column = self.column
        for row in rows:
            if column[row] & flag:
                column[row] &= ~flag
                self.flagged -= not column[row]

    def clear(self, rows: Iterable[BlockId]) -> None:
        """Take all flags away."""
        if self.flagged:
            column = self.column
            for row in rows:
                self.flagged -= column[row] > 0
                column[row] = 0

    def set_where(self, chosen: npt.NDArray[np.bool_], flag: int) -> None:
        """As ``set``, for the rows chosen here of all."""
        column = np.frombuffer(self.column, dtype=np.uint8)
        self.flagged += int(np.count_nonzero(chosen & (column == 0)))
        column[chosen] |= flag

    def clear_where(self, chosen: npt.NDArray[np.bool_]) -> None:
        """As ``clear``, for the rows chosen here of all."""
        if self.flagged:
            column = np.frombuffer(self.column, dtype=np.uint8)
            self.flagged -= int(np.count_nonzero(column[chosen]))
            column[chosen] = 0
