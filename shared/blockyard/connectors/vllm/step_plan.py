"""What travels between the halves of the connector in one step: plain values, of which the engine knows nothing.

Threading: frozen values, except ``StepReport``, which its rank builds.
"""

from dataclasses import dataclass, field
from typing import final

from blockyard.connectors.rank_copies import RowCopy
from blockyard.core.vocabulary import EngineBlockId, ItemStatus


@final
@dataclass(frozen=True, slots=True)
class CopyOrder:
    """Rows that every rank copies, and says so when it has (executor ``engine``)."""

    number: int
    rows: tuple[RowCopy, ...]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class CopyPlan:
    """What ranks that copy by themselves do in one step."""

    attachments: tuple[int, ...] = ()
    """Per rank the attachment to the node (see ``StepReport``) that the slots of these orders were given for."""
    ours: tuple[EngineBlockId, ...] = ()
    """Engine blocks allocated since the last step, for compute and for our loads."""
    others: tuple[EngineBlockId, ...] = ()
    """And those that another connector may be about to fill."""
    stores: tuple[CopyOrder, ...] = ()
    """Rows that are complete when this step is."""
    loads: tuple[CopyOrder, ...] = ()
    stop: bool = False
    """End all copies before this step begins, and make no more."""


NO_COPIES = CopyPlan()


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
    copies: CopyPlan = NO_COPIES

    @property
    def is_empty(self) -> bool:
        """Whether a rank has nothing to do for it."""
        return not (self.step or self.released or self.received or self.waiting or self.copies != NO_COPIES)


NOTHING = StepPlan()


@final
@dataclass(slots=True)
class StepReport:
    """From the ranks to the scheduler half: per step how many have completed it, and the longest time it took."""

    ranks: dict[int, int] = field(default_factory=dict)
    seconds: dict[int, float] = field(default_factory=dict)
    attachments: dict[int, int] = field(default_factory=dict)
    """Ranks that attached to the node anew: which attachment of theirs it is, counted from 1."""
    copies: dict[int, dict[int, tuple[ItemStatus, ...]]] = field(default_factory=dict)
    """Orders that have ended, and in which ranks, with one status per row."""

    @property
    def is_empty(self) -> bool:
        """Whether it says nothing."""
        return not (self.ranks or self.attachments or self.copies)

    def completed(self, step: int, seconds: float) -> None:
        """One rank has completed a step."""
        self.ranks[step] = self.ranks.get(step, 0) + 1
        self.seconds[step] = max(seconds, self.seconds.get(step, 0.0))

    def copied(self, rank: int, order: int, statuses: tuple[ItemStatus, ...]) -> None:
        """One rank has ended an order."""
        self.copies.setdefault(order, {})[rank] = statuses

    def joined(self, other: "StepReport") -> "StepReport":
        """Reports of both."""
        ranks, seconds = dict(self.ranks), dict(self.seconds)
        for step, count in other.ranks.items():
            ranks[step] = ranks.get(step, 0) + count
            seconds[step] = max(other.seconds[step], seconds.get(step, 0.0))
        copies = {order: dict(ended) for order, ended in self.copies.items()}
        for order, ended in other.copies.items():
            copies.setdefault(order, {}).update(ended)
        return StepReport(ranks, seconds, self.attachments | other.attachments, copies)
