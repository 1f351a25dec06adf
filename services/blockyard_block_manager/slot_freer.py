"""FREE and BAD headers: the way of a slot from "left the table" to "may be granted again".

::

    doomed slots ──batch──► FREE job ──header says FREE, or never named this grant──► granted again
         ▲                     │
         └── expired, lost, worker away: again after a pause, or at its next attach ──┘

A slot is kept until its header is known to be FREE, however often that takes: a header that still says READY would
bring a cleared block back at the next restart, and on disk may not get a new payload under it.
A large clear hands in only a few jobs at a time: the others would run out of time in the queue of the worker, and
every look at that queue would pass them.
Invariants: every doomed slot taken in is in exactly one of ``_waiting``, ``_resting`` and a job until it is free.
Threading: owned by the event loop of the service. No await.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from blockyard.core.clock import Clock
from blockyard.core.handles import DoomedBlocks
from blockyard.core.vocabulary import BlockId, Generation, ItemStatus, JobKind, Lane, Tier, WorkerRole
from blockyard_block_manager.job_desk import JobDesk
from blockyard_block_manager.job_order import JobOrder, OrderEnd, OrderReport, Places
from blockyard_block_manager.node_tables import LOCAL_TIERS, NodeTables, StaleHeader

RETRY_SECONDS: Final = 1.0
OPEN_JOBS: Final = 16
"""Jobs under way per tier."""
_TTL_MS: Final = 30_000
NOT_AS_NAMED: Final = frozenset({ItemStatus.CORRUPT, ItemStatus.STALE, ItemStatus.IDENTITY_MISMATCH})
"""What a job says of a source that is not what the table says."""


@dataclass(slots=True, eq=False)
class FreeTicket:
    """Counts the slots that one operation wants freed."""

    tier: Tier
    open_slots: int = 0
    freed_slots: int = 0


@dataclass(slots=True, eq=False)
class _Batch:
    tier: Tier
    bad: bool
    slots: DoomedBlocks | None
    tickets: list[FreeTicket]
    stale: tuple[StaleHeader, ...] = ()
    not_before: float = 0.0

    def __len__(self) -> int:
        return len(self.stale) if self.slots is None else len(self.slots)

    @property
    def places(self) -> Places:
        if self.slots is None:
            return Places(tuple(item.block for item in self.stale), tuple(item.generation for item in self.stale))
        return Places(self.slots.ids, self.slots.generations)


class SlotFreer:
    """Slots on their way back to their pool."""

    def __init__(self, tables: NodeTables, desk: JobDesk, clock: Clock, max_items: int) -> None:
        """Free slots of ``tables`` by jobs of at most ``max_items`` slots."""
        self._tables = tables
        self._desk = desk
        self._clock = clock
        self._max_items = max_items
        self._waiting: dict[Tier, deque[_Batch]] = {tier: deque() for tier in LOCAL_TIERS}
        self._resting: deque[_Batch] = deque()
        """After a failure, in the order in which their pauses end."""
        self._in_jobs: dict[Tier, set[_Batch]] = {tier: set() for tier in LOCAL_TIERS}
        self._pending = dict.fromkeys(LOCAL_TIERS, 0)
        self._tickets: list[FreeTicket] = []
        self._damaged: dict[Tier, set[tuple[BlockId, Generation]]] = {tier: set() for tier in LOCAL_TIERS}
        """Damaged blocks that left the table while somebody held them."""

    def pending(self, tier: Tier) -> int:
        """Slots of a tier that are on their way."""
        return self._pending[tier]

    def at_work(self, tier: Tier) -> bool:
        """Whether a job frees slots of a tier now; false while a failed one rests."""
        return bool(self._in_jobs[tier])

    def open_ticket(self, tier: Tier) -> FreeTicket:
        """Start to count: slots that are on their way, and those whose holders let go from now on, belong to it."""
        ticket = FreeTicket(tier)
        for batch in self._batches(tier):
            batch.tickets.append(ticket)
            ticket.open_slots += len(batch)
        self._tickets.append(ticket)
        return ticket

    def close_ticket(self, ticket: FreeTicket) -> None:
        """Stop to count."""
        self._tickets.remove(ticket)

    def free(self, tier: Tier, slots: DoomedBlocks, *, bad: bool = False, counted: bool = False) -> None:
        """Take doomed slots in; they belong to this object from now on.

        ``counted``: whoever has a ticket for the tier open waits for them too.
        """
        self._take_in(tier, slots, self._open_tickets(tier) if counted else [], bad)
        self.pump()

    def condemn_damaged(self, tier: Tier, places: Places, statuses: Sequence[ItemStatus]) -> None:
        """Take sources out of the table that are not what it says, with their families: damaged ones get BAD headers.

        The sources were pinned, so a header that names another block or grant can only mean that the table is wrong.
        Their slots come back when the last holder lets go.
        """
        for block, generation, status in zip(places.indexes, places.marks, statuses, strict=True):
            if status in NOT_AS_NAMED:
                row, grant = BlockId(block), Generation(generation)
                family = self._tables.condemn_family(tier, row, grant)
                pool, damaged = self._tables.pool(tier), status is ItemStatus.CORRUPT
                if damaged and pool.is_doomed(row) and pool.generation(row) == grant:
                    self._damaged[tier].add((row, grant))
                self.free(tier, family.damaged, bad=damaged)
                for slots in family.relatives:
                    self.free(tier, slots)

    def free_stale(self, headers: tuple[StaleHeader, ...], ticket: FreeTicket) -> None:
        """Free headers of G2 slots that nobody holds; a slot granted meanwhile is left alone by its generation."""
        for start in range(0, len(headers), self._max_items):
            self._enter(_Batch(Tier.G2, False, None, [ticket], headers[start : start + self._max_items]))
        self.pump()

    def collect(self) -> None:
        """Take in what became free-able because its last holder let go."""
        for tier in LOCAL_TIERS:
            drained = self._tables.drain_doomed(tier)
            if drained is not None:
                tickets, damaged = self._open_tickets(tier), self._damaged[tier]
                places = list(zip(drained.ids, drained.generations, strict=True))
                self._take_in(
                    tier, drained.split([i for i, place in enumerate(places) if place in damaged]), tickets, bad=True
                )
                damaged.difference_update(places)
                self._take_in(tier, drained, tickets, bad=False)
        self.pump()

    def pump(self) -> None:
        """Hand in what waits, as far as the worker is there, the pause after a failure is over and jobs may be open."""
        if not self._desk.attached(WorkerRole.OFFLOAD_WORKER):
            return
        if self._resting:
            now = self._clock.monotonic()
            while self._resting and self._resting[0].not_before <= now:
                batch = self._resting.popleft()
                self._waiting[batch.tier].append(batch)
        for tier, waiting in self._waiting.items():
            while waiting and len(self._in_jobs[tier]) < OPEN_JOBS:
                self._hand_in(waiting.popleft())

    def close(self) -> None:
        """Let go of all slots; their headers stay as they are, for the next life to read."""
        for batch in (*self._resting, *(batch for waiting in self._waiting.values() for batch in waiting)):
            if batch.slots is not None:
                batch.slots.release()
        self._resting.clear()
        for waiting in self._waiting.values():
            waiting.clear()

    # --- inside -------------------------------------------------------------------------------------------------------
    def _batches(self, tier: Tier) -> list[_Batch]:
        resting = (batch for batch in self._resting if batch.tier is tier)
        return [*self._in_jobs[tier], *self._waiting[tier], *resting]

    def _open_tickets(self, tier: Tier) -> list[FreeTicket]:
        return [ticket for ticket in self._tickets if ticket.tier is tier]

    def _take_in(self, tier: Tier, slots: DoomedBlocks, tickets: list[FreeTicket], bad: bool) -> None:
        for part in slots.cut(self._max_items):
            self._enter(_Batch(tier, bad, part, list(tickets)))

    def _enter(self, batch: _Batch) -> None:
        for ticket in batch.tickets:
            ticket.open_slots += len(batch)
        self._pending[batch.tier] += len(batch)
        self._waiting[batch.tier].append(batch)

    def _hand_in(self, batch: _Batch) -> None:
        self._in_jobs[batch.tier].add(batch)
        order = JobOrder(
            role=WorkerRole.OFFLOAD_WORKER,
            kind=JobKind.FREE,
            lane=Lane.STORE,
            ttl_ms=_TTL_MS,
            count=len(batch),
            target=batch.places,
            free_tier=batch.tier,
            bad=batch.bad,
        )
        self._desk.hand_in(order, lambda report: self._settled(batch, report))

    def _settled(self, batch: _Batch, report: OrderReport) -> None:
        self._in_jobs[batch.tier].discard(batch)
        if not _is_final(report):
            self._again(batch, report.end)
            return
        count = len(batch)
        self._pending[batch.tier] -= count
        for header in batch.stale:
            self._tables.header_freed(header)
        if batch.slots is not None:
            batch.slots.release()
        for ticket in batch.tickets:
            ticket.open_slots -= count
            ticket.freed_slots += count

    def _again(self, batch: _Batch, end: OrderEnd) -> None:
        if end is OrderEnd.LOST or not self._desk.attached(WorkerRole.OFFLOAD_WORKER):
            self._waiting[batch.tier].appendleft(batch)  # the next attach is the better time
        else:
            batch.not_before = self._clock.monotonic() + RETRY_SECONDS
            self._resting.append(batch)


def _is_final(report: OrderReport) -> bool:
    """OK: the header says so. SKIPPED in a job that was carried out: the header never named this grant."""
    if report.end is not OrderEnd.RESULT or report.cut_short:
        return False
    return all(status in (ItemStatus.OK, ItemStatus.SKIPPED) for status in report.statuses)
