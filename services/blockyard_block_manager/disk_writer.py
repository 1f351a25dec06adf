"""Write-through from G2 to G3, and the room that it needs there.

Blocks wait in a bounded queue until G3 has free slots. G3 frees slots ahead of need: evicted blocks leave the table at
once, but their slots may be granted only after their FREE headers are durable. A queued block holds no pin; if it has
left G2 by its turn, there is nothing to copy and that is counted.
Invariants: sources are pinned from the plan of a job until it has settled; a block is on its way into G3 at most once;
``offloaded`` to G3 is announced only for items that the worker reported durable.
Threading: owned by the event loop of the service. No await.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count, islice
from typing import Final

from blockyard.core.block_name import BlockName
from blockyard.core.events import BlockScope
from blockyard.core.handles import MutableBlocks
from blockyard.core.pins import PinKind, PinOwner
from blockyard.core.vocabulary import ContentKey, GroupId, JobKind, Lane, Tier, WorkerRole
from blockyard.wire.trace_parent import NO_TRACE, TraceParent
from blockyard_block_manager.causes import Cause, cause_of
from blockyard_block_manager.flights import Flights
from blockyard_block_manager.job_desk import JobDesk
from blockyard_block_manager.job_order import JobOrder, OrderReport, Places
from blockyard_block_manager.landing import Landing
from blockyard_block_manager.manager_metrics import DropReason, ManagerMetrics
from blockyard_block_manager.node_profile import NodeProfile
from blockyard_block_manager.node_tables import NodeTables
from blockyard_block_manager.slot_freer import SlotFreer

_RESERVE_SHARE: Final = 64
"""G3 keeps 1/64 of its slots, at least one job's worth, free or on their way to it."""


@dataclass(frozen=True, slots=True)
class _Waiting:
    name: BlockName
    scope: BlockScope
    trace: TraceParent


class DiskWriter:
    """Plans G2 to G3 jobs."""

    def __init__(
        self,
        profile: NodeProfile,
        tables: NodeTables,
        flights: Flights,
        desk: JobDesk,
        landing: Landing,
        freer: SlotFreer,
        metrics: ManagerMetrics,
    ) -> None:
        """Plan over ``tables``, hand jobs to ``desk``, give evicted slots to ``freer``."""
        self._profile = profile
        self._tables = tables
        self._flights = flights
        self._desk = desk
        self._landing = landing
        self._freer = freer
        self._metrics = metrics
        self._queue: dict[tuple[ContentKey, GroupId], _Waiting] = {}
        self._open_jobs = 0
        self._numbers = count(1)

    @property
    def waiting(self) -> int:
        """Blocks that wait for their turn."""
        return len(self._queue)

    @property
    def busy(self) -> bool:
        """Whether blocks wait and the disk is getting on with it; a disk that fails holds nobody up."""
        return bool(self._queue) and (self._open_jobs > 0 or self._freer.at_work(Tier.G3))

    def store(self, scope: BlockScope, names: Sequence[BlockName], trace: TraceParent = NO_TRACE) -> None:
        """Blocks are in G2: copy to G3 what it does not hold."""
        if not self._profile.g3_enabled or not self._tables.has(Tier.G3):
            return
        keys = [name.key for name in names]
        held = self._tables.holds(Tier.G3, keys, scope.group)
        coming = self._flights.under_way(Tier.G3, keys, scope.group)
        for name, here, under_way in zip(names, held, coming, strict=True):
            if not here and not under_way:
                self._queue.setdefault((name.key, scope.group), _Waiting(name, scope, trace))
        excess = max(len(self._queue) - self._profile.g3_queue_blocks, 0)
        for oldest in list(islice(self._queue, excess)):
            del self._queue[oldest]
        self._metrics.dropped(DropReason.G3_QUEUE, excess)
        self.pump()

    def clear(self) -> int:
        """Forget what waits; returns how many blocks that were."""
        dropped = len(self._queue)
        self._queue.clear()
        self._metrics.dropped(DropReason.CLEARED, dropped)
        return dropped

    def pump(self) -> None:
        """Issue jobs for what waits, as far as slots are free and jobs may be open."""
        if not self._queue or not self._desk.answering(WorkerRole.OFFLOAD_WORKER) or not self._tables.grants_open:
            return
        self._make_room()
        while self._queue and self._open_jobs < self._profile.g3_open_jobs and self._tables.room(Tier.G3):
            batch = self._next_batch(min(self._profile.max_items, self._tables.room(Tier.G3)))
            if batch:
                cause = cause_of(waiting.trace for waiting in batch)
                self._issue(batch[0].scope, [waiting.name for waiting in batch], cause)
        self._make_room()

    # --- inside -------------------------------------------------------------------------------------------------------
    def _make_room(self) -> None:
        pool = self._tables.pool(Tier.G3)
        reserve = max(self._profile.max_items, pool.capacity // _RESERVE_SHARE)
        wanted = min(reserve, len(self._queue), pool.capacity)
        short = wanted - pool.free - self._freer.pending(Tier.G3)
        if short > 0 and pool.inactive:
            self._freer.free(Tier.G3, self._tables.evict(Tier.G3, short))

    def _next_batch(self, limit: int) -> list[_Waiting]:
        """Blocks of one scope from the head of the queue that are still to be copied; perhaps none."""
        scope = next(iter(self._queue.values())).scope
        batch: list[_Waiting] = []
        looked_at = 0
        for waiting in self._queue.values():
            if waiting.scope != scope or len(batch) == limit:
                break
            looked_at += 1
            if self._tables.holds(Tier.G2, [waiting.name.key], scope.group)[0]:
                batch.append(waiting)
        for entry in list(islice(self._queue, looked_at)):
            del self._queue[entry]
        self._metrics.dropped(DropReason.GONE_FROM_G2, looked_at - len(batch))
        return batch

    def _issue(self, scope: BlockScope, names: Sequence[BlockName], cause: Cause) -> None:
        keys = [name.key for name in names]
        sources = self._tables.pool(Tier.G2).pin_all(keys, scope.group)
        granted = self._tables.grant(Tier.G3, len(names))
        self._flights.start(Tier.G3, keys, scope.group, Tier.G2, cause.trace)
        order = JobOrder(
            role=WorkerRole.OFFLOAD_WORKER,
            kind=JobKind.G2_G3,
            lane=Lane.STORE,
            ttl_ms=self._profile.store_ttl_ms,
            count=len(names),
            names=tuple(names),
            scope=scope,
            source=Places(sources.ids, sources.generations),
            target=Places(granted.ids, granted.generations),
            cause=cause,
        )
        owner = PinOwner(PinKind.JOB, f"g3-store-{next(self._numbers)}")
        self._tables.pins.add(owner, sources)
        self._open_jobs += 1
        self._desk.hand_in(order, lambda report: self._settled(order, granted, owner, report))

    def _settled(self, order: JobOrder, granted: MutableBlocks, owner: PinOwner, report: OrderReport) -> None:
        self._open_jobs -= 1
        self._freer.condemn_damaged(Tier.G2, order.source, report.statuses)
        self._landing.settle(Tier.G3, order, granted, report, Tier.G2)
        self._tables.pins.release(owner)
