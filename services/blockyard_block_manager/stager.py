"""Slow stages of loads: jobs that bring blocks from G3 or G4 into G2. Whoever needs the block joins its flight.

A stage belongs to nobody's load: a load that ends early only stops waiting, and the block still lands for the next.
A request waits for it, so it waits for no disk: it takes the reserve of G2 first, and what leaves beyond that before it
was written is counted (``DiskWriter.evicted``).
In traces it is caused by the load that asked first; loads that join it link to that one.
Invariants: a content is on its way into G2 at most once; sources in G3 are pinned until the job has settled; a source
that proved damaged or missing leaves tables, index and events at once.
Threading: owned by the event loop of the service. No await.
"""

from collections.abc import Iterable, Sequence
from itertools import count, groupby

from blockyard.core.block_name import BlockName
from blockyard.core.events import BlockScope
from blockyard.core.handles import MutableBlocks
from blockyard.core.pins import PinKind, PinOwner
from blockyard.core.vocabulary import ItemStatus, JobKind, Lane, Tier, WorkerRole
from blockyard.tiers.index_value import Locator
from blockyard.wire.trace_parent import NO_TRACE, TraceParent
from blockyard.wire.worker_channel import Pack
from blockyard_block_manager.causes import Cause
from blockyard_block_manager.flights import Flights
from blockyard_block_manager.job_desk import JobDesk
from blockyard_block_manager.job_order import JobOrder, OrderReport, Places
from blockyard_block_manager.landing import Landing
from blockyard_block_manager.node_profile import NodeProfile
from blockyard_block_manager.node_tables import NodeTables
from blockyard_block_manager.pack_writer import PackWriter
from blockyard_block_manager.slot_freer import SlotFreer

_NOT_THERE = (ItemStatus.CORRUPT, ItemStatus.NOT_FOUND, ItemStatus.IDENTITY_MISMATCH)


class Stager:
    """Plans G3 to G2 and G4 to G2 jobs."""

    def __init__(
        self,
        profile: NodeProfile,
        tables: NodeTables,
        flights: Flights,
        desk: JobDesk,
        landing: Landing,
        freer: SlotFreer,
        packs: PackWriter,
    ) -> None:
        """Plan over ``tables``, hand jobs to ``desk``, tell ``packs`` what the store has."""
        self._profile = profile
        self._tables = tables
        self._flights = flights
        self._desk = desk
        self._landing = landing
        self._freer = freer
        self._packs = packs
        self._numbers = count(1)

    def from_disk(
        self, scope: BlockScope, names: Sequence[BlockName], ttl_ms: int, trace: TraceParent = NO_TRACE
    ) -> int:
        """Bring blocks that G3 holds into G2; returns for how many, from the start, there was room."""
        taken = names[: self._tables.room(Tier.G2)]
        for start in range(0, len(taken), self._profile.max_items):
            self._issue_disk(scope, tuple(taken[start : start + self._profile.max_items]), ttl_ms, trace)
        return len(taken)

    def from_store(
        self,
        scope: BlockScope,
        wanted: Sequence[tuple[BlockName, Locator]],
        ttl_ms: int,
        trace: TraceParent = NO_TRACE,
    ) -> int:
        """Bring blocks of the shared store into G2; returns for how many, from the start, there was room."""
        taken = wanted[: self._tables.room(Tier.G2)]
        for start in range(0, len(taken), self._profile.max_items):
            self._issue_store(scope, taken[start : start + self._profile.max_items], ttl_ms, trace)
        return len(taken)

    # --- inside -------------------------------------------------------------------------------------------------------
    def _issue_disk(self, scope: BlockScope, names: tuple[BlockName, ...], ttl_ms: int, trace: TraceParent) -> None:
        sources = self._tables.pool(Tier.G3).pin_all([name.key for name in names], scope.group)
        owner = PinOwner(PinKind.JOB, f"stage-{next(self._numbers)}")
        self._tables.pins.add(owner, sources)
        granted = self._start(scope, names, Tier.G3, trace)
        order = JobOrder(
            role=WorkerRole.OFFLOAD_WORKER,
            kind=JobKind.G3_G2,
            lane=Lane.LOAD,
            ttl_ms=ttl_ms,
            count=len(names),
            names=names,
            scope=scope,
            source=Places(sources.ids, sources.generations),
            target=Places(granted.ids, granted.generations),
            cause=Cause(trace),
        )
        self._desk.hand_in(order, lambda report: self._disk_settled(order, granted, owner, report))

    def _disk_settled(self, order: JobOrder, granted: MutableBlocks, owner: PinOwner, report: OrderReport) -> None:
        self._freer.condemn_damaged(Tier.G3, order.source, report.statuses)
        self._landing.settle(Tier.G2, order, granted, report, Tier.G3)
        self._tables.pins.release(owner)

    def _issue_store(
        self, scope: BlockScope, wanted: Sequence[tuple[BlockName, Locator]], ttl_ms: int, trace: TraceParent
    ) -> None:
        names = tuple(name for name, _ in wanted)
        granted = self._start(scope, names, Tier.G4, trace)
        order = JobOrder(
            role=WorkerRole.REMOTE_TIER,
            kind=JobKind.G4_GET,
            lane=Lane.LOAD,
            ttl_ms=ttl_ms,
            count=len(names),
            names=names,
            scope=scope,
            source=Places(tuple(locator.index for _, locator in wanted)),
            target=Places(granted.ids, granted.generations),
            packs=tuple(_packs(wanted)),
            cause=Cause(trace),
        )
        self._desk.hand_in(order, lambda report: self._store_settled(order, granted, report))

    def _store_settled(self, order: JobOrder, granted: MutableBlocks, report: OrderReport) -> None:
        read = [name for name, status in zip(order.names, report.statuses, strict=True) if status is ItemStatus.OK]
        gone = [name.key for name, status in zip(order.names, report.statuses, strict=True) if status in _NOT_THERE]
        self._packs.read(read, order.scope)
        self._packs.gone(gone, order.scope.group)
        self._landing.settle(Tier.G2, order, granted, report, Tier.G4)

    def _start(self, scope: BlockScope, names: Sequence[BlockName], source: Tier, trace: TraceParent) -> MutableBlocks:
        granted = self._tables.grant(Tier.G2, len(names))
        self._flights.start(Tier.G2, [name.key for name in names], scope.group, source, trace)
        return granted


def _packs(wanted: Sequence[tuple[BlockName, Locator]]) -> Iterable[Pack]:
    """Consecutive items of one pack as one part of the job; a block's index places the pack in the chain."""
    parts = [
        (locator.pack, locator.blocks, locator.stride_bytes, name.position - locator.index) for name, locator in wanted
    ]
    first = 0
    for (pack, blocks, stride, position), group in groupby(parts):
        length = len(list(group))
        yield Pack(
            pack=pack,
            first_item=first,
            count=length,
            first_position=position,
            blocks=blocks,
            stride_bytes=stride,
        )
        first += length
