"""What travels between the halves of the connector in one step: plain values, of which the engine knows nothing.

Threading: frozen values, except ``StepReport``, which its rank builds.
"""

from dataclasses import dataclass, field
from typing import final


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class StepPlan:
    """From the scheduler half to every rank, in every step; each rank echoes the ends to the engine once."""

    step: int = 0
    """Number of the step that ranks report when its writes are complete; 0 where nothing waits for it."""
    released: frozenset[str] = frozenset()
    """Finished requests whose blocks were held for their stores and need not be any longer."""
    received: frozenset[str] = frozenset()
    """Requests whose loads ended, failed ones included."""
    failed: frozenset[str] = frozenset()
    """Those of the received ones that have to be computed from the start (several KV groups)."""
    invalid: frozenset[int] = frozenset()
    """Engine blocks that were not loaded (one KV group)."""
    waiting: bool = False
    """Nothing to compute, but answers of the node are awaited."""

    @property
    def is_empty(self) -> bool:
        """Whether a rank has nothing to do for it."""
        return not (self.step or self.released or self.received or self.waiting)


NOTHING = StepPlan()


@final
@dataclass(slots=True)
class StepReport:
    """From the ranks to the scheduler half: per step how many have completed it, and the longest time it took."""

    ranks: dict[int, int] = field(default_factory=dict)
    seconds: dict[int, float] = field(default_factory=dict)

    def completed(self, step: int, seconds: float) -> None:
        """One rank has completed a step."""
        self.ranks[step] = self.ranks.get(step, 0) + 1
        self.seconds[step] = max(seconds, self.seconds.get(step, 0.0))

    def joined(self, other: "StepReport") -> "StepReport":
        """Reports of both."""
        ranks, seconds = dict(self.ranks), dict(self.seconds)
        for step, count in other.ranks.items():
            ranks[step] = ranks.get(step, 0) + count
            seconds[step] = max(other.seconds[step], seconds.get(step, 0.0))
        return StepReport(ranks, seconds)
