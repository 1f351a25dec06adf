"""Blocks whose copies ended through no fault of theirs: each has another turn after a pause, a few times.

::

    failed ──► rests ──pause is over: due──► asked about anew ──► written, or it left: forgotten
       └─ too often: forgotten

Invariants: a block has at most ``TRIES`` turns beyond its first before it is forgotten; a block that was forgotten
counts from the start.
Threading: owned by one thread.
"""

from collections.abc import Iterable
from itertools import takewhile
from typing import Final, final

from blockyard.core.clock import Clock
from blockyard.core.postponed_blocks import BlockKey

TRIES: Final = 3
PAUSE_SECONDS: Final = 1.0


@final
class CopyRetries:
    """Blocks that rest until their next turn, and how many each has had."""

    __slots__ = ("_clock", "_resting", "_turns")

    def __init__(self, clock: Clock) -> None:
        """Start empty."""
        self._clock: Final = clock
        self._turns: Final[dict[BlockKey, int]] = {}
        self._resting: Final[dict[BlockKey, float]] = {}
        """When the pause ends, the earliest first."""

    @property
    def resting(self) -> list[BlockKey]:
        """Blocks that wait for the end of their pauses."""
        return list(self._resting)

    def __contains__(self, block: object) -> bool:
        """Whether a block waits for the end of its pause."""
        return block in self._resting

    def failed(self, blocks: Iterable[BlockKey]) -> None:
        """The copies of these blocks were not made."""
        ends_at = self._clock.monotonic() + PAUSE_SECONDS
        for block in blocks:
            turns = self._turns.pop(block, 0) + 1
            self._resting.pop(block, None)
            if turns <= TRIES:
                self._turns[block], self._resting[block] = turns, ends_at

    def due(self) -> list[BlockKey]:
        """Take the blocks whose pauses are over."""
        now = self._clock.monotonic()
        due = list(takewhile(lambda block: self._resting[block] <= now, self._resting))
        for block in due:
            del self._resting[block]
        return due

    def forget(self, blocks: Iterable[BlockKey]) -> None:
        """These blocks are written, or gone."""
        for block in blocks:
            self._turns.pop(block, None)
            self._resting.pop(block, None)
