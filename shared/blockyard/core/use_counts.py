"""How often blocks were wanted lately: what a threshold for writing them to disk compares.

The first sight of a block counts 1, each further one doubles it, and every ten minutes take 1 off. So a block that is
wanted twice in short order counts, one that was wanted twice in a day does not, and one that was hot stays counted for
hours. (Numbers of the disk filter of NVIDIA Dynamo KVBM.)
Invariants: at most ``limit`` blocks are remembered, those seen longest ago go first; a count is between 1 and
``MOST_COUNTED``.
Threading: owned by one thread. Time comes from the injected clock.
"""

from collections.abc import Iterable
from itertools import islice
from typing import Final, final

from blockyard.core.clock import Clock
from blockyard.core.vocabulary import ContentKey, GroupId

BlockKey = tuple[ContentKey, GroupId]

DECAY_SECONDS: Final = 600.0
MOST_COUNTED: Final = 64


@final
class UseCounts:
    """Counts of the blocks seen lately."""

    __slots__ = ("_clock", "_limit", "_seen")

    def __init__(self, clock: Clock, limit: int = 1_000_000) -> None:
        """Start without blocks; remember at most ``limit``."""
        self._clock = clock
        self._limit = limit
        self._seen: dict[BlockKey, tuple[int, float]] = {}
        """Count at a time; the block seen last is last."""

    def __len__(self) -> int:
        """Blocks remembered."""
        return len(self._seen)

    def saw(self, blocks: Iterable[BlockKey]) -> None:
        """These blocks were wanted, once per occurrence."""
        now = self._clock.monotonic()
        for block in blocks:
            count, since = self._decayed(block, now)
            self._seen.pop(block, None)
            self._seen[block] = (min(2 * count, MOST_COUNTED), since) if count else (1, now)
        for oldest in list(islice(self._seen, max(len(self._seen) - self._limit, 0))):
            del self._seen[oldest]

    def count(self, block: BlockKey) -> int:
        """Present count of a block; 0 where it was not seen lately."""
        return self._decayed(block, self._clock.monotonic())[0]

    def _decayed(self, block: BlockKey, now: float) -> tuple[int, float]:
        count, since = self._seen.get(block, (0, now))
        steps = int((now - since) / DECAY_SECONDS)
        return max(count - steps, 0), since + steps * DECAY_SECONDS
