"""A reserve that is refilled in one go: work starts when it has fallen below one mark and ends at a higher one.

::

    level < low ──► refilling ──level >= high──► resting

Between the marks nothing changes, so that work comes in batches and not block by block.
Invariants: a resting reserve between its marks asks for nothing; what is asked for never lifts it above the high mark,
nor above what is in demand.
Threading: owned by one thread.
"""

from dataclasses import dataclass
from typing import Self, final

from blockyard.core.errors import KernelError
from blockyard.core.whole_numbers import is_some_whole, is_whole


@final
@dataclass(frozen=True, slots=True)
class Watermarks:
    """Marks of a reserve, in blocks.

    Raises:
        KernelError: ``low`` is below one or above ``high``.
    """

    low: int
    high: int

    def __post_init__(self) -> None:
        """Check the order."""
        if not (is_some_whole(self.high) and is_whole(self.low, 1, self.high)):
            raise KernelError("a low mark is between one and the high mark", low=str(self.low), high=str(self.high))

    @classmethod
    def of(cls, capacity: int, share: int, least: int) -> Self:
        """Marks at 1/``share`` of a tier and at half of that: at least ``least`` blocks, at most half of the tier."""
        high = min(max(least, capacity // share), max(1, capacity // 2))
        return cls(max(1, high // 2), high)


@final
class Reserve:
    """Whether a reserve is being refilled."""

    __slots__ = ("_marks", "_refilling")

    def __init__(self, marks: Watermarks) -> None:
        """Start at rest."""
        self._marks = marks
        self._refilling = False

    @property
    def refilling(self) -> bool:
        """Whether the high mark is still to be reached."""
        return self._refilling

    def wanted(self, level: int, demand: int) -> int:
        """How many blocks to add now.

        Args:
            level: blocks in the reserve, those on their way to it included.
            demand: blocks that somebody waits for; the reserve never needs to hold more.
        """
        low, high = min(self._marks.low, demand), min(self._marks.high, demand)
        if level >= high:
            self._refilling = False
        elif level < low:
            self._refilling = True
        return high - level if self._refilling else 0
