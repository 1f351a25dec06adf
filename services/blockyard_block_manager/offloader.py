"""Stores from engine memory into G2: every complete row that G2 neither holds nor awaits is copied.

Rows wait in a bounded backlog until G2 has room: slots that are free, or held by nobody. While G3 still has copies to
take, stores wait too, so that new blocks do not push others out of G2 before they have reached the disk.
The source is not pinned: the engine does not wait for us. The worker compares the guards of the row's pages before and
after the copy, so a row of which a page was reused meanwhile fails as ``source_changed`` and stores nothing. An engine
that wants to wait holds a ticket.
Invariants: a content is on its way into G2 at most once; granted slots are registered or freed when, and only when,
their job has settled; a row in the backlog or under way holds the tickets of its registrations.
Threading: owned by the event loop of the service. No await.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from blockyard.core.handles import MutableBlocks
from blockyard.core.vocabulary import ContentKey, EngineBlockId, Executor, JobKind, Lane, Tier, WorkerRole
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
from blockyard_block_manager.store_ticket import StoreTicket


@dataclass(slots=True, eq=False)
class _Wanted:
    row: G1Row
    trace: TraceParent
    tickets: list[StoreTicket] = field(default_factory=list)

    def hold(self, ticket: StoreTicket | None) -> None:
        """One more registration of the row."""
        if ticket is not None:
            ticket.hold()
            self.tickets.append(ticket)

    def done(self) -> None:
        """The row is neither wanted nor read any more."""
        tickets, self.tickets = self.tickets, []
        for ticket in tickets:
            ticket.let_go()


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
        """By the first page of the row."""
        self._under_way: dict[EngineSession, dict[EngineBlockId, _Wanted]] = {}
        self._offers: dict[EngineSession, Iterator[G1Row]] = {}
        """What engines held when all of it was offered, and is still to be looked at."""

    @property
    def waiting(self) -> int:
        """Rows in the backlog."""
        return sum(map(len, self._backlog.values()))

    def store(
        self,
        session: EngineSession,
        rows: Sequence[G1Row],
        trace: TraceParent = NO_TRACE,
        ticket: StoreTicket | None = None,
    ) -> int:
        """Plan stores of rows of one scope; returns how many are wanted, now or when there is room."""
        if not rows:
            return 0
        keys = [row.name.key for row in rows]
        group = rows[0].scope.group
        held = self._tables.holds(Tier.G2, keys, group)
        coming = self._flights.under_way(Tier.G2, keys, group)
        waiting = self._backlog.setdefault(session, {})
        wanted: list[G1Row] = []
        for row, here, on_its_way in zip(rows, held, coming, strict=True):
            if not (here or on_its_way):
                wanted.append(row)
            else:
                for earlier in self._of_row(session, row):
                    earlier.hold(ticket)
        for row in wanted:
            self._want(waiting, row, trace, ticket)
        self._drop(waiting, max(self.waiting - self._profile.backlog_blocks, 0), DropReason.STORE_BACKLOG)
        self._issue_waiting()
        return len(wanted)

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
        for wanted in self._backlog.pop(session, {}).values():
            wanted.done()

    def clear(self) -> int:
        """G2 is cleared: forget what waits; returns how many rows that were."""
        dropped = self.waiting
        self._offers.clear()
        for session in list(self._backlog):
            self.forget(session)
        self._metrics.dropped(DropReason.CLEARED, dropped)
        return dropped

    def pump(self) -> None:
        """Issue jobs for the backlog, as far as there is room, and go on with what is offered."""
        for session in list(self._offers):
            if len(self._backlog.get(session, ())) < self._profile.listing_part:
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
            self.store(session, sorted(rows, key=lambda row: row.name.position))

    def _issue_waiting(self) -> None:
        if not self._backlog or self._disk.busy or not self._desk.answering(WorkerRole.OFFLOAD_WORKER):
            return
        for session, waiting in list(self._backlog.items()):
            while waiting and session.mapping is not None and (room := self._tables.room(Tier.G2)):
                batch = self._next_batch(session, waiting, min(room, self._profile.max_items))
                if batch:
                    self._issue(session, session.mapping, batch)
            if not waiting:
                self._backlog.pop(session, None)

    def _want(
        self, waiting: dict[EngineBlockId, _Wanted], row: G1Row, trace: TraceParent, ticket: StoreTicket | None
    ) -> None:
        """Enter a row into the backlog; a newer content of the same memory goes to the end."""
        earlier = waiting.pop(row.pages[0], None)
        if earlier is None or earlier.row != row:
            if earlier is not None:
                earlier.done()
            earlier = _Wanted(row, trace)
        earlier.hold(ticket)
        waiting[row.pages[0]] = earlier

    def _drop(self, waiting: dict[EngineBlockId, _Wanted], count: int, reason: DropReason) -> None:
        """Give up the oldest rows of a backlog."""
        for oldest in list(islice(waiting, count)):
            waiting.pop(oldest).done()
        self._metrics.dropped(reason, count)

    def _of_row(self, session: EngineSession, row: G1Row) -> list[_Wanted]:
        """The stores of this very row that wait or are under way."""
        places = (self._backlog, self._under_way)
        found = [place.get(session, {}).get(row.pages[0]) for place in places]
        return [wanted for wanted in found if wanted is not None and wanted.row == row]

    def _next_batch(self, session: EngineSession, waiting: dict[EngineBlockId, _Wanted], limit: int) -> list[_Wanted]:
        """Take rows of one scope off the head of the backlog; returns those that are still to be stored."""
        scope = next(iter(waiting.values())).row.scope
        limit = min(limit, MAX_PAGES_PER_CALL // session.pages_per_row[scope.group])
        batch: dict[ContentKey, _Wanted] = {}
        passed: list[_Wanted] = []
        looked_at = 0
        for wanted in waiting.values():
            row = wanted.row
            if row.scope != scope or len(batch) == limit:
                break
            looked_at += 1
            if session.g1.holds(row) and not self._taken_care_of(row) and row.name.key not in batch:
                batch[row.name.key] = wanted
            else:
                passed.append(wanted)
        for entry in list(islice(waiting, looked_at)):
            del waiting[entry]
        for wanted in passed:
            wanted.done()
        return list(batch.values())

    def _taken_care_of(self, row: G1Row) -> bool:
        key, group = [row.name.key], row.scope.group
        return self._tables.holds(Tier.G2, key, group)[0] or self._flights.under_way(Tier.G2, key, group)[0]

    def _issue(self, session: EngineSession, mapping: int, batch: Sequence[_Wanted]) -> None:
        rows = [wanted.row for wanted in batch]
        names, scope = tuple(row.name for row in rows), rows[0].scope
        cause = cause_of(wanted.trace for wanted in batch)
        granted = self._tables.grant(Tier.G2, len(rows))
        self._flights.start(Tier.G2, [name.key for name in names], scope.group, Tier.G1, cause.trace)
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
            mapping=mapping,
            cause=cause,
        )
        self._under_way.setdefault(session, {}).update((wanted.row.pages[0], wanted) for wanted in batch)
        self._desk.hand_in(order, lambda report: self._settled(session, batch, order, granted, report))

    def _settled(
        self,
        session: EngineSession,
        batch: Sequence[_Wanted],
        order: JobOrder,
        granted: MutableBlocks,
        report: OrderReport,
    ) -> None:
        self._landing.settle(Tier.G2, order, granted, report, Tier.G1)
        # A later job for the same memory may have taken the place of this one, and have ended before it.
        reading = self._under_way.get(session, {})
        for wanted in batch:
            if reading.get(wanted.row.pages[0]) is wanted:
                del reading[wanted.row.pages[0]]
            wanted.done()
        if not reading:
            self._under_way.pop(session, None)
