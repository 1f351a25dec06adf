"""Loads: from "bring these blocks into engine memory" to one exact answer per block.

::

    open ──► per block: pinned in G2 │ joins a flight │ G3 stage │ asks the index, then G4 stage │ no source: failed
         ──► when nothing is on its way any more, or the time for slow stages is over: one G2 to G1 job for what lies in
             G2, in order ──► a damaged G2 copy is condemned and its block starts over, while there is time ──► answer

Slow stages end in G2, so when their time is over the engine is answered without waiting for them; it waits for the last
hop (``last_hops``), whatever that takes. The slots of a staged load, which ranks copy themselves, stay pinned.
Invariants: every load ends exactly once; a load's pins end with it; a block whose source failed goes on with the next
source, and each source is tried once.
Threading: owned by the event loop of the service. No await.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from blockyard.core.block_name import BlockName, select
from blockyard.core.clock import Clock
from blockyard.core.errors import RequestError, UnavailableError
from blockyard.core.events import BlockScope
from blockyard.core.onboard_plan import ItemState, NextStep, OnboardPlan
from blockyard.core.vocabulary import (
    Availability,
    EngineBlockId,
    Guard,
    ItemStatus,
    LoadId,
    Tier,
    WorkerRole,
)
from blockyard.runtime.spans import MOST_LINKS
from blockyard.tiers.index_value import Locator
from blockyard.wire.trace_parent import NO_TRACE, TraceParent, is_sampled
from blockyard_block_manager.engine_sessions import EngineSession
from blockyard_block_manager.flights import Flights
from blockyard_block_manager.job_desk import JobDesk
from blockyard_block_manager.last_hops import LastHops
from blockyard_block_manager.load import Load, LoadCallback, SharedIndex
from blockyard_block_manager.manager_metrics import ManagerMetrics
from blockyard_block_manager.manager_spans import ManagerSpans
from blockyard_block_manager.node_profile import NodeProfile
from blockyard_block_manager.node_tables import NodeTables
from blockyard_block_manager.slot_freer import SlotFreer
from blockyard_block_manager.staged_loads import StagedLoads, unpin, unstaged
from blockyard_block_manager.stager import Stager

_LAST_HOP_SHARE: Final = 0.2
_LAST_HOP_SECONDS: Final = 0.25
"""Time kept back for the copy into engine memory: a fifth of the deadline, at most this much."""
_LIFE_OVER: Final = "life_over"


class Onboarder:
    """All open loads."""

    def __init__(
        self,
        profile: NodeProfile,
        tables: NodeTables,
        flights: Flights,
        desk: JobDesk,
        stager: Stager,
        freer: SlotFreer,
        index: SharedIndex,
        clock: Clock,
        metrics: ManagerMetrics,
        spans: ManagerSpans,
    ) -> None:
        """Load from ``tables``, over ``stager``, with what ``index`` knows."""
        self._profile = profile
        self._tables = tables
        self._flights = flights
        self._desk = desk
        self._stager = stager
        self._index = index
        self._clock = clock
        self._metrics = metrics
        self._spans = spans
        self._last_hops = LastHops(desk, freer, clock, self._advance)
        self.staged: Final = StagedLoads(tables)
        self.on_used: Callable[[BlockScope, Sequence[BlockName]], None] = lambda scope, names: None
        """Told which blocks a load found in G2."""
        self._loads: dict[LoadId, Load] = {}
        self._per_session: Counter[EngineSession] = Counter()
        self._dirty: set[Load] = set()
        self._last = 0

    def __len__(self) -> int:
        """Open loads."""
        return len(self._loads)

    # --- requests -----------------------------------------------------------------------------------------------------
    def open(
        self,
        session: EngineSession,
        scope: BlockScope,
        names: Sequence[BlockName],
        pages: Sequence[EngineBlockId],
        guards: Sequence[Guard],
        ttl_ms: int,
        on_finished: LoadCallback,
        trace: TraceParent = NO_TRACE,
    ) -> LoadId:
        """Start a load; ``on_finished`` is told its end, perhaps before this returns.

        Raises:
            UnavailableError: the engine has too many open loads; nothing was started.
            RequestError: a target is registered or named in another open load; nothing was started. A store that
                reads it under its old name would take the bytes of this load for it.
        """
        if registered := session.g1.registered(pages):
            raise RequestError("deregister a block before something is loaded into it", block=min(registered))
        if loading := session.load_targets.intersection(pages):
            raise RequestError("a block is named in another open load", block=min(loading))
        if self._per_session[session] >= self._profile.loads_per_session:
            raise UnavailableError("too many open loads", limit=self._profile.loads_per_session)
        self._last += 1
        now = self._clock.monotonic()
        seconds = ttl_ms / 1_000
        load = Load(
            load=LoadId(self._last),
            session=session,
            scope=scope,
            names=tuple(names),
            pages=tuple(pages),
            guards=tuple(guards),
            plan=OnboardPlan(len(names)),
            opened_at=now,
            deadline=now + seconds,
            stage_deadline=now + seconds - min(seconds * _LAST_HOP_SHARE, _LAST_HOP_SECONDS),
            on_finished=on_finished,
            span=self._spans.load_began(trace, len(names)),
        )
        self._loads[load.load] = load
        self._per_session[session] += 1
        session.load_targets.update(load.targets)
        load.due.update(range(len(names)))
        self._advance(load)
        return load.load

    def abandon(self, session: EngineSession, load_id: LoadId) -> None:
        """The engine has no more use for a load: it ends as soon as none of its writes can follow. Idempotent."""
        load = self._loads.get(load_id)
        if load is None or load.session is not session:
            return
        load.abandoned = True
        if load.last_hop is not None:
            self._desk.cancel(load.last_hop)
            return
        load.give_up(load.unsettled(), ItemStatus.SKIPPED)
        self._finish(load)

    def unreachable(self, session: EngineSession) -> None:
        """A rank of the engine is lost: nothing that is not under way into its memory gets there."""
        for load in list(self._loads.values()):
            if load.session is session and load.last_hop is None:
                load.give_up(load.unsettled(), ItemStatus.UNKNOWN)
                self._finish(load)

    def abandon_all(self, session: EngineSession) -> None:
        """The engine is gone."""
        for load in list(self._loads.values()):
            if load.session is session:
                self.abandon(session, load.load)

    @property
    def staging_rows(self) -> int:
        """Rows of loads that are being staged."""
        return sum(len(load.names) for load in self._loads.values() if load.staged)

    def is_open(self, session: EngineSession, load_id: LoadId) -> bool:
        """Whether a load of this session has not ended."""
        load = self._loads.get(load_id)
        return load is not None and load.session is session

    def close(self) -> None:
        """This life is over: nobody is answered any more."""
        for load in self._loads.values():
            load.span.end(_LIFE_OVER)

    # --- progress -----------------------------------------------------------------------------------------------------
    def flush(self) -> None:
        """Go on with loads whose blocks landed or failed since the last call."""
        while self._dirty:
            self._advance(self._dirty.pop())

    def tick(self) -> None:
        """End the slow stages of loads whose time for them is over."""
        now = self._clock.monotonic()
        for load in list(self._loads.values()):
            if load.plan.waiting and load.stage_deadline <= now:
                load.due.clear()
                load.plan.expire()
                self._advance(load)

    # --- sources ------------------------------------------------------------------------------------------------------
    def _advance(self, load: Load) -> None:
        """Find the next source of each block that needs one; then the last hop, once nothing is on its way."""
        if load.finished or load.last_hop is not None:
            return
        due = sorted(load.due)
        load.due.clear()
        if not self._serving(load):
            load.give_up(due, ItemStatus.UNKNOWN)
            due = []
        steps: dict[NextStep, list[int]] = {step: [] for step in NextStep}
        for index in self._not_in_reach(load, due):
            name = load.names[index]
            in_g3 = self._tables.holds(Tier.G3, [name.key], load.scope.group)[0]
            step = load.plan.next_step(index, in_g3=in_g3, remote_usable=self._index.usable())
            steps[step].append(index)
        self._read_disk(load, steps[NextStep.READ_G3])
        self._ask_index(load, steps[NextStep.SEEK_G4])
        self._read_store(load, steps[NextStep.READ_G4])
        for index in steps[NextStep.GIVE_UP]:
            load.give_up([index], self._miss(load, index))
        if not load.plan.waiting:
            self._last_hop(load)

    def _serving(self, load: Load) -> bool:
        """Whether blocks can reach the engine at all: tables complete, worker there and not hanging, engine mapped."""
        reachable = load.session.reachable
        return reachable and self._tables.serving and self._desk.answering(WorkerRole.OFFLOAD_WORKER)

    def _not_in_reach(self, load: Load, indexes: Sequence[int]) -> list[int]:
        """Pin what lies in G2, join what is on its way there; returns the others."""
        self._pin(load, indexes)
        others = [index for index in indexes if load.plan.state(index) is not ItemState.READY]
        return [index for index in others if not self._join(load, index)]

    def _pin(self, load: Load, indexes: Sequence[int], source: Tier | None = Tier.G2) -> None:
        """Pin those of the blocks that G2 holds; they are READY."""
        keys = [load.names[index].key for index in indexes]
        held = self._tables.holds(Tier.G2, keys, load.scope.group)
        found = [index for index, here in zip(indexes, held, strict=True) if here]
        if not found:
            return
        pinned = self._tables.pool(Tier.G2).pin_all([load.names[index].key for index in found], load.scope.group)
        for index, slot, generation in zip(found, pinned.ids, pinned.generations, strict=True):
            load.slots[index] = (slot, generation)
            load.plan.ready(index, source)
        self._tables.pins.add(load.owner, pinned)

    def _join(self, load: Load, index: int) -> bool:
        key, group = load.names[index].key, load.scope.group
        source = self._flights.source_of(Tier.G2, key, group)
        if source is None:
            return False
        # Bytes that another engine is just storing count as coming from G2: that is where this load finds them.
        load.plan.staging(index, Tier.G2 if source is Tier.G1 else source)
        if load.span.recording:
            self._link(load, self._flights.trace_of(Tier.G2, key, group))
        self._flights.join(Tier.G2, key, group, lambda status: self._landed(load, index, source, status))
        return True

    def _link(self, load: Load, other: TraceParent) -> None:
        """Say in the trace of a load whose blocks it waits for too: the first of those that are recorded."""
        if not is_sampled(other) or other == load.span.traceparent or len(load.linked) >= MOST_LINKS:
            return
        if other not in load.linked:
            load.linked.add(other)
            load.span.link(other)

    def _landed(self, load: Load, index: int, source: Tier, status: ItemStatus) -> None:
        """A flight that this load waits for has ended; runs while the block is still pinned."""
        if load.finished or load.plan.state(index) is not ItemState.STAGING:
            return
        if status is ItemStatus.OK:
            self._pin(load, [index], source=None)
        if load.plan.state(index) is ItemState.STAGING:
            if source is not Tier.G1:
                load.plan.source_failed(index, status)
            load.due.add(index)
        self._dirty.add(load)

    def _read_disk(self, load: Load, indexes: Sequence[int]) -> None:
        if indexes:
            names = select(load.names, indexes)
            trace = load.span.traceparent
            self._staged(load, indexes, self._stager.from_disk(load.scope, names, self._stage_ttl_ms(load), trace))

    def _read_store(self, load: Load, indexes: Sequence[int]) -> None:
        if indexes:
            wanted = [(load.names[index], load.locators[index]) for index in indexes]
            trace = load.span.traceparent
            self._staged(load, indexes, self._stager.from_store(load.scope, wanted, self._stage_ttl_ms(load), trace))

    def _staged(self, load: Load, indexes: Sequence[int], room: int) -> None:
        for index in indexes[:room]:
            if not self._join(load, index):
                load.give_up([index], ItemStatus.UNKNOWN)
        load.give_up(indexes[room:], ItemStatus.NO_SPACE)

    def _ask_index(self, load: Load, indexes: Sequence[int]) -> None:
        if not indexes:
            return
        for index in indexes:
            load.plan.seeking(index)
        timeout = max(0.0, load.stage_deadline - self._clock.monotonic())
        names = select(load.names, indexes)
        trace = load.span.traceparent
        self._index.find(load.scope, names, timeout, lambda answers: self._found(load, indexes, answers), trace)

    def _found(
        self, load: Load, indexes: Sequence[int], answers: Sequence[tuple[Availability, Locator | None]]
    ) -> None:
        if load.finished:
            return
        for index, (availability, locator) in zip(indexes, answers, strict=True):
            if load.plan.state(index) is not ItemState.SEEKING:
                continue
            first = load.names[index].position - locator.index if locator is not None else 0
            usable = availability is not Availability.G4 or (locator is not None and first >= 0)
            load.plan.located(index, availability if usable else Availability.UNKNOWN)
            if locator is not None:
                load.locators[index] = locator
            load.due.add(index)
        self._advance(load)

    def _miss(self, load: Load, index: int) -> ItemStatus:
        unknown = load.plan.remote_unknown(index) or (self._profile.g4_enabled and not self._index.usable())
        return ItemStatus.UNKNOWN if unknown else ItemStatus.NOT_FOUND

    # --- last hop -----------------------------------------------------------------------------------------------------
    def _last_hop(self, load: Load) -> None:
        """Nothing is on its way any more: what lies in G2 goes on, else the load has ended."""
        if not self._last_hops.begin(load):
            self._finish(load)

    # --- end ----------------------------------------------------------------------------------------------------------
    def _finish(self, load: Load) -> None:
        load.finished = True
        del self._loads[load.load]
        load.session.load_targets.difference_update(load.targets)
        self._per_session[load.session] -= 1
        if not self._per_session[load.session]:
            del self._per_session[load.session]
        self._dirty.discard(load)
        outcome = load.plan.outcome()
        if load.staged and not load.abandoned and load.session.reachable:
            self.staged.keep(load)
        else:
            unpin(self._tables, load)
            # A rank that is away is no writer that anything waits for: it must not hear of slots that are not pinned.
            outcome = unstaged(outcome) if load.staged else outcome
        self._metrics.load_ended(outcome, self._clock.monotonic() - load.opened_at)
        self._spans.load_ended(load.span, outcome)
        found = [index for index, source in enumerate(outcome.sources) if source is Tier.G2]
        if found:
            self.on_used(load.scope, select(load.names, found))
        load.on_finished(load.load, outcome)

    def _stage_ttl_ms(self, load: Load) -> int:
        return max(1, int((load.stage_deadline - self._clock.monotonic()) * 1_000))
