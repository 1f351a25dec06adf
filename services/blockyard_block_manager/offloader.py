"""Stores from engine memory into G2: every complete row that G2 neither holds nor awaits is copied.

Rows wait in a bounded queue until G2 has room: slots that are free, or held by nobody. While G3 still has copies to
take, stores get free slots only, so that new blocks do not push others out of G2 before they have reached the disk.
The source is not pinned: the engine does not wait for us. The worker compares the guards of the row's pages before and
after the copy, so a row of which a page was reused meanwhile fails as ``source_changed`` and stores nothing. An engine
that wants to wait holds a ticket.
Rows are queued by engine and place: of engines that hold the same content each can be the source, and the first whose
turn comes is.
Invariants: a content is on its way into G2 at most once; granted slots are registered or freed when, and only when,
their job has settled; a row that waits or is under way holds the tickets of its registrations.
Threading: owned by the event loop of the service. No await.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from blockyard.core.clear_scope import ClearScope
from blockyard.core.events import BlockScope
from blockyard.core.handles import MutableBlocks
from blockyard.core.offload_queue import OffloadCopy, OffloadQueue
from blockyard.core.settlement import SettlementTicket
from blockyard.core.vocabulary import ContentKey, EngineBlockId, Executor, JobKind, Lane, Tier, WorkerRole
from blockyard.core.work_queue import QueueLimits
from blockyard.wire.codec import MAX_PAGES_PER_CALL
from blockyard.wire.trace_parent import NO_TRACE, TraceParent
from blockyard_block_manager.causes import cause_of
from blockyard_block_manager.disk_writer import DiskWriter
from blockyard_block_manager.engine_sessions import EngineSession
from blockyard_block_manager.flights import Flights
from blockyard_block_manager.g1_set import G1Row
from blockyard_block_manager.job_desk import JobDesk
from blockyard_block_manager.job_order import JobOrder, OrderReport, Places
from blockyard_block_manager.landing import Landing
from blockyard_block_manager.manager_metrics import DropReason, ManagerMetrics
from blockyard_block_manager.node_profile import NodeProfile
from blockyard_block_manager.node_tables import NodeTables


class _Lane(NamedTuple):
    """What can go into one job."""

    session: EngineSession
    scope: BlockScope


class _Place(NamedTuple):
    """A row in the memory of an engine, and what it holds."""

    session: EngineSession
    first_page: EngineBlockId
    key: ContentKey


class _Wanted(NamedTuple):
    row: G1Row
    lane: _Lane
    trace: TraceParent


_Copy = OffloadCopy[_Place, _Wanted]


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
        self._queue: OffloadQueue[_Place, _Lane, _Wanted] = OffloadQueue(QueueLimits(profile.backlog_blocks))
        self._latest: dict[EngineSession, dict[EngineBlockId, _Place]] = {}
        """What was wanted last of each place, while that is queued."""
        self._offers: dict[EngineSession, Iterator[G1Row]] = {}
        """What engines held when all of it was offered, and is still to be looked at."""

    @property
    def waiting(self) -> int:
        """Rows that wait."""
        return self._queue.waiting

    def store(
        self,
        session: EngineSession,
        rows: Sequence[G1Row],
        trace: TraceParent = NO_TRACE,
        ticket: SettlementTicket | None = None,
    ) -> int:
        """Plan stores of rows of one scope; returns how many are wanted, now or when there is room."""
        if not rows:
            return 0
        keys = [row.name.key for row in rows]
        held = self._tables.holds(Tier.G2, keys, rows[0].scope.group)
        wanted = self._store(session, rows, keys, held, trace, ticket)
        again = [row.name for row, here in zip(rows, held, strict=True) if here]
        if again:
            self._disk.used(rows[0].scope, again, trace)
        return wanted

    def offer(self, sessions: Iterable[EngineSession]) -> None:
        """Plan stores of everything that engines hold: after G2 became usable, or an engine was mapped.

        It is looked at in parts, so that nobody waits for it; ``pump`` goes on.
        """
        self._offers.update(
            (session, iter(session.g1)) for session in sessions if session.executor is not Executor.ENGINE
        )
        self.pump()

    def forget(self, session: EngineSession) -> None:
        """An engine, or its memory, is gone: what waits is given up; what is under way ends by itself."""
        self._offers.pop(session, None)
        for place in self._latest.pop(session, {}).values():
            self._queue.cancel(place)

    def clear(self, scope: ClearScope) -> int:
        """G2 is cleared: forget what waits and is in scope; returns how many rows that were."""
        places = [copy.name for copy in self._queue.waiting_copies() if _in_scope(copy.work.row, scope)]
        for place in places:
            self._no_longer_latest(place)
            self._queue.cancel(place)
        for session, rows in list(self._offers.items()):
            self._offers[session] = iter([row for row in rows if not _in_scope(row, scope)])
        self._metrics.dropped(DropReason.CLEARED, len(places))
        return len(places)

    def pump(self) -> None:
        """Issue jobs for what waits, as far as there is room, and go on with what is offered."""
        for session in list(self._offers):
            if len(self._latest.get(session, ())) < self._profile.listing_part:
                self._offer_part(session)
        self._issue_waiting()

    # --- inside -------------------------------------------------------------------------------------------------------
    def _offer_part(self, session: EngineSession) -> None:
        part = list(islice(self._offers[session], self._profile.listing_part))
        if len(part) < self._profile.listing_part:
            del self._offers[session]
        grouped: dict[object, list[G1Row]] = {}
        for row in part:
            if session.g1.holds(row):
                grouped.setdefault(row.scope, []).append(row)
        for rows in grouped.values():
            rows.sort(key=lambda row: row.name.position)
            keys = [row.name.key for row in rows]
            self._store(session, rows, keys, self._tables.holds(Tier.G2, keys, rows[0].scope.group))

    def _store(
        self,
        session: EngineSession,
        rows: Sequence[G1Row],
        keys: Sequence[ContentKey],
        held: Sequence[bool],
        trace: TraceParent = NO_TRACE,
        ticket: SettlementTicket | None = None,
    ) -> int:
        lane = _Lane(session, rows[0].scope)
        coming = self._flights.under_way(Tier.G2, keys, lane.scope.group)
        known = [here or on_its_way for here, on_its_way in zip(held, coming, strict=True)]
        before, joins = self._queue.dropped, ticket is not None and len(self._queue) > 0
        for row, key, taken_care_of in zip(rows, keys, known, strict=True):
            if not taken_care_of:
                self._want(_Place(session, row.pages[0], key), _Wanted(row, lane, trace), ticket)
            elif joins:
                self._join(_Place(session, row.pages[0], key), row, ticket)
        self._metrics.dropped(DropReason.STORE_BACKLOG, self._queue.dropped - before)
        self._issue_waiting()
        return known.count(False)

    def _issue_waiting(self) -> None:
        if not self._queue.waiting or not self._desk.answering(WorkerRole.OFFLOAD_WORKER):
            return
        while self._queue.waiting and (room := self._disk.g2_room(self._profile.max_items)):
            copies = self._queue.take(room, _rows_per_job)
            if not copies:
                return
            batch = self._still_wanted(copies)
            if batch:
                self._issue(batch)

    def _join(self, place: _Place, row: G1Row, ticket: SettlementTicket | None) -> None:
        """Wait for the store of this very row, if it waits or is under way."""
        copy = self._queue.find(place)
        if copy is not None and copy.work.row == row:
            copy.hold(ticket)

    def _want(self, place: _Place, wanted: _Wanted, ticket: SettlementTicket | None) -> None:
        """Queue a row; an earlier content of the same memory is given up."""
        latest = self._latest.setdefault(place.session, {})
        earlier = self._queue.find(latest[place.first_page]) if place.first_page in latest else None
        if earlier is not None and earlier.work.row != wanted.row:
            self._queue.cancel(earlier.name)
        latest[place.first_page] = place
        offer = self._queue.offer(place, wanted, lane=wanted.lane, ticket=ticket)
        for dropped in offer.dropped:
            self._no_longer_latest(dropped)

    def _no_longer_latest(self, place: _Place) -> None:
        """A row does not wait any more."""
        latest = self._latest.get(place.session, {})
        if latest.get(place.first_page) == place:
            del latest[place.first_page]
            if not latest:
                self._latest.pop(place.session, None)

    def _still_wanted(self, copies: Sequence[_Copy]) -> list[_Copy]:
        """Those of these rows of one lane that are to be copied now; the others are done."""
        (session, scope), keys = copies[0].work.lane, [copy.name.key for copy in copies]
        held = self._tables.holds(Tier.G2, keys, scope.group)
        coming = self._flights.under_way(Tier.G2, keys, scope.group)
        batch: dict[ContentKey, _Copy] = {}
        passed: list[_Copy] = []
        for copy, key, here, on_its_way in zip(copies, keys, held, coming, strict=True):
            self._no_longer_latest(copy.name)
            if here or on_its_way or key in batch or not session.g1.holds(copy.work.row):
                passed.append(copy)
            else:
                batch[key] = copy
        self._queue.settle(passed)
        return list(batch.values())

    def _issue(self, batch: Sequence[_Copy]) -> None:
        session, scope = batch[0].work.lane
        rows = [copy.work.row for copy in batch]
        names = tuple(row.name for row in rows)
        cause = cause_of(copy.work.trace for copy in batch)
        granted = self._tables.grant(Tier.G2, len(rows))
        self._flights.start(Tier.G2, [copy.name.key for copy in batch], scope.group, Tier.G1, cause.trace)
        order = JobOrder(
            role=WorkerRole.OFFLOAD_WORKER,
            kind=JobKind.G1_G2,
            lane=Lane.STORE,
            ttl_ms=self._profile.store_ttl_ms,
            count=len(names),
            names=names,
            scope=scope,
            source=Places(
                tuple(page for row in rows for page in row.pages), tuple(guard for row in rows for guard in row.guards)
            ),
            target=Places(granted.ids, granted.generations),
            mapping=session.mapping or 0,
            cause=cause,
        )
        self._desk.hand_in(order, lambda report: self._settled(batch, order, granted, report))

    def _settled(self, batch: Sequence[_Copy], order: JobOrder, granted: MutableBlocks, report: OrderReport) -> None:
        self._landing.settle(Tier.G2, order, granted, report, Tier.G1)
        self._queue.settle(batch)


def _in_scope(row: G1Row, scope: ClearScope) -> bool:
    return scope.covers(row.scope.identity, row.scope.tenant)


def _rows_per_job(lane: _Lane) -> int:
    """Most rows of a lane in one job; none while nobody maps the memory of its engine."""
    if lane.session.mapping is None:
        return 0
    return MAX_PAGES_PER_CALL // lane.session.pages_per_row[lane.scope.group]
