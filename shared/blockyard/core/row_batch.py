"""Rows that one call changes together.

Rows that were granted together mostly lie side by side, and columns of such rows change by slices instead of a loop.
Invariants: where ``span`` is set, it is exactly ``rows``, in ascending order and each once.
Threading: values.
"""

from collections.abc import Sequence
from typing import Final, Self, cast, final

from blockyard.core.vocabulary import BlockId

_FEWEST: Final = 8
"""Below this many rows loops are as fast."""


@final
class RowBatch:
    """Rows in the order of a call, and the slice that they are, if they are one."""

    __slots__ = ("rows", "span")

    def __init__(self, rows: list[BlockId]) -> None:
        """Keep ``rows``; nobody may change the list afterwards."""
        self.rows = rows
        self.span: slice | None = None
        count = len(rows)
        if count >= _FEWEST:
            first = rows[0]
            if rows[-1] - first == count - 1 and rows == list(range(first, first + count)):
                self.span = slice(first, first + count)

    @classmethod
    def of_run(cls, first: BlockId, count: int) -> Self:
        """The rows from ``first`` on."""
        batch = cls([])
        batch.span = slice(first, first + count)
        batch.rows = cast("list[BlockId]", list(range(first, first + count)))
        return batch

    @property
    def ordered(self) -> Sequence[BlockId]:
        """The rows as an ascending ``range`` where they are a slice, else as their list."""
        span = self.span
        return self.rows if span is None else cast("Sequence[BlockId]", range(span.start, span.stop))

    def followed_by(self, other: "RowBatch") -> Sequence[BlockId]:
        """These rows and then others; a ``range`` where all of them are a slice."""
        if not self.rows:
            return other.ordered
        if self.span and other.span and self.span.stop == other.span.start:
            return cast("Sequence[BlockId]", range(self.span.start, other.span.stop))
        return self.rows + other.rows

    def __len__(self) -> int:
        """Number of rows, repeats included."""
        return len(self.rows)
