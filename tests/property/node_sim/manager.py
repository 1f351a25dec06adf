"""The block-manager as a simulated process: all decisions of the product, lives of them, behind lossy ports.

What the service does around the decisions is done here in its order: connect, attach, list the inventory, submit, ask
again, acknowledge, probe for dead workers. Results are not taken while a full listing goes on.
Threading: one thread.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, TypeVar

from tests.property.node_sim.events import EventTap

from blockyard.core.block_name import BlockName
from blockyard.core.errors import NotReadyError
from blockyard.core.events import BlockScope
from blockyard.core.job_table import JobAction, JobLimits, JobVerb
from blockyard.core.jobs import JobPhase, Refusal
from blockyard.core.outbox import Outbox
from blockyard.core.stored_key import stored_keys
from blockyard.core.vocabulary import Availability, EngineId, Epoch, JobSeq, Tier, WorkerRole
from blockyard.runtime.telemetry import Metrics
from blockyard.testing.fake_slots import FakeEngineMemory
from blockyard.testing.fake_worker import FakeWorker
from blockyard.testing.sim.worker import SimWorker
from blockyard.testing.sim.world import Process, Section, SimWorld
from blockyard.tiers.index_value import Locator
from blockyard.tiers.inventory_pages import InventoryPages
from blockyard.wire import worker_channel as channel
from blockyard.wire.connector_channel import Hello
from blockyard.wire.trace_parent import NO_TRACE, TraceParent
from blockyard_block_manager.engine_sessions import EngineSession
from blockyard_block_manager.inventory_match import Listing
from blockyard_block_manager.load import FindCallback
from blockyard_block_manager.manager_metrics import DropReason, ManagerMetrics
from blockyard_block_manager.node_core import NodeCore
from blockyard_block_manager.node_profile import NodeProfile
from blockyard_block_manager.recovery import WorkerPhase

OW, RT = WorkerRole.OFFLOAD_WORKER, WorkerRole.REMOTE_TIER
TICK_SECONDS: Final = 0.25
SWEEP_SECONDS: Final = 0.1
"""Longest time until the next slice of what was cleared."""
ATTACH_SECONDS: Final = 0.5
PAGE_SECONDS: Final = 1.0
FIND_SECONDS: Final = 0.5
_LIMITS: Final = JobLimits(resend_seconds=0.2, resend_limit=3, unsettled_limit=12)
_COUNTERS: Final = Metrics("sim")
_METRICS: Final = ManagerMetrics(_COUNTERS)

ReplyT = TypeVar("ReplyT")


@dataclass(slots=True)
class Link:
    """The channel to one worker."""

    attempt: int = 0
    attached: bool = False
    listing: Listing | None = None
    comparing: bool = False
    lost: bool = False
    """The connection ended during a comparison, which is finished first."""
    results: deque[channel.JobResult] = field(default_factory=deque)


class SimManager(Process):
    """Lives of the block-manager of one node."""

    def __init__(self, world: SimWorld, profile: NodeProfile, workers: dict[WorkerRole, SimWorker]) -> None:
        """Prepare; ``spoil`` may be set before the first life to break its decisions on purpose."""
        super().__init__(world, "block-manager")
        self._profile = profile
        self._workers = workers
        self.core: NodeCore
        self.events: EventTap
        self.links: dict[WorkerRole, Link]
        self.memories: dict[int, FakeEngineMemory]
        self.sessions: dict[int, EngineSession]
        self.on_life: list[Callable[[NodeCore], None]] = []
        """Called with the decisions of each new life, before anything happens to them."""
        self.cuts: dict[Tier, int] = {}
        """Last grant before the latest clear of this life."""
        self._wake: set[WorkerRole]
        self._sweeping: bool
        for worker in workers.values():
            worker.manager = self
            worker.on_result = partial(self._result_section, worker.role)
            worker.on_death.append(partial(self._worker_died, worker))

    # --- lives --------------------------------------------------------------------------------------------------------
    def started(self) -> None:
        """Everything of the earlier life is gone."""
        epoch = Epoch(self.life)
        self.events = EventTap()
        profile = replace(self._profile, epoch=epoch)
        outbox = Outbox(profile.instance, epoch, 1 << 20, self.events.encode)
        index = SimIndex(self, self._workers.get(RT))
        self.core = NodeCore(profile, _LIMITS, outbox, index, self.world.clock, _METRICS)
        self.links = {role: Link() for role in self._workers}
        self.memories, self.sessions = {}, {}
        self._wake = set()
        self._sweeping = False
        self.core.desk.on_work = self._wake.add
        for prepare in self.on_life:
            prepare(self.core)
        for role in self.links:
            self._connect(role)
        self.after(TICK_SECONDS, self._tick)

    def died(self) -> None:
        """Nobody hears what ends by that."""
        self.core.close()

    def own(self, section: Callable[[ReplyT], None]) -> Callable[[ReplyT], None]:
        """A continuation that only the present life runs."""
        life = self.life

        def guarded(reply: ReplyT) -> None:
            if life == self.life:
                section(reply)
                self.pump()

        return guarded

    # --- engines ------------------------------------------------------------------------------------------------------
    def open_engine(self, hello: Hello, memory: FakeEngineMemory) -> EngineSession:
        """An engine says hello; an earlier session of its name has ended."""
        earlier = self.core.sessions.of(EngineId(hello.engine), 0)
        if earlier is not None:
            self.core.close_session(earlier)
        session = self.core.open_session(hello)
        self.core.ranks_attached(session, session.ranks)
        number = session.mapping_number
        assert number is not None
        self.sessions[number], self.memories[number] = session, memory
        self.map_engines()
        self.pump()
        return session

    # --- channel to a worker ------------------------------------------------------------------------------------------
    def reconnect(self, role: WorkerRole) -> None:
        """The connection ended, or is given up: attach anew."""
        link = self.links[role]
        if link.comparing:
            link.lost = True
            return
        if link.attached:
            link.attached = False
            self.core.worker_gone(role)
        self._connect(role)
        self.pump()

    def _connect(self, role: WorkerRole) -> None:
        link = self.links[role]
        link.attempt += 1
        link.listing = None
        link.results.clear()
        attempt = link.attempt
        if role is OW or self.core.recovery.arena is not None:
            request = channel.Attach(version=1, instance="node", epoch=self.core.profile.epoch)
            worker = self._workers[role]
            told = self.own(partial(self._attached, role, attempt))
            worker.ask(self, lambda inner: worker.attach(inner, request), told)
        self.after(ATTACH_SECONDS, lambda: self._give_up_attach(role, attempt))

    def _give_up_attach(self, role: WorkerRole, attempt: int) -> None:
        link = self.links[role]
        if link.attempt == attempt and not link.attached:
            self.reconnect(role)

    def _attached(self, role: WorkerRole, attempt: int, answer: channel.Attached) -> None:
        link = self.links[role]
        if link.attempt != attempt or link.attached:
            return
        try:
            self.core.worker_attached(role, answer)
        except NotReadyError:
            return
        link.attached = True
        self._wake.add(role)
        if role is OW:
            self.map_engines()

    def _worker_died(self, worker: SimWorker) -> None:
        """The kernel closes its sockets."""
        life = self.life
        self.world.after(0.001, lambda: self.run(lambda: self.reconnect(worker.role)) if life == self.life else None)

    def map_engines(self) -> None:
        """Have the offload-worker map the memory of all engines that it does not map yet."""
        for number, memory in self.memories.items():
            session = self.sessions[number]
            if self.links[OW].attached and session.mapping is None and session.mapping_number == number:
                told = self.own(partial(self._mapped, session, number))
                self._workers[OW].ask(self, partial(_map, number, memory), told)

    def _mapped(self, session: EngineSession, number: int, life: Epoch) -> None:
        if not session.closed and life == self.core.recovery.epoch(OW) and self.links[OW].attached:
            self.core.mapped(session, number)

    # --- moving on ----------------------------------------------------------------------------------------------------
    def pump(self) -> None:
        """Send what can be sent, and sweep some time later."""
        if self.core.clearing.unswept and not self._sweeping:
            self._sweeping = True
            self.after(self.world.random.uniform(0.0, SWEEP_SECONDS), self._sweep)
        while self._wake:
            role = self._wake.pop()
            if self.links[role].attached:
                self._work(role)

    def _work(self, role: WorkerRole) -> None:
        link = self.links[role]
        if link.comparing or (link.listing is not None and link.listing.full):
            return
        while link.results:
            result = link.results.popleft()
            self.core.result(result)
            below = self.core.desk.table.settled_below
            self._workers[role].ask(self, partial(_ack, result, below), _ignore)
        if role is OW and link.listing is None and self.core.recovery.needs_listing:
            self._list(link)
            return
        while link.attached and (job := self.core.desk.take(role)) is not None:
            self._submit(role, job)

    def _submit(self, role: WorkerRole, job: channel.Job) -> None:
        table = self.core.desk.table
        table.sent(JobSeq(job.seq))
        request = channel.Submit(job=job, settled_below=table.settled_below)
        told = self.own(partial(self._answered, role, JobSeq(job.seq)))
        self._workers[role].ask(self, lambda inner: inner.submit(request), told)

    def _answered(self, role: WorkerRole, seq: JobSeq, reply: channel.Reply) -> None:
        table = self.core.desk.table
        table.heard(role)
        if isinstance(reply, channel.Accepted):
            table.accepted(seq)
        elif isinstance(reply, channel.Busy):
            table.busy(seq, reply.retry_ms)
        elif isinstance(reply, channel.Refused):
            self.core.job_refused(seq, Refusal(reply.reason))
        self._wake.add(role)

    def _told(self, role: WorkerRole, reply: channel.JobStates) -> None:
        self.core.desk.table.heard(role)
        for state in reply.states:
            self.core.job_state(JobSeq(state.seq), JobPhase(state.state))
        self._wake.add(role)

    def _result_section(self, role: WorkerRole, result: channel.JobResult) -> Section:
        def arrives() -> None:
            link = self.links[role]
            if link.attached:
                self.core.desk.table.heard(role)
                link.results.append(result)
                self._wake.add(role)
                self.pump()

        return arrives

    def _tick(self) -> None:
        for action in self.core.tick():
            self._act(action)
        self._probe()
        self.map_engines()
        self.pump()
        self.after(TICK_SECONDS, self._tick)

    def _sweep(self) -> None:
        self._sweeping = False
        self.core.sweep()
        self.pump()

    def _act(self, action: JobAction) -> None:
        link, worker, epoch = self.links[action.role], self._workers[action.role], self.core.profile.epoch
        if not link.attached or link.comparing or (link.listing is not None and link.listing.full):
            return
        if action.verb is JobVerb.RESEND:
            job = self.core.desk.message(action.seq)
            if job is not None:
                self._submit(action.role, job)
            return
        told = self.own(partial(self._told, action.role))
        if action.verb is JobVerb.CANCEL:
            worker.ask(self, lambda inner: inner.cancel(epoch, action.seq), told)
        else:
            worker.ask(self, lambda inner: inner.poll(epoch, action.seq), told)

    def _probe(self) -> None:
        for role, worker in self._workers.items():
            if self.core.recovery.phase(role) is WorkerPhase.AWAY and not worker.alive:
                if role is RT:
                    self.core.remote_proven_dead()
                else:
                    self.core.offload_proven_dead()

    # --- inventory ----------------------------------------------------------------------------------------------------
    def _list(self, link: Link) -> None:
        listing = link.listing = self.core.recovery.begin_listing()
        self._next_tier(link, listing, {})
        self.after(PAGE_SECONDS, lambda: self._give_up_listing(link, listing))

    def _give_up_listing(self, link: Link, listing: Listing) -> None:
        if link.listing is listing and not link.comparing:
            self.reconnect(OW)

    def _next_tier(self, link: Link, listing: Listing, pages: dict[Tier, InventoryPages]) -> None:
        missing = [tier for tier in listing.tiers if tier not in pages]
        if not missing:
            link.comparing = True
            self._compare(link, self.core.compare(listing, pages))
            return
        told = self.own(partial(self._page, link, listing, pages, missing[0]))
        self._workers[OW].ask(self, lambda inner: inner.inventory(missing[0]), told)

    def _page(
        self, link: Link, listing: Listing, pages: dict[Tier, InventoryPages], tier: Tier, page: InventoryPages
    ) -> None:
        if link.listing is listing and tier not in pages:
            pages[tier] = page
            self._next_tier(link, listing, pages)

    def _compare(self, link: Link, steps: Iterator[None]) -> None:
        for _ in steps:
            self.after(0.001, lambda: self._compare(link, steps))
            return
        link.comparing, link.listing = False, None
        self._wake.add(OW)
        if link.lost:
            link.lost = False
            self.reconnect(OW)
        self.pump()


@dataclass
class SimIndex:
    """``SharedIndex``: the lookup of the remote tier, over its lossy port."""

    manager: SimManager
    worker: SimWorker | None

    def usable(self) -> bool:
        """Whether the remote tier is attached."""
        return self.worker is not None and self.manager.links[RT].attached

    def find(
        self,
        scope: BlockScope,
        names: Sequence[BlockName],
        timeout_seconds: float,
        done: FindCallback,
        trace: TraceParent = NO_TRACE,
    ) -> None:
        """Ask; after a while without an answer it is unknown."""
        question = _Question(done)
        keys = list(stored_keys((name.key for name in names), scope.group))
        unknown: list[tuple[Availability, Locator | None]] = [(Availability.UNKNOWN, None)] * len(names)
        manager = self.manager

        def look(inner: FakeWorker) -> list[tuple[Availability, Locator | None]]:
            found = [inner.store.index.get(key) for key in keys]
            return [(Availability.MISS if one is None else Availability.G4, one) for one in found]

        if self.worker is not None:
            self.worker.ask(manager, look, manager.own(question.answer))
        manager.after(FIND_SECONDS, lambda: manager.own(question.answer)(unknown))


@dataclass
class _Question:
    done: FindCallback
    answered: bool = False

    def answer(self, found: Sequence[tuple[Availability, Locator | None]]) -> None:
        if not self.answered:
            self.answered = True
            self.done(found)


def dropped_unwritten() -> float:
    """Blocks that were counted as gone from G2 before they were written, by all lives so far."""
    return _COUNTERS.registry.get_sample_value("blockyard_dropped_total", {"reason": DropReason.GONE_FROM_G2}) or 0.0


def _map(number: int, memory: FakeEngineMemory, worker: FakeWorker) -> Epoch:
    worker.engines[number] = memory
    return worker.epoch


def _ack(result: channel.JobResult, below: int, worker: FakeWorker) -> None:
    worker.ack(result, below)


def _ignore(_: object) -> None:
    """Nothing follows from an acknowledgement that arrived."""
