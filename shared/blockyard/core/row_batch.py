"""Rows that one call changes together.

Rows that were granted together mostly lie side by side, and columns of such rows change by slices instead of a loop.
Invariants: where ``span`` is set, it is exactly ``rows``, in ascending order and each once.
Threading: values.
"""

import operator
from collections.abc import Sequence
from typing import Final, Self, cast, final

from blockyard.core.vocabulary import BlockId

_FAR: Final = 0
_ONE: Final = (1).__eq__
_WORTH_A_SLICE: Final = 8


@final
class RowBatch:
    """Rows in the order of a call, and the slice that they are, if they are one."""

    __slots__ = ("_rows", "is_chain", "size", "span")

    def __init__(self, rows: list[BlockId]) -> None:
        """Keep ``rows``; nobody may change the list afterwards.

        ``size`` is the number of rows, repeats included, for those who ask often.
        """
        self._rows: list[BlockId] | None = rows
        self.span: slice | None = None
        self.is_chain = False
        """Whether it is known that each row holds the block before that of the next one; for whoever names the rows."""
        count = self.size = len(rows)
        if count:
            first = rows[0]
            if rows[-1] - first == count - 1 and rows == list(range(first, first + count)):
                self.span = slice(first, first + count)

    @classmethod
    def of_run(cls, first: int, count: int) -> Self:
        """The rows from ``first`` on, of which there is one at least; they are listed when somebody asks for that."""
        batch = cls.__new__(cls)
        batch._rows, batch.size, batch.span = None, count, slice(first, first + count)  # noqa: SLF001 - of this class
        batch.is_chain = False
        return batch

    @property
    def rows(self) -> list[BlockId]:
        """All rows."""
        rows = self._rows
        if rows is None:
            rows = self._rows = list(self.ordered)
        return rows

    @property
    def ordered(self) -> Sequence[BlockId]:
        """The rows as an ascending ``range`` where they are a slice, else as their list."""
        span = self.span
        return self.rows if span is None else cast("Sequence[BlockId]", range(span.start, span.stop))

    def behind(self, others: Sequence[BlockId]) -> Sequence[BlockId]:
        """Others and then these rows; a ``range`` where all of them are a slice."""
        span = self.span
        if span and isinstance(others, range) and others.stop == span.start:
            return cast("Sequence[BlockId]", range(others.start, span.stop))
        return [*others, *self.rows]

    def __len__(self) -> int:
        """Number of rows, repeats included."""
        return self.size


def runs_of(rows: Sequence[BlockId]) -> list[tuple[BlockId, int]]:
    """Maximal runs of ascending neighbours, in order: the first row of each, and the end behind its last row."""
    if not rows:
        return []
    runs = []
    near = _near(rows)
    start, end = 0, near.find(_FAR)
    while end >= 0:
        runs.append((rows[start], rows[end] + 1))
        start, end = end + 1, near.find(_FAR, end + 1)
    runs.append((rows[start], rows[-1] + 1))
    return runs


def long_runs_of(rows: Sequence[BlockId]) -> list[tuple[BlockId, int]]:
    """As ``runs_of`` where the runs are long enough for slices to be faster than a loop over the rows; else nothing."""
    if len(rows) < _WORTH_A_SLICE or _near(rows).count(_FAR) >= len(rows) // _WORTH_A_SLICE:
        return []
    return runs_of(rows)


def _near(rows: Sequence[BlockId]) -> bytes:
    """Per row but the first, whether it is the one above the row named before it."""
    return bytes(map(_ONE, map(operator.sub, rows[1:], rows)))
