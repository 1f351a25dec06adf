"""A trace through the real decisions of a node, without bytes: what reaches the disk, and what is left after a kill.

Rules: a request loads its longest prefix that G2 or G3 hold, computes the rest and registers it; then everything that
can happen does, so the disk is never too slow. A kill takes the whole node: a new life finds G3 and an empty G2. Of a
request that is longer than half of G2 only the head is asked for.
Threading: one thread.
"""

from dataclasses import dataclass, field
from typing import Final, final

from bench.replay.trace import Trace
from blockyard.core.block_name import BlockName
from blockyard.core.errors import UnavailableError
from blockyard.core.events import BlockScope
from blockyard.core.identity import ModelIdentity
from blockyard.core.job_table import JobLimits
from blockyard.core.offload_plan import OffloadRules
from blockyard.core.onboard_plan import LoadOutcome
from blockyard.core.outbox import Outbox
from blockyard.core.pack_plan import PackGeometry
from blockyard.core.vocabulary import (
    ROOT_KEY,
    ChainDigest,
    ContentKey,
    EngineBlockId,
    Epoch,
    Generation,
    GroupId,
    Guard,
    JobKind,
    JobSeq,
    LoadId,
    NodeName,
    RequestId,
    Tier,
    WorkerRole,
)
from blockyard.runtime.telemetry import Metrics
from blockyard.testing.clock import FakeClock
from blockyard.testing.fake_slots import FakeEngineMemory, FakeStore, FakeTier
from blockyard.testing.fake_worker import FakeWorker
from blockyard.wire import worker_channel as channel
from blockyard.wire.codec import PROTOCOL_VERSION
from blockyard.wire.connector_channel import Group, Hello
from blockyard_block_manager.g1_set import G1Row
from blockyard_block_manager.manager_metrics import ManagerMetrics
from blockyard_block_manager.node_core import NodeCore
from blockyard_block_manager.node_profile import NodeProfile
from blockyard_block_manager.remote_index import RemoteIndex

BLOCK_BYTES: Final = 4_096
_TOKENS: Final = 16
_MODEL: Final = ModelIdentity(model="trace", block_bytes=BLOCK_BYTES, block_tokens=_TOKENS)
_SCOPE: Final = BlockScope(_MODEL.digest(), block_tokens=_TOKENS)
_WORKER: Final = WorkerRole.OFFLOAD_WORKER
_SECONDS_PER_REQUEST: Final = 0.3


@final
@dataclass(slots=True)
class Hits:
    """Blocks asked for, and where they were found."""

    asked: int = 0
    in_tier: dict[Tier, int] = field(default_factory=lambda: {Tier.G2: 0, Tier.G3: 0})

    @property
    def share(self) -> float:
        """Hits of both tiers per block asked for."""
        return sum(self.in_tier.values()) / max(1, self.asked)


