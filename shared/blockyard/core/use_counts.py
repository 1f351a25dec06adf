"""How often blocks were wanted lately: what a threshold for writing them to disk compares.

The first sight of a block counts 1, each further one doubles it, and every ten minutes take 1 off. So a block that is
wanted twice in short order counts, one that was wanted twice in a day does not, and one that was hot stays counted for
hours. (Numbers of the disk filter of NVIDIA Dynamo KVBM.) A sketch of frequencies (``core.frequency``) cannot say that:
its counts fall with the number of uses and not with time, and are too high where keys meet.

::

    seen once ──again within ten minutes──► seen again ──count is 0──► forgotten
        └─ ten minutes: forgotten

Blocks that were seen once are kept apart: most are never seen again, and all of them are forgotten on time, in the
order in which they came.
Invariants: no block is in both parts; at most ``limit`` blocks are remembered, and of those that were seen once the
oldest give way first; a count is between 1 and ``MOST_COUNTED``.
Threading: owned by one thread. Time comes from the injected clock.
"""

from collections.abc import Iterable
from typing import Final, final

from blockyard.core.clock import Clock
from blockyard.core.errors import KernelError
from blockyard.core.vocabulary import ContentKey, GroupId
from blockyard.core.whole_numbers import is_whole

BlockKey = tuple[ContentKey, GroupId]

DECAY_SECONDS: Final = 600.0
MOST_COUNTED: Final = 64
MOST_REMEMBERED: Final = 262_144
"""Blocks, at up to 290 bytes each."""


@final
class UseCounts:
    """Counts of the blocks seen lately."""

    __slots__ = ("_again", "_clock", "_limit", "_once")

    def __init__(self, clock: Clock, limit: int = MOST_REMEMBERED) -> None:
        """Start without blocks; remember at most ``limit``, one at least."""
        if not is_whole(limit, least=1):
            raise KernelError("counts of uses remember blocks", limit=str(limit))
        self._clock = clock
        self._limit = limit
        self._once: dict[BlockKey, float] = {}
        """When; in that order."""
        self._again: dict[BlockKey, tuple[int, float]] = {}
        """Count at a time; the block seen last is last."""

    def __len__(self) -> int:
        """Blocks remembered."""
        return len(self._once) + len(self._again)

    def saw(self, blocks: Iterable[BlockKey]) -> None:
        """These blocks were wanted, once per occurrence."""
        now = self._clock.monotonic()
        self._forget_expired(now)
        for block in blocks:
            count, since = self._decayed(block, now)
            self._once.pop(block, None)
            self._again.pop(block, None)
            if count:
                self._again[block] = min(2 * count, MOST_COUNTED), since
            else:
                self._once[block] = now
            if len(self) > self._limit:
                part = self._once or self._again
                del part[next(iter(part))]

    def count(self, block: BlockKey) -> int:
        """Present count of a block; 0 where it was not seen lately."""
        return self._decayed(block, self._clock.monotonic())[0]

    def _decayed(self, block: BlockKey, now: float) -> tuple[int, float]:
        once = self._once.get(block)
        count, since = (1, once) if once is not None else self._again.get(block, (0, now))
        steps = int((now - since) / DECAY_SECONDS)
        return max(count - steps, 0), since + steps * DECAY_SECONDS

    def _forget_expired(self, now: float) -> None:
        """Drop the oldest of both parts as far as they count nothing any more."""
        for part in (self._once, self._again):
            while part and not self._decayed(oldest := next(iter(part)), now)[0]:
                del part[oldest]
