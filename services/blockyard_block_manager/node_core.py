"""All decisions of the node, wired together: one synchronous object that requests, results and time act upon.

Each method is one section of the event loop: it changes tables, appends the events, hands in jobs, and ends by letting
everything go on that the change made possible. The processes around it (channels, API, bus) only carry messages in and
out.
Invariants: no method awaits; a method that raises ``RequestError`` or ``UnavailableError`` has changed nothing.
Threading: owned by the event loop of the service.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, TypeVar

from blockyard.core.arena_writers import ArenaWriters
from blockyard.core.block_name import BlockName
from blockyard.core.clear_scope import EVERYTHING, ClearScope
from blockyard.core.clock import Clock
from blockyard.core.errors import LoadingOffError
from blockyard.core.events import BlockScope
from blockyard.core.job_table import JobAction, JobLimits, JobTable
from blockyard.core.jobs import JobPhase, Refusal
from blockyard.core.outbox import Outbox
from blockyard.core.pack_plan import PackGeometry, PackPlanner
from blockyard.core.settlement import SettlementTicket
from blockyard.core.vocabulary import (
    Availability,
    ContentKey,
    EngineBlockId,
    Executor,
    GroupId,
    Guard,
    JobSeq,
    LoadId,
    RequestId,
    Tier,
    WorkerRole,
)
from blockyard.tiers.inventory_pages import InventoryPages
from blockyard.wire.connector_channel import Hello
from blockyard.wire.trace_parent import NO_TRACE, TraceParent
from blockyard.wire.worker_channel import Attached, JobResult
from blockyard_block_manager.arena_writers import RankWriters
from blockyard_block_manager.clearing import Clearing, ClearOperation, OnCleared
from blockyard_block_manager.decision_log import DecisionLog
from blockyard_block_manager.disk_writer import DiskWriter
from blockyard_block_manager.engine_sessions import EngineSession, EngineSessions
from blockyard_block_manager.event_log import EventLog
from blockyard_block_manager.flights import Flights
from blockyard_block_manager.g1_set import G1Row
from blockyard_block_manager.g2_offers import G2Offers
from blockyard_block_manager.inventory_match import Listing
from blockyard_block_manager.job_desk import JobDesk
from blockyard_block_manager.landing import Landing
from blockyard_block_manager.leases import Leases
from blockyard_block_manager.load import LoadCallback, SharedIndex
from blockyard_block_manager.loading_switch import LoadingSwitch
from blockyard_block_manager.lower_tiers import LowerTiers
from blockyard_block_manager.manager_metrics import ManagerMetrics
from blockyard_block_manager.manager_spans import ManagerSpans
from blockyard_block_manager.node_gauges import show_sizes
from blockyard_block_manager.node_profile import NodeProfile
from blockyard_block_manager.node_tables import LOCAL_TIERS, NodeTables
from blockyard_block_manager.offloader import Offloader
from blockyard_block_manager.onboarder import Onboarder
from blockyard_block_manager.pack_writer import PackWriter
from blockyard_block_manager.recovery import Recovery
from blockyard_block_manager.shared_catalogue import SharedCatalogue
from blockyard_block_manager.slot_freer import SlotFreer
from blockyard_block_manager.stager import Stager
from blockyard_block_manager.store_grants import EngineGrants
from blockyard_block_manager.windowed_groups import WindowedGroups

Decided = TypeVar("Decided")


class NodeCore:
    """The decisions of one life of the block-manager."""

    def __init__(
        self,
        profile: NodeProfile,
        limits: JobLimits,
        outbox: Outbox,
        index: SharedIndex,
        clock: Clock,
        metrics: ManagerMetrics,
        spans: ManagerSpans | None = None,
    ) -> None:
        """Wire everything; nothing is known until a worker attaches."""
        self.profile: Final = profile
        self.spans: Final = spans or ManagerSpans()
        self.events: Final = EventLog(outbox, profile.instance)
        self.tables: Final = NodeTables(
            self.events, profile.block_tokens, clock, {Tier.G2: profile.g2_eviction, Tier.G3: profile.g3_eviction}
        )
        self.desk: Final = JobDesk(
            JobTable(profile.epoch, clock, limits),
            clock,
            metrics,
            self.spans,
            payload_bytes=profile.block_bytes,
            queue_limit=profile.queue_limit,
        )
        self._windows = WindowedGroups()
        self.sessions: Final = EngineSessions(profile, self.events)
        self.catalogue: Final = SharedCatalogue(self.events, profile.shared_catalogue_blocks)
        self.leases: Final = Leases(profile, self.tables, clock)
        self.flights: Final = Flights()
        self.decisions: Final = DecisionLog(clock, metrics.decided)
        self.loading: Final = LoadingSwitch()
        self.loading.follow(metrics.loading)
        self._metrics = metrics
        self._freer = SlotFreer(self.tables, self.desk, clock, profile.max_items)
        landing = Landing(self.tables, self.flights, self._freer, metrics)
        parts = profile, self.tables, self.flights, self.desk, landing, self._freer, self._windows, self.sessions
        self._disk = DiskWriter(*parts, metrics, clock)
        self._offloader = Offloader(profile, self.tables, self.flights, self.desk, landing, self._disk, metrics)
        planner = PackPlanner(
            PackGeometry(profile.block_bytes, profile.pack_target_bytes), tail_idle_seconds=profile.tail_idle_seconds
        )
        self._packs = PackWriter(profile, self.tables, self.desk, self._freer, self.catalogue, planner, clock)
        below = LowerTiers(self._disk, self._packs, metrics)
        landing.on_g2, self.tables.on_evicted, self.tables.on_left = below.landed, below.evicted, below.left
        stager = Stager(profile, self.tables, self.flights, self.desk, landing, self._freer, self._packs)
        self.loads: Final = Onboarder(
            profile, self.tables, self.flights, self.desk, stager, self._freer, index, clock, metrics, self.spans
        )
        self.loads.on_used = self._disk.used
        self.recovery: Final = Recovery(profile, self.tables, self.desk, self._freer)
        grants = EngineGrants(profile, self.tables, self.desk, self.flights, landing, self._disk, ArenaWriters(clock))
        self.ranks: Final = RankWriters(grants, self.loads.staged, self.recovery)
        cleared = self.tables, self.sessions, self.desk, self._freer, self._offloader, self._disk, self.recovery
        self.clearing: Final = Clearing(profile, *cleared)
        metrics.block_size(profile.block_bytes, profile.block_tokens)
        self._offers = G2Offers(profile, self.tables, self.desk, self._disk, self._packs, index, self._end_section)
        self._grants_were_open = False
        self.on_section_end: Callable[[], None] = lambda: None
        """Called when a section is over, for those who wait for something to become true."""

    # --- engines ------------------------------------------------------------------------------------------------------
    def open_session(self, hello: Hello) -> EngineSession:
        """Register an engine, whose ranks are still missing; an earlier session of it must have been closed.

        Raises:
            RequestError: the engine does not fit this node; the named field says why.
        """
        session = self.sessions.open(hello)
        self._offers.offer_windows(self._windows.learn(session.identity, session.groups))
        self._metrics.sessions(len(self.sessions))
        return session

    def ranks_attached(self, session: EngineSession, count: int) -> None:
        """So many ranks of an engine are attached now; once it is all, their memory can be mapped under a new number.

        While one is missing nothing moves: jobs of the earlier mapping are cancelled, loads end, stores are forgotten
        until the engine is mapped again.
        """
        if session.closed:
            return
        before = session.mapping_number
        session.mapping = session.mapping_number = None
        if before is not None:
            self.ranks.lost(session)
            self._offloader.forget(session)
            self.loads.unreachable(session)
            self.desk.cancel_mapping(before)
        if count == session.ranks:
            self.sessions.ranks_complete(session)
        self._end_section()

    def mapped(self, session: EngineSession, number: int) -> None:
        """The attached life of the offload-worker maps the engine's memory: what it holds can be stored now."""
        if session.mapping_number == number:
            session.mapping = number
            self._offloader.offer([session])
            self._end_section()

    def close_session(self, session: EngineSession) -> None:
        """An engine is gone: its set leaves with events, its leases, loads and jobs end. Idempotent."""
        if session.closed:
            return
        mapping = session.mapping_number
        self.ranks.lost(session)
        self.sessions.close(session)
        self._offloader.forget(session)
        self.leases.release_all(session)
        self.loads.abandon_all(session)
        if mapping is not None:
            self.desk.cancel_mapping(mapping)
        self._metrics.sessions(len(self.sessions))
        self._end_section()

    def register(
        self,
        session: EngineSession,
        rows: Sequence[G1Row],
        trace: TraceParent = NO_TRACE,
        on_stores_settled: Callable[[], None] | None = None,
    ) -> tuple[int, int]:
        """Complete rows of one scope; returns how many contents are new to the engine, and planned stores.

        ``on_stores_settled`` is told once no store of these rows is wanted or under way, perhaps before this returns.
        Where ranks copy, they bring their rows themselves.
        """
        fresh = self.sessions.register(session, rows)
        with SettlementTicket(on_stores_settled) as ticket:
            stores = 0
            if session.executor is not Executor.ENGINE:
                stores = self._offloader.store(session, rows, trace, ticket if on_stores_settled is not None else None)
            self._end_section()
        return fresh, stores

    def deregister(self, session: EngineSession, blocks: Sequence[EngineBlockId]) -> None:
        """The engine reuses or frees memory blocks."""
        self.sessions.deregister(session, blocks)
        self._end_section()

    def reset(self, session: EngineSession) -> None:
        """The engine dropped its whole set."""
        self.sessions.reset(session)
        self._end_section()

    # --- lookups and loads --------------------------------------------------------------------------------------------
    def answered(self, availability: Sequence[Availability]) -> None:
        """A lookup was answered like this: counts hits and their denominators."""
        self._metrics.looked_up(availability)

    def index_found(self, keys: Sequence[ContentKey], group: GroupId) -> None:
        """The shared index names these blocks."""
        self._packs.found(keys, group)

    def reserve(
        self,
        session: EngineSession,
        request: RequestId,
        names: Sequence[BlockName],
        groups: Sequence[GroupId],
        ttl_ms: int,
    ) -> int:
        """Take or renew the lease of a request; returns how many blocks from the start it holds in all groups."""
        held = self.leases.reserve(session, request, names, groups, ttl_ms) if self.tables.serving else 0
        self._end_section()
        return held

    def release(self, session: EngineSession, request: RequestId) -> None:
        """End the lease of a request. Idempotent."""
        self.leases.release(session, request)
        self._end_section()

    def open_load(
        self,
        session: EngineSession,
        request: RequestId,
        scope: BlockScope,
        names: Sequence[BlockName],
        pages: Sequence[EngineBlockId],
        guards: Sequence[Guard],
        ttl_ms: int,
        on_finished: LoadCallback,
        trace: TraceParent = NO_TRACE,
    ) -> LoadId:
        """Start a load; the request's lease of its group passes to it. ``on_finished`` may be told before this returns.

        Raises:
            LoadingOffError: loads are switched off.
        """
        if not self.loading.enabled:
            raise LoadingOffError(request=request)
        load = self.loads.open(session, scope, names, pages, guards, ttl_ms, on_finished, trace)
        self.leases.release_group(session, request, scope.group)
        self._end_section()
        return load

    def close_load(self, session: EngineSession, load: LoadId) -> None:
        """The engine has no more use for a load; it ends when no write of it can follow. Idempotent."""
        self.loads.abandon(session, load)
        self.ranks.staged.close(session, load)
        self._end_section()

    def decide(self, decision: Callable[[RankWriters], Decided]) -> Decided:
        """Decide something about ranks and what they may write or read: one section."""
        decided = decision(self.ranks)
        self._end_section()
        return decided

    # --- workers ------------------------------------------------------------------------------------------------------
    def worker_attached(self, role: WorkerRole, answer: Attached) -> bool:
        """A worker answered attach; returns whether the arena was replaced."""
        if role is WorkerRole.OFFLOAD_WORKER and answer.worker_epoch != self.recovery.epoch(role):
            for session in self.sessions:
                session.mapping = None  # a new life of the worker maps nothing yet
        replaced = self.recovery.attached(role, answer)
        if replaced:
            self.ranks.arena_replaced()
            self._metrics.arena_given_up()
        self._end_section()
        return replaced

    def worker_gone(self, role: WorkerRole) -> None:
        """The channel to a worker ended."""
        self.recovery.disconnected(role)
        self._end_section()

    def remote_proven_dead(self) -> None:
        """The remote tier does not run."""
        self.recovery.remote_proven_dead()
        self._end_section()

    def offload_proven_dead(self) -> None:
        """The process of the offload-worker that attached last is gone."""
        self.recovery.offload_proven_dead()
        self._end_section()

    def compare(self, listing: Listing, pages: Mapping[Tier, InventoryPages]) -> Iterator[None]:
        """All pages of an inventory have arrived: compare them with the tables, one section per step."""
        for _ in self.recovery.compare(listing, pages):
            self._end_section()
            yield
        self._end_section()

    def result(self, result: JobResult) -> None:
        """A worker reported the end of a job; the caller acknowledges it in any case."""
        self.desk.result(result)
        self._end_section()

    def job_refused(self, seq: JobSeq, reason: Refusal) -> None:
        """A worker will never run a job."""
        self.desk.refused(seq, reason)
        self._end_section()

    def job_state(self, seq: JobSeq, phase: JobPhase) -> None:
        """A worker answered cancel or poll."""
        self.desk.state_told(seq, phase)
        self._end_section()

    # --- operators and time -------------------------------------------------------------------------------------------
    def clear(self, tier: Tier, on_done: OnCleared, scope: ClearScope = EVERYTHING) -> ClearOperation:
        """Empty G2 or G3 of this node, or of a model or tenant; ``on_done``: a restart could bring nothing back."""
        [operation] = self.clearing.clear((tier,), scope, on_done)
        self._end_section()
        return operation

    def clear_all(self, on_done: OnCleared, scope: ClearScope = EVERYTHING) -> list[ClearOperation]:
        """Empty both tiers of this node in one section; ``on_done`` is told per tier."""
        tiers = [tier for tier in LOCAL_TIERS if tier is not Tier.G3 or self.tables.has(tier)]
        operations = self.clearing.clear(tiers, scope, on_done)
        self._end_section()
        return operations

    def sweep(self) -> None:
        """Take the next slice of what was cleared: a section of some milliseconds."""
        self.clearing.sweep()
        self._end_section()

    def tick(self) -> list[JobAction]:
        """Let time act: deadlines, leases, retries; returns the messages that are due to workers."""
        self.leases.expire()
        self.loads.tick()
        self._freer.pump()
        actions = self.desk.due()
        self._end_section()
        return actions

    def update_gauges(self) -> None:
        """Show the sizes of the tables in the metrics."""
        show_sizes(self._metrics, self.tables, self.sessions, self.ranks, self.desk, self.events)

    def close(self) -> None:
        """End of this life: every handle is given back; nothing is written anywhere, the headers stay the truth."""
        self.tables.grants_open = self.tables.serving = False
        self.desk.close()
        self.loads.close()
        self.recovery.close()
        self.ranks.grants.close()
        self.tables.pins.close()
        self._freer.collect()
        self._freer.close()

    # --- inside -------------------------------------------------------------------------------------------------------
    def _end_section(self) -> None:
        self._freer.collect()
        if self.tables.grants_open and not self._grants_were_open:
            self._offloader.offer(self.sessions)
        self._grants_were_open = self.tables.grants_open
        self._offers.step()
        self.loads.flush()
        self._disk.pump()
        self._offloader.pump()
        self._packs.pump()
        self.desk.shed()
        self._freer.collect()
        self.clearing.check()
        if self.recovery.needs_listing:
            self.desk.on_work(WorkerRole.OFFLOAD_WORKER)  # nothing else wakes its link while nothing is granted
        self.on_section_end()
