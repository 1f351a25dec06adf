"""The desk where decisions hand in orders and learn how they ended; between them and the job table.

Orders wait here by lane until their worker's window has room; only then do they get a number. An order ends by the
worker's result, by its word that the job never ran, by the proven end of its life, or, as long as it was not handed
over, right here. Destinations stay with the owner of the order until it is told.
Invariants: every order ends exactly once; ``on_settled`` runs in the synchronous section that ends it, never inside
``hand_in``; stores that wait are bounded, the oldest is dropped and counted.
Threading: owned by the event loop of the service. No await.
"""

from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from blockyard.core.clear_scope import ClearScope
from blockyard.core.clock import Clock
from blockyard.core.errors import NotReadyError
from blockyard.core.job_table import JobAction, JobTable, LostJobs
from blockyard.core.jobs import LAST_HOPS, JobId, JobPhase, Refusal
from blockyard.core.vocabulary import BlockId, Epoch, ItemStatus, JobEnd, JobKind, JobSeq, Lane, Tier, WorkerRole
from blockyard.runtime.current_trace import TraceScope
from blockyard.wire.trace_parent import NO_TRACE, TraceParent
from blockyard.wire.worker_channel import Job, JobResult
from blockyard_block_manager.job_messages import job_message
from blockyard_block_manager.job_order import JobOrder, OpenOrder, OrderEnd, OrderReport, SettledCallback
from blockyard_block_manager.manager_metrics import DropReason, ManagerMetrics
from blockyard_block_manager.manager_spans import ManagerSpans


