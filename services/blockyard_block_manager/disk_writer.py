"""Copies from G2 to G3, and the room that they need there.

What is copied, and when, is decided by the plan of the core; here blocks wait in its queue, prefixes first, until G3
has free slots. G3 frees slots ahead of need: evicted blocks leave the table at once, but their slots may be granted
only after their FREE headers are durable. A queued block holds no pin; if it has left G2 by its turn, there is nothing
to copy and that is counted. Whoever is granted slots of G2 keeps to one rule: stores and slots for ranks, which can
wait, get what ``g2_room`` says; loads, which requests wait for, get what there is. What has to leave G2 for either
before it was written is counted by ``evicted``.
Invariants: sources are pinned from the plan of a job until it has settled; a block is on its way into G3 at most once;
``offloaded`` to G3 is announced only for items that the worker reported durable.
Threading: owned by the event loop of the service. No await.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Final

from blockyard.core.block_facts import BlockFacts
from blockyard.core.block_name import BlockName
from blockyard.core.clear_scope import ClearScope
from blockyard.core.clock import Clock
from blockyard.core.copy_retries import CopyRetries
from blockyard.core.events import BlockScope
from blockyard.core.handles import MutableBlocks
from blockyard.core.offload_plan import OffloadPlan, OffloadRefusal, WritePolicy
from blockyard.core.pins import PinKind, PinOwner
from blockyard.core.vocabulary import ContentKey, GroupId, ItemStatus, JobKind, Lane, Tier, WorkerRole
from blockyard.core.watermarks import Reserve, Watermarks
from blockyard.core.work_queue import QueueLimits
from blockyard.wire.trace_parent import NO_TRACE, TraceParent
from blockyard_block_manager.causes import Cause, cause_of
from blockyard_block_manager.disk_queue import DiskCopy, DiskName, DiskQueue
from blockyard_block_manager.engine_sessions import EngineSessions
from blockyard_block_manager.flights import Flights
from blockyard_block_manager.job_desk import JobDesk
from blockyard_block_manager.job_order import JobOrder, OrderEnd, OrderReport, Places
from blockyard_block_manager.landing import Landing
from blockyard_block_manager.manager_metrics import DropReason, ManagerMetrics
from blockyard_block_manager.node_profile import NodeProfile
from blockyard_block_manager.node_tables import NodeTables
from blockyard_block_manager.slot_freer import SlotFreer
from blockyard_block_manager.windowed_groups import WindowedGroups
from blockyard_block_manager.write_ahead import WriteAhead

_RESERVE_SHARE: Final = 64
"""G3 keeps 1/64 of its slots, at least one job's worth, free or on their way to it, as far as blocks wait for them."""

_NEVER_SEEN: Final = frozenset({ItemStatus.TIMEOUT, ItemStatus.SKIPPED, ItemStatus.UNKNOWN})
"""The disk did not refuse the block: it has another turn. What it did refuse is left alone until it is used again."""


