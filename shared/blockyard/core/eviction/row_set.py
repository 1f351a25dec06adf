"""Which rows an order holds: a batch that does not fit is refused before anything of it is done.

Invariants: ``len`` is the number of marked rows. Threading: the owner thread of the table.
"""

from collections.abc import Iterator, Sequence
from typing import final

from blockyard.core.errors import KernelError
from blockyard.core.vocabulary import BlockId


@final
class RowSet:
    """A set of rows 0 to ``capacity - 1``, one byte each."""

    __slots__ = ("_marks", "_size")

    def __init__(self, capacity: int) -> None:
        """Start empty."""
        self._marks = bytearray(capacity)
        self._size = 0

    def __len__(self) -> int:
        """Number of rows."""
        return self._size

    def __iter__(self) -> Iterator[BlockId]:
        """Rows in ascending order."""
        return (BlockId(row) for row, mark in enumerate(self._marks) if mark)

    def __contains__(self, row: BlockId) -> bool:
        """Whether the row is in the set."""
        return bool(self._marks[row])

    def enter(self, rows: Sequence[BlockId]) -> None:
        """Add rows.

        Raises:
            KernelError: one of them is here already, or named twice; nothing changed.
        """
        marks = self._marks
        if any(map(marks.__getitem__, rows)):
            raise KernelError("a row is in the order already", rows=len(rows))
        self._refuse_repeats(rows)
        for row in rows:
            marks[row] = 1
        self._size += len(rows)

    def leave(self, rows: Sequence[BlockId]) -> None:
        """Take rows out.

        Raises:
            KernelError: one of them is not here, or named twice; nothing changed.
        """
        marks = self._marks
        if not all(map(marks.__getitem__, rows)):
            raise KernelError("a row is not in the order", rows=len(rows))
        self._refuse_repeats(rows)
        for row in rows:
            marks[row] = 0
        self._size -= len(rows)

    def violations(self) -> list[str]:
        """What contradicts the invariants, for checks."""
        marked = sum(self._marks)
        return [f"{self._size} rows are said to be in the order, and {marked} are"] if marked != self._size else []

    @staticmethod
    def _refuse_repeats(rows: Sequence[BlockId]) -> None:
        if len(set(rows)) != len(rows):
            raise KernelError("a row is named twice", rows=len(rows))
