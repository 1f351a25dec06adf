"""What the block-manager counts, as verbs of its own words over the metrics of the chassis.

Threading: any thread may count; the decisions do so on the event loop.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from enum import StrEnum, unique
from typing import Final

from blockyard.core.arena_writers import WriterState
from blockyard.core.jobs import Refusal
from blockyard.core.miss_reason import MissReason
from blockyard.core.offload_plan import OffloadRefusal
from blockyard.core.onboard_plan import LoadOutcome
from blockyard.core.pool import BlockPool
from blockyard.core.states import RowState
from blockyard.core.vocabulary import Availability, ItemStatus, JobKind, Lane, Tier, WorkerRole
from blockyard.runtime.telemetry import LookupOutcome, Metrics
from blockyard_block_manager.job_order import OrderEnd, OrderReport

_NO_TIER: Final = "none"
"""Label of blocks that no tier held."""


@unique
class DropReason(StrEnum):
    """Why work was given up, as a label."""

    JOB_QUEUE = "job_queue_full"
    STORE_BACKLOG = "store_backlog_full"
    G3_QUEUE = "g3_queue_full"
    GONE_FROM_G2 = "gone_from_g2"
    """The block left G2 before its copy to a lower tier began."""
    CLEARED = "cleared"
    UNKNOWN_RESULT = "unknown_result"
    REFUSED_JOB = "refused_job"
    LATE_DOOMED = "late_doomed"
    """A copy arrived after its destination was cleared."""


@unique
class RankBlocks(StrEnum):
    """What slots that ranks of engines use themselves are for, as a label."""

    OPEN = "open"
    """Granted: ranks may write them."""
    QUARANTINED = "quarantined"
    """Granted before, and waiting for the end of those who may still write them."""
    STAGED = "staged"
    """Pinned while ranks read them, or may still do so."""


@unique
class StuckWorkerEnd(StrEnum):
    """What was done about a worker that leaves the last hop of loads open, as a label."""

    KILLED = "killed"
    OUT_OF_REACH = "out_of_reach"
    """Its process cannot be seen from here, or not be ended."""


class ManagerMetrics:
    """Counters of this service."""

    def __init__(self, metrics: Metrics) -> None:
        """Count into ``metrics``, where everything that may be counted shows from the start.

        The first of a kind is told apart from none only if there was a 0 before.
        """
        self._metrics = metrics
        for reason in DropReason:
            if reason is not DropReason.REFUSED_JOB:
                metrics.dropped.labels(reason)
        for refusal in Refusal:
            metrics.dropped.labels(f"{DropReason.REFUSED_JOB}_{refusal}")
        for rule in OffloadRefusal:
            metrics.not_written_blocks.labels(rule)
        for what in StuckWorkerEnd:
            metrics.stuck_workers.labels(what)
        for tier in (Tier.G2, Tier.G3):
            metrics.evicted_blocks.labels(tier.label)
        for tier in (Tier.G2, Tier.G3, Tier.G4):
            metrics.lookup_blocks.labels(tier.label, LookupOutcome.HIT)
            metrics.load_blocks.labels(tier.label, ItemStatus.OK.name.lower())
        for ended_by in MissReason:
            metrics.request_decisions.labels(ended_by)
        for outcome in (LookupOutcome.MISS, LookupOutcome.UNKNOWN):
            metrics.lookup_blocks.labels(_NO_TIER, outcome)
        for status in ItemStatus:
            if status is not ItemStatus.OK:
                metrics.load_blocks.labels(_NO_TIER, status.name.lower())
            for kind in JobKind:
                metrics.job_items.labels(kind.name.lower(), status.name.lower())
        for kind in JobKind:
            for end in OrderEnd:
                metrics.jobs.labels(kind.name.lower(), end.value)

    def block_size(self, block_bytes: int, block_tokens: int) -> None:
        """What one block is."""
        self._metrics.block_bytes.set(block_bytes)
        self._metrics.block_tokens.set(block_tokens)

    def dropped(self, reason: DropReason, count: int = 1) -> None:
        """Work was given up."""
        if count:
            self._metrics.dropped.labels(reason).inc(count)

    def not_written(self, reason: OffloadRefusal, count: int) -> None:
        """Blocks were kept from G3 by a rule."""
        if count:
            self._metrics.not_written_blocks.labels(reason).inc(count)

    def job_refused(self, reason: Refusal) -> None:
        """A worker refused a job."""
        self._metrics.dropped.labels(f"{DropReason.REFUSED_JOB}_{reason}").inc()

    def unknown_result(self) -> None:
        """A result of a job that is not open: repeated, or of an earlier life."""
        self.dropped(DropReason.UNKNOWN_RESULT)

    def job_submitted(self, kind: JobKind, seconds: float) -> None:
        """A job went to its worker, after ``seconds`` of waiting."""
        self._metrics.job_wait_seconds.labels(kind.name.lower()).observe(seconds)

    def job_ended(self, kind: JobKind, report: OrderReport, seconds: float) -> None:
        """A job ended, with one status per item, ``seconds`` after it was ordered."""
        self._metrics.job_seconds.labels(kind.name.lower()).observe(seconds)
        self._metrics.jobs.labels(kind.name.lower(), report.end.value).inc()
        for status, count in Counter(report.statuses).items():
            self._metrics.job_items.labels(kind.name.lower(), status.name.lower()).inc(count)

    def evicted(self, tier: Tier, count: int) -> None:
        """Blocks had to go for others."""
        if count:
            self._metrics.evicted_blocks.labels(tier.label).inc(count)

    def decided(self, reason: MissReason, count: int) -> None:
        """Engines reported requests whose hit this ended."""
        self._metrics.request_decisions.labels(reason).inc(count)

    def loading(self, enabled: bool) -> None:  # noqa: FBT001 - one fact
        """Loads were switched."""
        self._metrics.loading_enabled.set(enabled)

    def looked_up(self, availability: Iterable[Availability]) -> None:
        """One lookup: hits per tier, misses and unknowns, which together are the denominator."""
        self._metrics.lookups.inc()
        for answer, count in Counter(availability).items():
            if answer.is_hit:
                self._metrics.lookup_blocks.labels(Tier(answer).label, LookupOutcome.HIT).inc(count)
            else:
                outcome = LookupOutcome.MISS if answer is Availability.MISS else LookupOutcome.UNKNOWN
                self._metrics.lookup_blocks.labels(_NO_TIER, outcome).inc(count)

    def load_ended(self, outcome: LoadOutcome, seconds: float) -> None:
        """A load ended."""
        self._metrics.load_seconds.observe(seconds)
        for (status, source), count in Counter(zip(outcome.status, outcome.sources, strict=True)).items():
            tier = _NO_TIER if source is None else source.label
            self._metrics.load_blocks.labels(tier, status.name.lower()).inc(count)

    def sessions(self, count: int) -> None:
        """Connected engines now."""
        self._metrics.sessions.set(count)

    def pool(self, pool: BlockPool) -> None:
        """Rows of a tier now."""
        counts = {
            RowState.FREE: pool.free,
            RowState.MUTABLE: pool.mutable,
            RowState.COMPLETE: pool.complete,
            RowState.HELD: pool.held,
            RowState.INACTIVE: pool.inactive,
            RowState.AWAIT_FREE: pool.await_free,
            RowState.ABANDONED: pool.abandoned,
        }
        for state, count in counts.items():
            self._metrics.blocks.labels(pool.tier.label, state.label).set(count)
        self._metrics.capacity_blocks.labels(pool.tier.label).set(pool.capacity)
        self._metrics.leaked_blocks.labels(pool.tier.label).set(pool.leaked_blocks)
        self._metrics.relatives_left.labels(pool.tier.label).set(pool.relatives_left)

    def rank_blocks(self, counts: Mapping[RankBlocks, int]) -> None:
        """Slots that ranks write or read themselves now."""
        for state in RankBlocks:
            self._metrics.rank_blocks.labels(state).set(counts.get(state, 0))

    def arena_writers(self, states: Iterable[WriterState]) -> None:
        """States of all processes of ranks that may write the arena now."""
        counts = Counter(states)
        for state in WriterState:
            self._metrics.arena_writers.labels(state.value).set(counts[state])

    def arena_given_up(self) -> None:
        """G2 starts empty in another arena."""
        self._metrics.arenas_given_up.inc()

    def stuck_worker(self, end: StuckWorkerEnd) -> None:
        """The offload-worker left the last hop of loads open."""
        self._metrics.stuck_workers.labels(end).inc()

    def engine_blocks(self, count: int) -> None:
        """Registered blocks of all engines now."""
        self._metrics.blocks.labels(Tier.G1.label, "registered").set(count)

    def unsettled(self, role: WorkerRole, count: int) -> None:
        """Jobs that a worker has now."""
        self._metrics.jobs_unsettled.labels(role.label).set(count)

    def waiting(self, role: WorkerRole, lane: Lane, count: int) -> None:
        """Jobs that were not given to their worker yet."""
        self._metrics.jobs_waiting.labels(role.label, lane.name.lower()).set(count)

    def events_waiting(self, count: int) -> None:
        """Events that were not published yet."""
        self._metrics.events_waiting.set(count)