@dataclass(frozen=True, slots=True)
class _GroupView:
    """What the plan asks about blocks of one scope."""

    tables: NodeTables
    queue: DiskQueue
    sessions: EngineSessions
    scope: BlockScope

    def in_g2(self, key: ContentKey) -> BlockName | None:
        return self.tables.name_in_g2(key, self.scope.group)

    def in_g3(self, key: ContentKey) -> bool:
        held = self.tables.holds(Tier.G3, [key], self.scope.group)[0]
        return held or self.queue.under_way(DiskName(self.scope, key))

    def queued(self, key: ContentKey) -> bool:
        return DiskName(self.scope, key) in self.queue

    def in_g1(self, key: ContentKey) -> bool:
        return self.sessions.hold((key, self.scope.group))


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
        windows: WindowedGroups,
        sessions: EngineSessions,
        metrics: ManagerMetrics,
        clock: Clock,
    ) -> None:
        """Plan over ``tables``, hand jobs to ``desk``, give evicted slots to ``freer``."""
        self._profile = profile
        self._tables = tables
        self._flights = flights
        self._desk = desk
        self._landing = landing
        self._freer = freer
        self._windows = windows
        self._sessions = sessions
        self._metrics = metrics
        self._plan = OffloadPlan(profile.disk_rules, profile.block_bytes, clock)
        self._retries = CopyRetries(clock)
        self._ahead = (
            WriteAhead(tables, profile.max_items) if profile.disk_rules.policy is WritePolicy.WRITE_BACK else None
        )
        self._queue = DiskQueue(QueueLimits(profile.g3_queue_blocks, profile.g3_queue_bytes), profile.block_bytes)
        self._reserve: Reserve | None = None
        self._open_jobs = 0
        self._numbers = count(1)

    @property
    def waiting(self) -> int:
        """Blocks that wait for their turn."""
        return self._queue.waiting

    @property
    def most_waiting(self) -> int:
        """Blocks that may wait."""
        return self._queue.most

    def has_room(self, blocks: int) -> bool:
        """Whether so many blocks can wait before others have to make room for them."""
        return self._queue.fits(blocks)

    @property
    def _usable(self) -> bool:
        """Whether this node has a disk."""
        return self._profile.g3_enabled and self._tables.has(Tier.G3)

    @property
    def _at_work(self) -> bool:
        return self._open_jobs > 0 or self._freer.at_work(Tier.G3)

    def g2_room(self, limit: int) -> int:
        """Slots, up to ``limit``, that who can wait may be granted without pushing out what is still to be written.

        Free slots push nothing out. A disk that gets nothing done holds nobody up.
        """
        room = min(self._tables.room(Tier.G2), limit)
        if self._ahead is None:
            holds_up = room and self._queue.waiting and self._at_work
            return min(room, self._tables.pool(Tier.G2).free) if holds_up else room
        if not self._usable:
            return room
        spare = self._ahead.spare(room)
        if spare < room:
            if not self._at_work:
                self._ahead.look_again()
            self.pump()
            spare = self._ahead.spare(room)
        # What is spare goes first: only where nothing is, the reserve is certainly being refilled.
        return spare if spare or self._at_work else room

    # --- what others learn --------------------------------------------------------------------------------------------
    def landed(self, scope: BlockScope, names: Sequence[BlockName], trace: TraceParent = NO_TRACE) -> None:
        """Blocks have just come into G2."""
        self._count(scope, names)
        self.store(scope, names, trace)

    def used(self, scope: BlockScope, names: Sequence[BlockName], trace: TraceParent = NO_TRACE) -> None:
        """Blocks of G2 were wanted again: G3 keeps its copies longer, and may want what was refused before."""
        self._count(scope, names)
        self._refresh(scope, names)
        if self._plan.rules.least_uses > 1:
            self.store(scope, names, trace)

    def evicted(self, blocks: Sequence[BlockFacts]) -> None:
        """Blocks are about to leave G2 for others: those that were still to be written never will be."""
        names = [DiskName(self._scope_of(block), block.key) for block in blocks]
        # A copy under way is one of an earlier row with the same bytes, which was cleared while it was read.
        waiting = [name for name in names if name in self._queue and not self._queue.under_way(name)]
        resting = {name for name in names if self._rests_unwritten(name)}
        lost = len(waiting) + len(resting)
        if self._ahead is not None and self._usable:
            pairs = zip(blocks, names, strict=True)
            lost += self._ahead.lost(block for block, name in pairs if name not in self._queue and name not in resting)
        self._queue.cancel(waiting)
        self._metrics.dropped(DropReason.GONE_FROM_G2, lost)

    def left(self, blocks: Sequence[tuple[ContentKey, GroupId]]) -> None:
        """Blocks left G2."""
        self._plan.left(blocks)
        self._retries.forget(blocks)
        if self._ahead is not None:
            self._ahead.take_back(blocks)

    def store(self, scope: BlockScope, names: Sequence[BlockName], trace: TraceParent = NO_TRACE) -> None:
        """Blocks are in G2: write through what G3 does not hold."""
        if self._ahead is None and self._usable:
            self._want(scope, names, trace)
            self.pump()

    def offer_again(self, scope: BlockScope, names: Sequence[BlockName]) -> None:
        """More is known of these blocks of G2 than when they were refused."""
        if self._ahead is not None:
            self._ahead.reconsider((name.key, scope.group) for name in names)
        self.store(scope, names)

    def clear(self, scope: ClearScope) -> int:
        """Forget what waits and is in scope; returns how many blocks that were."""
        names = self._queue.in_scope(scope)
        self._queue.cancel(names)
        for held, blocks in self._tables.named(self._retries.resting).items():
            if scope.covers(held.identity, held.tenant):
                self._retries.forget((block.key, held.group) for block in blocks)
        if self._ahead is not None:
            self._ahead.clear()
        self._metrics.dropped(DropReason.CLEARED, len(names))
        return len(names)

    def pump(self) -> None:
        """Issue jobs for what waits, as far as slots are free and jobs may be open."""
        if not self._desk.answering(WorkerRole.OFFLOAD_WORKER) or not self._tables.grants_open:
            return
        if self._usable:
            self._ask_again()
        if not self._queue.waiting:
            return
        self._make_room()
        while self._queue.waiting and self._open_jobs < self._profile.g3_open_jobs and self._tables.room(Tier.G3):
            batch = self._next_batch(min(self._profile.max_items, self._tables.room(Tier.G3)))
            if batch:
                self._issue(batch, cause_of(copy.work.trace for copy in batch))
        self._make_room()

    # --- inside -------------------------------------------------------------------------------------------------------
    def _ask_again(self) -> None:
        """Want what there are bytes for again, and what is to be written ahead."""
        most = self._profile.max_items
        wanted = [*self._plan.due_again(most), *self._retries.due()] if self._queue.fits(most) else []
        if self._ahead is not None:
            self._ahead.reconsider(wanted)
            # A look costs as much as the reserve is large: never for a few blocks of it.
            wanted = self._ahead.due(self._queue.room) if 2 * self._queue.room >= self._queue.most else []
        for scope, names in self._tables.named(wanted).items():
            self._want(scope, names, NO_TRACE)

    def _count(self, scope: BlockScope, names: Sequence[BlockName]) -> None:
        self._plan.used(names, scope.group)
        if self._ahead is not None:
            self._ahead.take_back((name.key, scope.group) for name in names)

    def _refresh(self, scope: BlockScope, names: Sequence[BlockName]) -> None:
        """A use of the copy in G2 counts as one of that in G3, which would seem unused for as long as G2 has it."""
        keys = [name.key for name in names]
        held = self._tables.holds(Tier.G3, keys, scope.group)
        if any(held):
            found = [key for key, here in zip(keys, held, strict=True) if here]
            self._tables.pool(Tier.G3).pin_all(found, scope.group).release()

    def _want(self, scope: BlockScope, names: Sequence[BlockName], trace: TraceParent) -> None:
        """Queue what the plan selects, prefixes first: the deepest blocks of all make room when there is too much."""
        view = _GroupView(self._tables, self._queue, self._sessions, scope)
        decision = self._plan.select(names, scope.group, view, needs_parents=self._needs_parents(scope))
        dropped = [each for name in decision.admitted for each in self._queue.offer(scope, name, trace)]
        self._metrics.dropped(DropReason.G3_QUEUE, len(dropped))
        if dropped and self._ahead is not None:
            self._ahead.look_again()
        for name, refusal in decision.refused.items():
            self._refuse(scope, [name], refusal)

    def _make_room(self) -> None:
        pool = self._tables.pool(Tier.G3)
        if self._reserve is None:
            self._reserve = Reserve(Watermarks.of(pool.capacity, _RESERVE_SHARE, self._profile.max_items))
        level = pool.free + self._freer.pending(Tier.G3)
        short = self._reserve.wanted(level, min(self._queue.waiting, pool.capacity))
        if short <= 0 or not pool.inactive:
            return
        self._refuse_hopeless(short)
        short = self._reserve.wanted(level, min(self._queue.waiting, pool.capacity))
        if short > 0:
            self._freer.free(Tier.G3, self._tables.evict(Tier.G3, short))

    def _refuse_hopeless(self, short: int) -> None:
        """Give up waiting blocks whose prefixes would have to leave G3 for them."""
        victims: dict[BlockScope, list[ContentKey]] = {}
        for block in self._tables.next_victims(Tier.G3, short):
            victims.setdefault(self._scope_of(block), []).append(block.key)
        for scope, keys in victims.items():
            if self._needs_parents(scope):
                refused = self._plan.hopeless(keys, partial(self._queue.behind, scope))
                self._queue.cancel(DiskName(scope, name.key) for name in refused)
                self._refuse(scope, refused, OffloadRefusal.NEXT_VICTIM)

    def _next_batch(self, limit: int) -> Sequence[DiskCopy]:
        """Begin the most urgent copies of one scope that are still to be made; perhaps none."""
        copies = self._queue.take(limit)
        scope = copies[0].work.scope
        here = self._tables.holds(Tier.G2, [copy.name.key for copy in copies], scope.group)
        gone = [copy for copy, held in zip(copies, here, strict=True) if not held]
        self._queue.settle(gone)
        self._metrics.dropped(DropReason.GONE_FROM_G2, len(gone))
        there = [copy for copy, held in zip(copies, here, strict=True) if held]
        own, view = {copy.name.key for copy in copies}, _GroupView(self._tables, self._queue, self._sessions, scope)
        decision = self._plan.confirm(
            [copy.work.name for copy in there],
            scope.group,
            lambda key: (key not in own and view.in_g3(key)) or view.in_g1(key),
            needs_parents=self._needs_parents(scope),
        )
        self._queue.settle(copy for copy in there if copy.work.name in decision.refused)
        for name, refusal in decision.refused.items():
            self._refuse(scope, [name], refusal)
        return [copy for copy in there if copy.work.name not in decision.refused]

    def _needs_parents(self, scope: BlockScope) -> bool:
        return (scope.identity, scope.group) not in self._windows

    def _scope_of(self, block: BlockFacts) -> BlockScope:
        return BlockScope(block.identity, block.tenant, block.group, self._profile.block_tokens)

    def _rests_unwritten(self, name: DiskName) -> bool:
        """Whether a block has another turn; a copy whose end was not told may have been found on disk meanwhile."""
        if name in self._queue or (name.key, name.scope.group) not in self._retries:
            return False
        return not self._tables.holds(Tier.G3, [name.key], name.scope.group)[0]

    def _refuse(self, scope: BlockScope, names: Sequence[BlockName], refusal: OffloadRefusal) -> None:
        self._metrics.not_written(refusal, len(names))
        self._give_up(scope, names)

    def _give_up(self, scope: BlockScope, names: Iterable[BlockName]) -> None:
        if self._ahead is not None:
            self._ahead.give_up((name.key, scope.group) for name in names)

    def _issue(self, copies: Sequence[DiskCopy], cause: Cause) -> None:
        scope, names = copies[0].work.scope, tuple(copy.work.name for copy in copies)
        keys = [name.key for name in names]
        sources = self._tables.pool(Tier.G2).scan(keys, scope.group)  # a copy is no use
        granted = self._tables.grant(Tier.G3, len(names))
        self._flights.start(Tier.G3, keys, scope.group, Tier.G2, cause.trace)
        order = JobOrder(
            role=WorkerRole.OFFLOAD_WORKER,
            kind=JobKind.G2_G3,
            lane=Lane.STORE,
            ttl_ms=self._profile.store_ttl_ms,
            count=len(names),
            names=names,
            scope=scope,
            source=Places(sources.ids, sources.generations),
            target=Places(granted.ids, granted.generations),
            cause=cause,
        )
        owner = PinOwner(PinKind.JOB, f"g3-store-{next(self._numbers)}")
        self._tables.pins.add(owner, sources)
        self._open_jobs += 1
        self._desk.hand_in(order, lambda report: self._settled(copies, order, granted, owner, report))

    def _settled(
        self, copies: Sequence[DiskCopy], order: JobOrder, granted: MutableBlocks, owner: PinOwner, report: OrderReport
    ) -> None:
        self._open_jobs -= 1
        if report.end is OrderEnd.NEVER_RAN:
            self._plan.not_written(order.count)
        self._freer.condemn_damaged(Tier.G2, order.source, report.statuses)
        cleared = any(self._tables.pool(Tier.G3).is_doomed(block) for block in granted.ids)
        self._landing.settle(Tier.G3, order, granted, report, Tier.G2)
        self._queue.settle(copies)
        items = list(zip(order.names, report.statuses, strict=True))
        self._give_up(order.scope, [name for name, status in items if status is not ItemStatus.OK])
        again = [name.key for name, status in items if status in _NEVER_SEEN and not cleared]
        group, in_g2 = order.scope.group, self._tables.holds(Tier.G2, again, order.scope.group)
        self._retries.failed((key, group) for key, here in zip(again, in_g2, strict=True) if here)
        self._retries.forget((name.key, group) for name, status in items if status not in _NEVER_SEEN)
        self._tables.pins.release(owner)
        if self._ahead is not None:
            self._ahead.ended([name.key for name in reversed(order.names)], order.scope.group)
