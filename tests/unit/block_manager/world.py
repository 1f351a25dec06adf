"""A node in one thread: the real decisions between fake workers, fake engines and a clock that stands still.

``settle`` lets everything happen until nothing is left to do; tests that want an order of their own use the single
steps. ``check`` holds what must be true whenever the world rests.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import msgspec
from tests.unit.block_manager.fake_index import FakeIndex

from blockyard.core.block_name import names_of
from blockyard.core.chain_run import ChainRun
from blockyard.core.events import BlockScope, EventOwner, OwnerKind
from blockyard.core.identity import ModelIdentity
from blockyard.core.job_table import JobAction, JobLimits, JobVerb
from blockyard.core.jobs import JobPhase, Refusal
from blockyard.core.onboard_plan import LoadOutcome
from blockyard.core.outbox import Outbox
from blockyard.core.pack_plan import PackGeometry
from blockyard.core.vocabulary import (
    EngineBlockId,
    EngineId,
    Epoch,
    EventSeq,
    GroupId,
    Guard,
    JobSeq,
    LoadId,
    NodeName,
    RequestId,
    Tier,
    WorkerRole,
)
from blockyard.runtime.telemetry import Metrics
from blockyard.testing.clock import FakeClock
from blockyard.testing.event_fold import EventFold, HeldBlock
from blockyard.testing.fake_slots import FakeEngineMemory, FakeStore, FakeTier
from blockyard.testing.fake_worker import FakeWorker
from blockyard.testing.recording_tracer import RecordingTracer
from blockyard.tiers.header import HeaderState
from blockyard.wire import worker_channel as channel
from blockyard.wire.codec import PROTOCOL_VERSION
from blockyard.wire.connector_channel import Group, Hello
from blockyard.wire.event_codec import decode_event, encode_event
from blockyard_block_manager.clearing import ClearCounts
from blockyard_block_manager.engine_sessions import EngineSession
from blockyard_block_manager.g1_set import G1Row
from blockyard_block_manager.manager_metrics import ManagerMetrics
from blockyard_block_manager.manager_spans import ManagerSpans
from blockyard_block_manager.node_core import NodeCore
from blockyard_block_manager.node_profile import NodeProfile

BLOCK_BYTES = 4_096
BLOCK_TOKENS = 16
GROUPS = (GroupId(0),)
MODEL = ModelIdentity(model="test", block_bytes=BLOCK_BYTES, block_tokens=BLOCK_TOKENS)
HELLO = Hello(
    version=PROTOCOL_VERSION,
    engine="e",
    identity=MODEL,
    blocks=64,
    groups=(Group(engine_block_tokens=BLOCK_TOKENS),),
)
OW, RT = WorkerRole.OFFLOAD_WORKER, WorkerRole.REMOTE_TIER
NODE = EventOwner(OwnerKind.NODE, "node")


@dataclass
class Engine:
    """One engine: its memory, and its session with the present life of the block-manager."""

    world: "World"
    name: str
    memory: FakeEngineMemory
    session: EngineSession

    def scope(self, group: int = 0) -> BlockScope:
        """Scope of its blocks in one group."""
        return BlockScope(self.session.identity, group=GroupId(group), block_tokens=BLOCK_TOKENS)

    def compute(self, run: ChainRun, first_block: int = 0) -> list[EngineBlockId]:
        """Fill memory blocks and register them."""
        rows = self.fill(run, first_block)
        self.world.core.register(self.session, rows)
        return [page for row in rows for page in row.pages]

    def fill(self, run: ChainRun, first_block: int = 0, group: int = 0) -> list[G1Row]:
        """Fill memory blocks, as many per row as the group has pages."""
        scope, pages = self.scope(group), self.session.pages_per_row[group]
        rows: list[G1Row] = []
        for index, name in enumerate(names_of(run)):
            first = first_block + index * pages
            own = tuple(EngineBlockId(page) for page in range(first, first + pages))
            guards = self.memory.fill_row(own, name.digest)
            rows.append(G1Row(own, tuple(map(Guard, guards)), name, scope))
        return rows

    def load(self, run: ChainRun, first_block: int = 0, ttl_ms: int = 10_000, request: str = "r") -> LoadId:
        """Give memory blocks up and open a load into them; its outcome lands in ``world.outcomes``."""
        blocks = [EngineBlockId(first_block + index) for index in range(len(run))]
        for block in blocks:
            self.memory.guards[block] += 1
            self.memory.blocks[block] = b""
        self.world.core.deregister(self.session, blocks)
        guards = [Guard(self.memory.guards[block]) for block in blocks]
        return self.world.core.open_load(
            self.session,
            RequestId(request),
            self.world.scope(),
            names_of(run),
            blocks,
            guards,
            ttl_ms,
            self.world.finished,
        )


class World:
    """A node and what is around it."""

    def __init__(self, *, g2: int = 16, g3: int = 32, g4: bool = True, profile: dict[str, Any] | None = None) -> None:
        self.clock = FakeClock()
        geometry = PackGeometry(BLOCK_BYTES, 4 * (BLOCK_BYTES + 256))
        self.store = FakeStore(geometry)
        self.tiers = {Tier.G2: FakeTier.of("arena", g2), Tier.G3: FakeTier.of("slab", g3)}
        self.memories: dict[int, FakeEngineMemory] = {}
        self.engines: dict[str, Engine] = {}
        self.outcomes: dict[LoadId, LoadOutcome] = {}
        self.sent_traces: dict[int, str] = {}
        """Trace context that went with each job, by number."""
        self.connected: set[WorkerRole] = set()
        self.between_steps: Callable[[], None] = lambda: None
        """Called between the steps of a comparison with an inventory."""
        self.epochs = 100
        self.workers: dict[WorkerRole, FakeWorker] = {}
        self.all_workers: list[FakeWorker] = []
        self._g4 = g4
        self._overrides = {"pack_target_bytes": geometry.target_bytes, **(profile or {})}
        for role in self.roles:
            self.start_worker(role)
        self.start_manager()

    @property
    def roles(self) -> tuple[WorkerRole, ...]:
        return (OW, RT) if self._g4 else (OW,)

    def scope(self) -> BlockScope:
        return BlockScope(MODEL.digest(), block_tokens=BLOCK_TOKENS)

    # --- lives --------------------------------------------------------------------------------------------------------
    def start_worker(self, role: WorkerRole) -> FakeWorker:
        """A new life of a worker over the same bytes; it maps no engine yet."""
        self.epochs += 1
        mapped: dict[int, FakeEngineMemory] = {}
        self.workers[role] = FakeWorker(role, self.epochs, self.clock, self.tiers, mapped, self.store)
        self.all_workers.append(self.workers[role])
        return self.workers[role]

    def start_manager(self) -> NodeCore:
        """A new life of the block-manager: everything it knew is gone."""
        self.close()
        self.epochs += 1
        self.connected.clear()
        self.engines.clear()
        self.outcomes.clear()
        self.sent_traces.clear()
        plain = NodeProfile(
            instance=NodeName("node"),
            epoch=Epoch(self.epochs),
            block_bytes=BLOCK_BYTES,
            block_tokens=BLOCK_TOKENS,
            g4_enabled=self._g4,
        )
        profile = replace(plain, **self._overrides)
        self.index = FakeIndex(self.store, self.connected)
        self.metrics = Metrics("test")
        self.outbox = Outbox("node", profile.epoch, 1 << 24, encode_event)
        self.tracer = RecordingTracer()
        metrics, spans = ManagerMetrics(self.metrics), ManagerSpans(self.tracer)
        self.core = NodeCore(profile, JobLimits(), self.outbox, self.index, self.clock, metrics, spans)
        self.fold = EventFold()
        return self.core

    def close(self) -> None:
        """The present life of the block-manager ends, whatever is under way."""
        if hasattr(self, "core"):
            self.core.close()
            assert self.tracer.open == [], "every span ends"

    def attach(self, *roles: WorkerRole) -> None:
        """Connect workers; their inventory is asked for by ``settle`` or ``list_inventory``."""
        for role in roles or self.roles:
            worker = self.workers[role]
            answer = worker.attach(channel.Attach(version=1, instance="node", epoch=self.core.profile.epoch))
            self.core.worker_attached(role, answer)
            self.connected.add(role)
            if role is OW:
                self.map_engines()

    def lose(self, role: WorkerRole) -> None:
        """The connection to a worker ends; the worker lives on."""
        if role in self.connected:
            self.connected.discard(role)
            self.core.worker_gone(role)

    def restart(self, role: WorkerRole) -> None:
        """A worker dies with everything it had under way, and comes back."""
        self.lose(role)
        self.start_worker(role)

    def connect(self, name: str, blocks: int = 64, **changes: object) -> Engine:
        """An engine says hello and all its ranks attach; a known one keeps its memory."""
        hello = msgspec.structs.replace(HELLO, engine=name, blocks=blocks, **changes)
        earlier = self.core.sessions.of(EngineId(name), 0)
        if earlier is not None:
            self.core.close_session(earlier)
        session = self.core.open_session(hello)
        self.core.ranks_attached(session, session.ranks)
        memory = self.memories.setdefault(hash(name), FakeEngineMemory.of(blocks))
        self.engines[name] = Engine(self, name, memory, session)
        self.map_engines()
        return self.engines[name]

    def map_engines(self) -> None:
        """The attached offload-worker maps the memory of all engines."""
        if OW not in self.connected:
            return
        for engine in self.engines.values():
            if (number := engine.session.mapping_number) is not None:
                self.workers[OW].engines[number] = engine.memory
                self.core.mapped(engine.session, number)

    def ready(self) -> "World":
        """Attach everything and compare the inventory."""
        self.attach()
        self.settle()
        return self

    # --- steps --------------------------------------------------------------------------------------------------------
    def finished(self, load: LoadId, outcome: LoadOutcome) -> None:
        assert load not in self.outcomes, "a load is answered once"
        self.outcomes[load] = outcome

    def submit(self, role: WorkerRole) -> int:
        """Hand all jobs that may go out to a worker; returns how many."""
        count = 0
        while role in self.connected and (job := self.core.desk.take(role)) is not None:
            self._submit(role, job)
            count += 1
        return count

    def _submit(self, role: WorkerRole, job: channel.Job) -> None:
        table = self.core.desk.table
        table.sent(JobSeq(job.seq))
        self.sent_traces[job.seq] = self.core.desk.trace_of(JobSeq(job.seq))
        reply = self.workers[role].submit(channel.Submit(job=job, settled_below=table.settled_below))
        table.heard(role)
        if isinstance(reply, channel.Accepted):
            table.accepted(JobSeq(job.seq))
        elif isinstance(reply, channel.Busy):
            table.busy(JobSeq(job.seq), reply.retry_ms)
        elif isinstance(reply, channel.Refused):
            self.core.job_refused(JobSeq(job.seq), Refusal(reply.reason))

    def deliver(self, role: WorkerRole, *, everything: bool = False) -> int:
        """Results of a worker arrive and are acknowledged; returns how many."""
        if role not in self.connected:
            return 0
        results = self.workers[role].results(everything=everything)
        if results:
            self.core.desk.table.heard(role)
        for result in results:
            self.core.result(result)
            self.workers[role].ack(result, self.core.desk.table.settled_below)
        return len(results)

    def list_inventory(self) -> bool:
        """Compare the inventory if that is due."""
        if OW not in self.connected or not self.core.recovery.needs_listing:
            return False
        listing = self.core.recovery.begin_listing()
        for _ in self.core.compare(listing, {tier: self.workers[OW].inventory(tier) for tier in listing.tiers}):
            self.between_steps()
        return True

    def tick(self, seconds: float = 0.0) -> int:
        """Let time pass and act on it; returns how many messages were due."""
        self.clock.advance(seconds)
        actions = self.core.tick()
        for action in actions:
            if action.role in self.connected:
                self._act(action)
        return len(actions)

    def _act(self, action: JobAction) -> None:
        worker, epoch = self.workers[action.role], self.core.profile.epoch
        if action.verb is JobVerb.RESEND:
            job = self.core.desk.message(action.seq)
            if job is not None:
                self._submit(action.role, job)
            return
        ask = worker.cancel if action.verb is JobVerb.CANCEL else worker.poll
        self.core.desk.table.heard(action.role)
        for state in ask(epoch, action.seq).states:
            self.core.job_state(JobSeq(state.seq), JobPhase(state.state))

    def settle(self, *, work: bool = True) -> None:
        """Let everything happen that can, without time passing; ``work`` false: no worker moves on."""
        for _ in range(1_000):
            moved = self.list_inventory()
            for role in self.roles:
                moved |= bool(self.submit(role))
                moved |= work and bool(self.workers[role].work())
                moved |= bool(self.deliver(role, everything=True))
            while self.index.questions:
                self.index.answer()
                moved = True
            if not moved:
                return
        raise AssertionError("the node never comes to rest")

    def settle_without_work(self) -> None:
        """Let messages go to and fro while the workers stand still."""
        self.settle(work=False)

    def clear(self, tier: Tier) -> list[ClearCounts]:
        """Start a clear; its counts are appended when it is done."""
        done: list[ClearCounts] = []
        self.core.clear(tier, done.append)
        return done

    # --- what must hold -----------------------------------------------------------------------------------------------
    def events(self) -> EventFold:
        """Fold of all events so far."""
        for message in self.outbox.next_batch(EventSeq(self.fold.cursor), 1_000_000).messages:
            self.fold.receive(decode_event(message.payload))
        return self.fold

    def held(self, tier: Tier) -> set[bytes]:
        """Keys that a tier of the node holds by its table."""
        return {bytes(block.key) for block in self.core.tables.pool(tier).registered()}

    def announced(self, tier: Tier) -> set[bytes]:
        """Keys that the events say are in a tier."""
        return {bytes(item.key) for item in self.events().held if item.tier is tier}

    def counter(self, name: str, **labels: str) -> float:
        """Value of a metric."""
        return self.metrics.registry.get_sample_value(f"blockyard_{name}", labels) or 0.0

    def check_writes(self) -> None:
        """No worker has written what it must not."""
        assert [text for worker in self.all_workers for text in worker.violations] == []

    def check(self) -> None:
        """Tables, events, headers and engines agree."""
        self.check_writes()
        for tier in (Tier.G2, Tier.G3):
            if not self.core.tables.has(tier):
                continue
            pool = self.core.tables.pool(tier)
            pool.check_integrity()
            assert pool.leaked_blocks == 0
            assert self.announced(tier) == self.held(tier)
            for block in pool.registered():
                slot = self.tiers[tier].slots[block.block]
                assert (slot.state, slot.generation) == (HeaderState.READY, block.generation)
                assert slot.digest[:16] == block.key
        fold = self.events()
        assert fold.gaps == 0
        engines = {
            HeldBlock(session.owner, group, Tier.G1, session.identity, key)
            for session in self.core.sessions
            for key, group in session.g1.contents
        }
        assert {item for item in fold.held if item.tier is Tier.G1} == engines
        assert self.announced(Tier.G4) == {bytes(key) for key, _ in self.core.catalogue.contents}

    def at_rest(self) -> None:
        """Nothing is under way and nothing is held by anybody."""
        self.check()
        assert self.core.tables.pins.count == len(self.core.leases) == 0
        assert len(self.core.flights) == len(self.core.loads) == 0
        assert self.core.desk.open_orders() == []
        for tier in (Tier.G2, Tier.G3):
            pool = self.core.tables.pool(tier)
            assert (pool.mutable, pool.complete, pool.held, pool.await_free) == (0, 0, 0, 0)


MakeWorld = Callable[..., World]