@final
class NodeReplay:
    """One node, whose lives share a disk."""

    def __init__(self, rules: OffloadRules, g2: int, g3: int) -> None:
        """Make tiers of these sizes, in blocks, and a first life."""
        self._rules: Final = rules
        self._clock: Final = FakeClock()
        self._g2 = g2
        self._disk = FakeTier.of("slab", g3)
        self._pages: Final = g2 // 2
        self._life = 0
        self.written = 0
        """Blocks written to G3 by all lives."""
        self._start()

    def kill(self) -> None:
        """The whole node is killed, and starts again over its disk."""
        self._core.close()
        self._start()

    def close(self) -> None:
        """End the last life."""
        self._core.close()

    def held(self, *tiers: Tier) -> set[ContentKey]:
        """Blocks that these tiers hold; all that the node can serve where none is named."""
        pools = [self._core.tables.pool(tier) for tier in tiers or (Tier.G2, Tier.G3)]
        return {block.key for pool in pools for block in pool.registered()}

    def serve(self, trace: Trace, first: int, stop: int) -> Hits:
        """Serve requests of a trace."""
        hits = Hits()
        for keys in trace.requests[first:stop]:
            self._request(keys[: self._pages], hits)
        return hits

    # --- inside -------------------------------------------------------------------------------------------------------
    def _start(self) -> None:
        self._life += 1
        tiers = {Tier.G2: FakeTier.of(f"arena {self._life}", self._g2), Tier.G3: self._disk}
        memory = FakeEngineMemory.of(self._pages)
        engines: dict[int, FakeEngineMemory] = {}
        store = FakeStore(PackGeometry(BLOCK_BYTES, BLOCK_BYTES))
        self._memory = memory
        self._worker = FakeWorker(_WORKER, self._life, self._clock, tiers, engines, store)
        self._worker.on_landing = self._landing
        profile = NodeProfile(
            instance=NodeName("node"),
            epoch=Epoch(self._life),
            block_bytes=BLOCK_BYTES,
            block_tokens=_TOKENS,
            g4_enabled=False,
            disk_rules=self._rules,
        )
        outbox = Outbox("node", profile.epoch, 1 << 20, lambda *_: b"")
        index = RemoteIndex(self._clock)
        self._core = NodeCore(profile, JobLimits(), outbox, index, self._clock, ManagerMetrics(Metrics("replay")))
        self._core.worker_attached(
            _WORKER, self._worker.attach(channel.Attach(version=1, instance="node", epoch=profile.epoch))
        )
        hello = Hello(
            version=PROTOCOL_VERSION,
            engine="e",
            identity=_MODEL,
            blocks=self._pages,
            groups=(Group(engine_block_tokens=_TOKENS),),
        )
        self._session = self._core.open_session(hello)
        self._core.ranks_attached(self._session, 1)
        number = self._session.mapping_number or 0
        engines[number] = memory
        self._core.mapped(self._session, number)
        self._settle()

    def _landing(self, job: channel.Job, slot: int, generation: Generation) -> None:
        self.written += job.kind is JobKind.G2_G3

    def _request(self, keys: list[ContentKey], hits: Hits) -> None:
        core, group = self._core, GroupId(0)
        names = [
            BlockName(ChainDigest(key * 2), keys[index - 1] if index else ROOT_KEY, index)
            for index, key in enumerate(keys)
        ]
        pages = [EngineBlockId(page) for page in range(len(keys))]
        core.deregister(self._session, [EngineBlockId(page) for page in range(self._pages)])
        upper, lower = (core.tables.holds(tier, keys, group) for tier in (Tier.G2, Tier.G3))
        hit = next((at for at in range(len(keys)) if not (upper[at] or lower[at])), len(keys))
        found: list[LoadOutcome] = []

        def told(load: LoadId, outcome: LoadOutcome) -> None:
            found.append(outcome)

        if hit:
            guards = [Guard(self._memory.guards[page]) for page in pages[:hit]]
            core.open_load(self._session, RequestId("r"), _SCOPE, names[:hit], pages[:hit], guards, 60_000, told)
            self._settle()
            hit = found[0].usable
        hits.asked += len(keys)
        for source in found[0].sources[:hit] if found else ():
            hits.in_tier[source or Tier.G2] += 1
        rows = [
            G1Row((page,), (Guard(self._memory.fill(page, name.digest)),), name, _SCOPE)
            for page, name in zip(pages, names, strict=True)
        ]
        core.register(self._session, rows)
        self._clock.advance(_SECONDS_PER_REQUEST)
        core.tick()
        self._settle()

    def _settle(self) -> None:
        core, worker, moved = self._core, self._worker, True
        while moved:
            moved = False
            if core.recovery.needs_listing:
                listing = core.recovery.begin_listing()
                for _ in core.compare(listing, {tier: worker.inventory(tier) for tier in listing.tiers}):
                    pass
                moved = True
            while (job := core.desk.take(_WORKER)) is not None:
                core.desk.table.sent(JobSeq(job.seq))
                reply = worker.submit(channel.Submit(job=job, settled_below=core.desk.table.settled_below))
                if not isinstance(reply, channel.Accepted):
                    raise UnavailableError("a worker without bytes refuses a job", reply=str(reply))
                core.desk.table.heard(_WORKER)
                core.desk.table.accepted(JobSeq(job.seq))
                moved = True
            moved |= bool(worker.work())
            for result in worker.results(everything=True):
                core.desk.table.heard(_WORKER)
                core.result(result)
                worker.ack(result, core.desk.table.settled_below)
                moved = True
