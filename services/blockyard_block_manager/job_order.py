"""A transfer job as the decisions see it: what to move from where to where, and how it ended.

Invariants: source and target columns are aligned with the names, pages k to one; an order ends exactly once, with one
status per item.
Threading: values, and one mutable record owned by the event loop of the service.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, unique
from typing import Final

from blockyard.core.block_name import BlockName
from blockyard.core.events import BlockScope
from blockyard.core.jobs import destination_tier
from blockyard.core.vocabulary import IdentityDigest, ItemStatus, JobKind, JobSeq, Lane, Tier, WorkerRole
from blockyard.runtime.spans import NO_SPAN, Span
from blockyard.wire.worker_channel import Pack
from blockyard_block_manager.causes import NO_CAUSE, Cause

NO_SCOPE: Final = BlockScope(IdentityDigest(bytes(32)))
"""Scope of jobs that name slots only."""


@dataclass(frozen=True, slots=True)
class Places:
    """Aligned columns of places and the mark each must carry: a generation (G2, G3) or a guard (G1).

    In engine memory a place is a page: k of them per item, item by item.
    """

    indexes: tuple[int, ...]
    marks: tuple[int, ...] = ()


NOWHERE: Final = Places(())


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOrder:
    """What a worker is to do."""

    role: WorkerRole
    kind: JobKind
    lane: Lane
    ttl_ms: int
    count: int
    names: tuple[BlockName, ...] = ()
    scope: BlockScope = NO_SCOPE
    source: Places = NOWHERE
    target: Places = NOWHERE
    mapping: int = 0
    packs: tuple[Pack, ...] = ()
    free_tier: int = 0
    bad: bool = False
    cause: Cause = NO_CAUSE
    """What it is carried out for, in traces."""

    @property
    def target_tier(self) -> Tier | None:
        """Tier whose slots the job writes; None for engine memory and the object store."""
        return destination_tier(self.kind, self.free_tier)


@unique
class OrderEnd(Enum):
    """How an order ended as a whole."""

    RESULT = "result"
    """The worker reported; the statuses are its own."""
    NEVER_RAN = "never_ran"
    """It was not handed over, or the worker said that it never will run: nothing was touched."""
    LOST = "lost"
    """The life of the worker that had it is over: what it did is unknown."""


@dataclass(frozen=True, slots=True)
class OrderReport:
    """End of an order, told to its owner exactly once.

    Attributes:
        end: how it ended as a whole.
        statuses: one per item.
        cut_short: the worker reported, but the job expired or was cancelled before every item was looked at.
        index_pending: stored objects are not in the shared index yet.
    """

    end: OrderEnd
    statuses: tuple[ItemStatus, ...]
    cut_short: bool = False
    index_pending: bool = False


SettledCallback = Callable[[OrderReport], None]


@dataclass(slots=True, eq=False)
class OpenOrder:
    """An order that has not ended; compared by identity."""

    order: JobOrder
    opened_at: float
    deadline: float
    on_settled: SettledCallback
    seq: JobSeq | None = None
    """Number of the job once it may have reached the worker."""
    span: Span = NO_SPAN
