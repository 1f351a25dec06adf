"""What a consumer of events is told once, and what can be read from it: limits, state, totals.

Threading: values; the totals belong to the thread of their consumer.
"""

from dataclasses import dataclass
from enum import Enum, unique
from typing import Final, final


@unique
class ConsumerState(Enum):
    """How a publisher is followed."""

    EMPTY = "empty"
    """Nothing of this epoch is known yet."""
    LIVE = "live"
    RECOVERING = "recovering"


@final
@dataclass(frozen=True, slots=True)
class ConsumerLimits:
    """Times in seconds, and bounds."""

    hold_seconds: float = 0.5
    keep_seconds: float = 60.0
    """How long the set of a publisher without a lease is followed."""
    answer_seconds: float = 2.0
    """After this a question is asked again, then after twice as long, and so on."""
    most_backoff_seconds: float = 30.0
    buffer_weight: int = 262_144
    """Most events and blocks that wait for those before them."""
    replay_events: int = 4_096
    """Where more are missing, a snapshot is asked for at once."""

    def backoff_seconds(self, tries: int) -> float:
        """How long to wait after so many tries that failed."""
        return min(self.answer_seconds * 2.0 ** min(tries, 16), self.most_backoff_seconds)


DEFAULT_LIMITS: Final = ConsumerLimits()


@final
@dataclass(slots=True)
class ConsumerCounts:
    """Totals since the start."""

    repeated: int = 0
    stale: int = 0
    """Messages of an epoch that has ended."""
    foreign: int = 0
    """Messages under the name of another publisher."""
    gaps: int = 0
    """Gaps that did not close by themselves, and drops that were declared."""
    mismatches: int = 0
    """Heartbeats that told of another set."""
    overflows: int = 0
    recoveries: int = 0
    """One for each of the three above."""