class JobDesk:
    """Open orders of this life, queued or at their worker."""

    def __init__(
        self,
        table: JobTable,
        clock: Clock,
        metrics: ManagerMetrics,
        spans: ManagerSpans,
        *,
        payload_bytes: int,
        queue_limit: int,
    ) -> None:
        """Start without orders; at most ``queue_limit`` stores wait per worker."""
        self.table: Final = table
        self._clock = clock
        self._metrics = metrics
        self._spans = spans
        self._payload_bytes = payload_bytes
        self._queue_limit = queue_limit
        self._queues: dict[WorkerRole, dict[Lane, deque[OpenOrder]]] = {
            role: {lane: deque() for lane in Lane} for role in WorkerRole
        }
        self._attached: set[WorkerRole] = set()
        self._open: dict[JobSeq, OpenOrder] = {}
        self.on_inherited_ended: Callable[[JobId], None] = lambda job: None
        self.on_work: Callable[[WorkerRole], None] = lambda role: None
        """Called when a worker's link has something to send."""

    # --- orders -------------------------------------------------------------------------------------------------------
    def attached(self, role: WorkerRole) -> bool:
        """Whether orders for this worker can be handed in."""
        return role in self._attached

    def answering(self, role: WorkerRole) -> bool:
        """Whether orders for this worker are worth handing in: it is attached and does not hang.

        One that hangs settles nothing by that; what it has may still be carried out when it goes on.
        """
        return role in self._attached and not self.table.silent(role)

    def hand_in(self, order: JobOrder, on_settled: SettledCallback) -> OpenOrder:
        """Take an order; ``on_settled`` is told its end, never before this returns.

        Raises:
            NotReadyError: the worker is not attached; nothing was taken.
        """
        if order.role not in self._attached:
            raise NotReadyError("the worker is not attached", worker=order.role.label)
        now = self._clock.monotonic()
        opened = OpenOrder(order, now, now + order.ttl_ms / 1_000, on_settled)
        opened.span = self._spans.job_began(order)
        self._queues[order.role][order.lane].append(opened)
        self.on_work(order.role)
        return opened

    def shed(self) -> None:
        """End the oldest stores that wait beyond the limit; loads hold destination slots and are bounded by those."""
        for role in WorkerRole:
            queue = self._queues[role][Lane.STORE]
            excess = len(queue) - self._queue_limit
            # A FREE order is never dropped: its slots could not be used again.
            for opened in [item for item in queue if item.order.kind is not JobKind.FREE][: max(excess, 0)]:
                queue.remove(opened)
                self._metrics.dropped(DropReason.JOB_QUEUE, opened.order.count)
                self._end(opened, OrderEnd.NEVER_RAN, ItemStatus.SKIPPED)

    def cancel(self, opened: OpenOrder) -> None:
        """Want the end of an order; it ends now if it was not handed over, else when its worker says so."""
        if opened.seq is not None:
            self.table.cancel(opened.seq)
            self.on_work(opened.order.role)
            return
        queue = self._queues[opened.order.role][opened.order.lane]
        if opened in queue:
            queue.remove(opened)
            self._end(opened, OrderEnd.NEVER_RAN, ItemStatus.SKIPPED)

    def cancel_mapping(self, mapping: int) -> None:
        """Want the end of every order that reads or writes the memory of one engine."""
        for opened in self.open_orders():
            if opened.order.mapping == mapping:
                self.cancel(opened)

    def drop_queued(self, tier: Tier, scope: ClearScope) -> int:
        """End what was to be written into a tier, is in scope and was not handed over; returns the number of blocks."""
        queued = [opened for opened in self._writing(tier) if opened.seq is None and _in_scope(opened, scope)]
        for opened in queued:
            self.cancel(opened)
        return sum(opened.order.count for opened in queued)

    def written_elsewhere(self, tier: Tier, scope: ClearScope) -> set[BlockId]:
        """Slots of a tier that open orders write and that are out of scope."""
        others = [opened for opened in self._writing(tier) if not _in_scope(opened, scope)]
        return {BlockId(slot) for opened in others for slot in opened.order.target.indexes}

    def waiting(self, role: WorkerRole, lane: Lane) -> int:
        """Orders of a lane that were not handed over to their worker."""
        return len(self._queues[role][lane])

    def open_orders(self) -> list[OpenOrder]:
        """All orders that have not ended."""
        queued = [opened for lanes in self._queues.values() for queue in lanes.values() for opened in queue]
        return [*self._open.values(), *queued]

    # --- for the link to a worker -------------------------------------------------------------------------------------
    def take(self, role: WorkerRole) -> Job | None:
        """Next job to submit, loads first; None where nothing waits or the worker's window is full."""
        for lane in Lane:
            queue = self._queues[role][lane]
            while queue and self.table.can_plan(role, lane):
                opened = queue.popleft()
                ttl_ms = self._ttl_ms(opened)
                if ttl_ms <= 0:
                    self._end(opened, OrderEnd.NEVER_RAN, ItemStatus.TIMEOUT)
                    continue
                opened.seq = self.table.plan(role, opened.order.kind, lane, ttl_ms)
                self._open[opened.seq] = opened
                waited = self._clock.monotonic() - opened.opened_at
                self._metrics.job_submitted(opened.order.kind, waited)
                self._spans.job_submitted(opened.span, waited)
                return self.message(opened.seq)
        return None

    def message(self, seq: JobSeq) -> Job | None:
        """The submit message of an open job; None where it ended meanwhile."""
        opened, facts = self._open.get(seq), self.table.facts(seq)
        if opened is None or facts is None:
            return None
        return job_message(
            opened.order,
            epoch=self.table.epoch,
            seq=seq,
            worker_epoch=facts.worker_epoch,
            ttl_ms=max(1, self._ttl_ms(opened)),
            payload_bytes=self._payload_bytes,
        )

    def trace_of(self, seq: JobSeq) -> TraceParent:
        """Trace context that goes with the message of an open job."""
        opened = self._open.get(seq)
        return NO_TRACE if opened is None else opened.span.traceparent

    def due(self) -> list[JobAction]:
        """Messages that are due now; also ends queued orders whose time is over."""
        now = self._clock.monotonic()
        for lanes in self._queues.values():
            for queue in lanes.values():
                for opened in [item for item in queue if item.deadline <= now]:
                    if opened in queue:
                        queue.remove(opened)
                        self._end(opened, OrderEnd.NEVER_RAN, ItemStatus.TIMEOUT)
        return self.table.due(now)

    def refused(self, seq: JobSeq, reason: Refusal) -> None:
        """The worker will never run the job."""
        self._metrics.job_refused(reason)
        if self.table.refused(seq, reason):
            self._end(self._open.pop(seq), OrderEnd.NEVER_RAN, ItemStatus.SKIPPED)

    def state_told(self, seq: JobSeq, phase: JobPhase) -> None:
        """Answer to cancel or poll."""
        if self.table.state_told(seq, phase):
            self._end(self._open.pop(seq), OrderEnd.NEVER_RAN, ItemStatus.SKIPPED)

    def result(self, result: JobResult) -> None:
        """A result arrived, perhaps again, perhaps of an earlier life; the caller acknowledges it in any case."""
        if result.epoch != self.table.epoch:
            inherited = JobId(Epoch(result.epoch), JobSeq(result.seq))
            if self.table.settle_inherited(inherited, Epoch(result.worker_epoch)):
                self.on_inherited_ended(inherited)
            else:
                self._metrics.unknown_result()
            return
        seq = JobSeq(result.seq)
        if not self.table.settle(seq, Epoch(result.worker_epoch)):
            self._metrics.unknown_result()
            return
        opened = self._open.pop(seq)
        statuses = _statuses(result, opened.order.count)
        cut_short = result.end is not JobEnd.DONE
        self._tell(opened, OrderReport(OrderEnd.RESULT, statuses, cut_short, result.index_pending))

    # --- workers ------------------------------------------------------------------------------------------------------
    def worker_attached(self, role: WorkerRole, worker_epoch: Epoch, running: Iterable[JobId]) -> None:
        """A worker answered attach: jobs of its earlier lives end as lost, and those it inherited and has ended.

        Raises:
            NotReadyError: an earlier life of the worker answered.
        """
        lost = self.table.attached(role, worker_epoch, running)
        self._attached.add(role)
        for job in lost.inherited:
            self.on_inherited_ended(job)
        self._lose(lost)
        self.on_work(role)

    def worker_disconnected(self, role: WorkerRole) -> None:
        """The channel ended. Jobs at the worker stay open; orders that were not handed over end now."""
        self._attached.discard(role)
        self.table.disconnected(role)
        for queue in self._queues[role].values():
            while queue:
                self._end(queue.popleft(), OrderEnd.NEVER_RAN, ItemStatus.UNKNOWN)

    def worker_dead(self, role: WorkerRole, epoch: Epoch | None) -> None:
        """The last life of a worker that is away is proven over: its jobs end as lost."""
        if epoch is not None:
            lost = self.table.worker_lost(role, epoch)
            for job in lost.inherited:
                self.on_inherited_ended(job)
            self._lose(lost)

    def process_dead(self, role: WorkerRole, epoch: Epoch | None) -> None:
        """The process of a worker that is away is gone: the last hops that it had end as lost."""
        if epoch is not None:
            self._lose(self.table.process_lost(role, epoch, LAST_HOPS))

    def close(self) -> None:
        """End every order as lost: this life of the block-manager is over."""
        self._attached.clear()
        for lanes in self._queues.values():
            for queue in lanes.values():
                while queue:
                    self._end(queue.popleft(), OrderEnd.LOST, ItemStatus.UNKNOWN)
        while self._open:
            self._end(self._open.pop(next(iter(self._open))), OrderEnd.LOST, ItemStatus.UNKNOWN)

    # --- inside -------------------------------------------------------------------------------------------------------
    def _writing(self, tier: Tier) -> list[OpenOrder]:
        """Open orders that bring blocks into a tier."""
        return [
            opened
            for opened in self.open_orders()
            if opened.order.target_tier is tier and opened.order.kind is not JobKind.FREE
        ]

    def _ttl_ms(self, opened: OpenOrder) -> int:
        return int((opened.deadline - self._clock.monotonic()) * 1_000)

    def _lose(self, lost: LostJobs) -> None:
        for opened in [self._open.pop(seq) for seq in lost.jobs]:
            self._end(opened, OrderEnd.LOST, ItemStatus.UNKNOWN)

    def _end(self, opened: OpenOrder, end: OrderEnd, status: ItemStatus) -> None:
        self._tell(opened, OrderReport(end, (status,) * opened.order.count))

    def _tell(self, opened: OpenOrder, report: OrderReport) -> None:
        self._metrics.job_ended(opened.order.kind, report, self._clock.monotonic() - opened.opened_at)
        self._spans.job_ended(opened.span, report)
        with TraceScope(opened.span.traceparent):
            opened.on_settled(report)


def _in_scope(opened: OpenOrder, scope: ClearScope) -> bool:
    return scope.covers(opened.order.scope.identity, opened.order.scope.tenant)


def _statuses(result: JobResult, count: int) -> tuple[ItemStatus, ...]:
    known = {int(status) for status in ItemStatus}
    if len(result.status) != count or not known.issuperset(result.status):
        return (ItemStatus.UNKNOWN,) * count  # the result settles the job, but says nothing about its items
    return tuple(ItemStatus(value) for value in result.status)
