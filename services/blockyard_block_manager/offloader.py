"""Stores from engine memory into G2: every complete block that G2 neither holds nor awaits is copied.

Blocks wait in a bounded backlog until G2 has room: slots that are free, or held by nobody. While G3 still has copies to
take, stores wait too, so that new blocks do not push others out of G2 before they have reached the disk.
The source is not pinned: the engine does not wait for us. The worker compares the block's guard before and after the
copy, so a block that was reused meanwhile fails as ``source_changed`` and stores nothing.
Invariants: a content is on its way into G2 at most once; granted slots are registered or freed when, and only when,
their job has settled. Threading: owned by the event loop of the service. No await.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

from blockyard.core.events import BlockScope
from blockyard.core.vocabulary import ContentKey, EngineBlockId, JobKind, Lane, Tier, WorkerRole
from blockyard.wire.trace_parent import NO_TRACE, TraceParent
from blockyard_block_manager.causes import Cause, cause_of
from blockyard_block_manager.disk_writer import DiskWriter
from blockyard_block_manager.engine_sessions import EngineSession
from blockyard_block_manager.flights import Flights
from blockyard_block_manager.g1_set import G1Block
from blockyard_block_manager.job_desk import JobDesk
from blockyard_block_manager.job_order import JobOrder, Places
from blockyard_block_manager.landing import Landing
from blockyard_block_manager.manager_metrics import DropReason, ManagerMetrics
from blockyard_block_manager.node_profile import NodeProfile
from blockyard_block_manager.node_tables import NodeTables


@dataclass(frozen=True, slots=True)
class _Wanted:
    block: G1Block
    trace: TraceParent


class Offloader:
    """Plans G1 to G2 jobs."""

    def __init__(
        self,
        profile: NodeProfile,
        tables: NodeTables,
        flights: Flights,
        desk: JobDesk,
        landing: Landing,
        disk: DiskWriter,
        metrics: ManagerMetrics,
    ) -> None:
        """Plan over ``tables``, hand jobs to ``desk``."""
        self._profile = profile
        self._tables = tables
        self._flights = flights
        self._desk = desk
        self._landing = landing
        self._disk = disk
        self._metrics = metrics
        self._backlog: dict[EngineSession, dict[EngineBlockId, _Wanted]] = {}

    @property
    def waiting(self) -> int:
        """Blocks in the backlog."""
        return sum(map(len, self._backlog.values()))

    def store(self, session: EngineSession, blocks: Sequence[G1Block], trace: TraceParent = NO_TRACE) -> int:
        """Plan stores of blocks of one scope; returns how many are wanted, now or when there is room."""
        if not blocks:
            return 0
        keys = [block.name.key for block in blocks]
        group = blocks[0].scope.group
        held = self._tables.holds(Tier.G2, keys, group)
        coming = self._flights.under_way(Tier.G2, keys, group)
        wanted = [
            block for block, here, on_its_way in zip(blocks, held, coming, strict=True) if not (here or on_its_way)
        ]
        waiting = self._backlog.setdefault(session, {})
        for block in wanted:
            earlier = waiting.pop(block.block, None)  # a newer content of the same memory goes to the end
            same = earlier is not None and earlier.block == block
            waiting[block.block] = _Wanted(block, earlier.trace if earlier is not None and same else trace)
        excess = max(self.waiting - self._profile.backlog_blocks, 0)
        for oldest in list(islice(waiting, excess)):
            del waiting[oldest]
        self._metrics.dropped(DropReason.STORE_BACKLOG, excess)
        self.pump()
        return len(wanted)

    def offer(self, sessions: Iterable[EngineSession]) -> None:
        """Plan stores of everything that engines hold: after G2 became usable, or an engine was mapped."""
        for session in sessions:
            grouped: dict[BlockScope, list[G1Block]] = {}
            for block in session.g1:
                grouped.setdefault(block.scope, []).append(block)
            for blocks in grouped.values():
                self.store(session, sorted(blocks, key=lambda block: block.name.position))

    def forget(self, session: EngineSession) -> None:
        """An engine is gone."""
        self._backlog.pop(session, None)

    def clear(self) -> int:
        """G2 is cleared: forget what waits; returns how many blocks that were."""
        dropped = self.waiting
        self._backlog.clear()
        self._metrics.dropped(DropReason.CLEARED, dropped)
        return dropped

    def pump(self) -> None:
        """Issue jobs for the backlog, as far as there is room."""
        if not self._backlog or self._disk.busy or not self._desk.answering(WorkerRole.OFFLOAD_WORKER):
            return
        for session, waiting in list(self._backlog.items()):
            while waiting and session.mapping is not None and (room := self._tables.room(Tier.G2)):
                batch = self._next_batch(session, waiting, min(room, self._profile.max_items))
                if batch:
                    cause = cause_of(wanted.trace for wanted in batch)
                    self._issue(session.mapping, batch[0].block.scope, [wanted.block for wanted in batch], cause)
            if not waiting:
                del self._backlog[session]

    # --- inside -------------------------------------------------------------------------------------------------------
    def _next_batch(self, session: EngineSession, waiting: dict[EngineBlockId, _Wanted], limit: int) -> list[_Wanted]:
        """Take blocks of one scope off the head of the backlog; returns those that are still to be stored."""
        scope = next(iter(waiting.values())).block.scope
        batch: dict[ContentKey, _Wanted] = {}
        looked_at = 0
        for wanted in waiting.values():
            block = wanted.block
            if block.scope != scope or len(batch) == limit:
                break
            looked_at += 1
            if session.g1.holds(block) and not self._taken_care_of(block):
                batch[block.name.key] = wanted
        for entry in list(islice(waiting, looked_at)):
            del waiting[entry]
        return list(batch.values())

    def _taken_care_of(self, block: G1Block) -> bool:
        key, group = [block.name.key], block.scope.group
        return self._tables.holds(Tier.G2, key, group)[0] or self._flights.under_way(Tier.G2, key, group)[0]

    def _issue(self, mapping: int, scope: BlockScope, blocks: Sequence[G1Block], cause: Cause) -> None:
        names = tuple(block.name for block in blocks)
        granted = self._tables.grant(Tier.G2, len(blocks))
        self._flights.start(Tier.G2, [name.key for name in names], scope.group, Tier.G1, cause.trace)
        order = JobOrder(
            role=WorkerRole.OFFLOAD_WORKER,
            kind=JobKind.G1_G2,
            lane=Lane.STORE,
            ttl_ms=self._profile.store_ttl_ms,
            count=len(names),
            names=names,
            scope=scope,
            source=Places(tuple(block.block for block in blocks), tuple(block.guard for block in blocks)),
            target=Places(granted.ids, granted.generations),
            mapping=mapping,
            cause=cause,
        )
        self._desk.hand_in(order, lambda report: self._landing.settle(Tier.G2, order, granted, report, Tier.G1))
