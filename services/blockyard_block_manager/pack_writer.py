"""Packs of blocks from G2 to the shared store: full segments at once, the tail of a chain when it rests.

Which packs are due is decided by the planner of the core; here their sources are pinned, the jobs handed in and the
results told to planner and catalogue. While the remote tier is away or hangs nothing is planned and nothing is pinned.
Rows of every KV group go there, each group in packs of its own; the planner knows them by their stored keys.
Invariants: sources are pinned from the plan of a job until it has settled; a pack counts as stored only if every
block of it was; ``offloaded`` to G4 is announced only then.
Threading: owned by the event loop of the service. No await.
"""

from collections.abc import Iterable, Sequence
from itertools import count, islice
from typing import Final

from blockyard.core.block_name import BlockName
from blockyard.core.clock import Clock
from blockyard.core.events import BlockScope
from blockyard.core.pack_plan import PackPlan, PackPlanner
from blockyard.core.pins import PinKind, PinOwner
from blockyard.core.stored_key import StoredKey, stored_key, stored_keys
from blockyard.core.vocabulary import ContentKey, GroupId, ItemStatus, JobKind, Lane, Tier, WorkerRole
from blockyard.wire.trace_parent import NO_TRACE, TraceParent
from blockyard.wire.worker_channel import Pack
from blockyard_block_manager.causes import cause_of
from blockyard_block_manager.job_desk import JobDesk
from blockyard_block_manager.job_order import JobOrder, OrderReport, Places
from blockyard_block_manager.node_profile import NodeProfile
from blockyard_block_manager.node_tables import NodeTables
from blockyard_block_manager.shared_catalogue import SharedCatalogue
from blockyard_block_manager.slot_freer import SlotFreer

_MOST_CAUSES: Final = 16_384
"""Blocks whose traces are remembered; a put of older ones begins a trace of its own."""


class PackWriter:
    """Plans G4 puts."""

    def __init__(
        self,
        profile: NodeProfile,
        tables: NodeTables,
        desk: JobDesk,
        freer: SlotFreer,
        catalogue: SharedCatalogue,
        planner: PackPlanner,
        clock: Clock,
    ) -> None:
        """Plan with ``planner`` over G2, hand jobs to ``desk``."""
        self._profile = profile
        self._tables = tables
        self._desk = desk
        self._freer = freer
        self._catalogue = catalogue
        self._planner = planner
        self._clock = clock
        self._numbers = count(1)
        self._causes: dict[StoredKey, TraceParent] = {}
        """What recently landed blocks were brought for, until they are stored; the planner knows no traces."""

    # --- what others learn --------------------------------------------------------------------------------------------
    def landed(self, scope: BlockScope, names: Sequence[BlockName], trace: TraceParent = NO_TRACE) -> None:
        """Blocks are readable in G2 and their full names are known."""
        if self._profile.g4_enabled:
            self._remember(names, scope.group, trace)
            self._planner.registered(names, scope, self._clock.monotonic())

    def left(self, blocks: Iterable[tuple[ContentKey, GroupId]]) -> None:
        """Blocks left G2."""
        if not self._profile.g4_enabled:
            return
        keys = [stored_key(key, group) for key, group in blocks]
        self._forget(keys)
        self._planner.evicted(keys, self._clock.monotonic())

    def found(self, keys: Iterable[ContentKey], group: GroupId) -> None:
        """The shared index names these blocks."""
        self._planner.known(stored_keys(keys, group))

    def read(self, names: Sequence[BlockName], scope: BlockScope) -> None:
        """Blocks were read from the store."""
        self._planner.known(_stored(names, scope.group))
        self._catalogue.seen(names, scope)

    def gone(self, keys: Sequence[ContentKey], group: GroupId) -> None:
        """The store does not have these blocks, or has damaged bytes."""
        self._planner.lost(stored_keys(keys, group), self._clock.monotonic())
        self._catalogue.gone(keys, group)

    # --- puts ---------------------------------------------------------------------------------------------------------
    def pump(self) -> None:
        """Issue jobs for the packs that are due, as far as packs may be open."""
        room = self._profile.g4_open_packs - self._planner.in_flight
        if room < 1 or not self._desk.answering(WorkerRole.REMOTE_TIER) or not self._tables.has(Tier.G2):
            return
        for plans in _jobs(self._planner.due(self._clock.monotonic(), room)):
            self._issue(plans)

    def _issue(self, plans: Sequence[PackPlan]) -> None:
        names = tuple(name for plan in plans for name in plan.names)
        scope = plans[0].scope
        sources = self._tables.pool(Tier.G2).scan([name.key for name in names], scope.group)  # a copy is no use
        if len(sources) < len(names):
            sources.release()
            self._fail(plans)
            return
        order = JobOrder(
            role=WorkerRole.REMOTE_TIER,
            kind=JobKind.G4_PUT,
            lane=Lane.STORE,
            ttl_ms=self._profile.store_ttl_ms,
            count=len(names),
            names=names,
            scope=scope,
            source=Places(sources.ids, sources.generations),
            packs=tuple(self._packs(plans)),
            cause=cause_of(self._causes.get(key, NO_TRACE) for plan in plans for key in plan.keys),
        )
        owner = PinOwner(PinKind.JOB, f"g4-put-{next(self._numbers)}")
        self._tables.pins.add(owner, sources)
        self._desk.hand_in(order, lambda report: self._settled(plans, order, owner, report))

    def _remember(self, names: Iterable[BlockName], group: GroupId, trace: TraceParent) -> None:
        if trace:
            self._causes.update(dict.fromkeys(_stored(names, group), trace))
        for oldest in list(islice(self._causes, max(len(self._causes) - _MOST_CAUSES, 0))):
            del self._causes[oldest]

    def _forget(self, keys: Iterable[StoredKey]) -> None:
        for key in keys:
            self._causes.pop(key, None)

    def _packs(self, plans: Sequence[PackPlan]) -> Iterable[Pack]:
        first = 0
        for plan in plans:
            yield Pack(
                pack=plan.pack,
                first_item=first,
                count=len(plan.names),
                first_position=plan.first_position,
                blocks=len(plan.names),
                stride_bytes=self._planner.geometry.stride_bytes,
            )
            first += len(plan.names)

    def _settled(self, plans: Sequence[PackPlan], order: JobOrder, owner: PinOwner, report: OrderReport) -> None:
        self._freer.condemn_damaged(Tier.G2, order.source, report.statuses)
        first = 0
        for plan in plans:
            statuses = report.statuses[first : first + len(plan.names)]
            first += len(plan.names)
            if all(status is ItemStatus.OK for status in statuses):
                self._forget(plan.keys)
                self._planner.stored(plan.pack)
                self._catalogue.stored(plan.names, plan.scope)
            else:
                self._fail([plan])
        self._tables.pins.release(owner)

    def _fail(self, plans: Iterable[PackPlan]) -> None:
        now = self._clock.monotonic()
        for plan in plans:
            self._planner.failed(plan.pack, now)


def _stored(names: Iterable[BlockName], group: GroupId) -> list[StoredKey]:
    return stored_keys((name.key for name in names), group)


def _jobs(plans: Iterable[PackPlan]) -> list[list[PackPlan]]:
    """Plans that continue the one before them go into its job."""
    jobs: list[list[PackPlan]] = []
    for plan in plans:
        if plan.previous is None or not jobs:
            jobs.append([plan])
        else:
            jobs[-1].append(plan)
    return jobs
