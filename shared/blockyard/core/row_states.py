"""States of the rows of one table, and how many rows are in each.

Invariants: ``counts`` is what counting the column gives.
Threading: the owner thread of the table.
"""

from typing import Final, final

import numpy as np
import numpy.typing as npt

from blockyard.core.errors import BlockStateError
from blockyard.core.row_batch import RowBatch
from blockyard.core.states import FREE, RowState

_TEMPLATE_ROWS: Final = 4_096
_TEMPLATES: Final = tuple(bytearray((state,)) * _TEMPLATE_ROWS for state in RowState)


@final
class RowStates:
    """One byte per row."""

    __slots__ = ("column", "counts")

    def __init__(self, capacity: int) -> None:
        """All rows are FREE."""
        self.column = bytearray(capacity)
        self.counts = [0] * len(RowState)
        self.counts[FREE] = capacity

    def require(self, batch: RowBatch, wanted: int) -> None:
        """Raise ``BlockStateError`` unless every row is in state ``wanted``."""
        column, span = self.column, batch.span
        if span and column.count(wanted, span.start, span.stop) == batch.size:
            return
        for row in batch.rows:
            if column[row] != wanted:
                raise BlockStateError(block=row, state=RowState(column[row]).name, needed=RowState(wanted).name)

    def change(self, batch: RowBatch, before: int, after: int) -> None:
        """Move rows, each named once, from state ``before``, in which they must be."""
        column, count = self.column, batch.size
        if batch.span:
            template = _TEMPLATES[after]
            column[batch.span] = template[:count] if count <= _TEMPLATE_ROWS else template[:1] * count
        else:
            for row in batch.rows:
                column[row] = after
        self.counts[before] -= count
        self.counts[after] += count

    def change_where(self, chosen: npt.NDArray[np.bool_], before: int, after: int) -> None:
        """As ``change``, for the rows chosen here of all."""
        np.frombuffer(self.column, dtype=np.uint8)[chosen] = after
        count = int(np.count_nonzero(chosen))
        self.counts[before] -= count
        self.counts[after] += count
