"""A remote tier on a store and an index in memory, with a bench that plays the rest of the node."""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

import pytest

from blockyard.core.vocabulary import Epoch
from blockyard.runtime.http import Health
from blockyard.runtime.settings import G4Section, NodeSettings, UnsafeSection
from blockyard.runtime.telemetry import Metrics
from blockyard.testing.clock import FakeClock
from blockyard.testing.memory_index import MemoryIndex
from blockyard.testing.memory_store import MemoryStore
from blockyard.testing.recording_tracer import RecordingTracer
from blockyard.testing.remote_bench import GEOMETRY, RemoteBench
from blockyard_remote_tier.service import RemotePorts, RemoteTier


@dataclass(frozen=True, slots=True)
class Node:
    """One remote tier and everything around it."""

    store: MemoryStore
    index: MemoryIndex
    tier: RemoteTier
    bench: RemoteBench
    health: Health
    metrics: Metrics
    clock: FakeClock
    tracer: RecordingTracer

    def checksum_failures(self, tier: str) -> float:
        """Counted for a tier so far."""
        return self.metrics.registry.get_sample_value("blockyard_checksum_failures_total", {"tier": tier}) or 0.0

    def checksum_checks(self, tier: str) -> float:
        """Blocks of a tier whose bytes were compared so far."""
        return self.metrics.registry.get_sample_value("blockyard_checksum_checks_total", {"tier": tier}) or 0.0

    def check(self, name: str) -> tuple[bool, str]:
        """One check of readiness: does it hold, and why not."""
        return next((check.ok, check.detail) for check in self.health.checks if check.name == name)

    async def until_ready(self) -> None:
        """Let the upkeep make store and index ready, and attach."""
        while not await self.tier.upkeep.round():
            self.clock.advance(10)
        await self.bench.attach()


MakeNode = Callable[..., Node]


@pytest.fixture
async def make_node() -> AsyncIterator[MakeNode]:
    """Makes nodes; those of one test may share store and index."""
    nodes: list[Node] = []
    clock = FakeClock()

    def make(
        store: MemoryStore | None = None,
        index: MemoryIndex | None = None,
        *,
        skip_verification: bool = False,
        target_bytes: int = GEOMETRY.target_bytes,
        max_requests: int = 8,
        standalone: bool = False,
    ) -> Node:
        store = MemoryStore() if store is None else store
        index = MemoryIndex(clock) if index is None else index
        health, metrics, tracer = Health(), Metrics("test"), RecordingTracer()
        tier = RemoteTier(
            NodeSettings(
                g4=G4Section.model_validate(
                    {"target_bytes": target_bytes, "max_requests": max_requests, "standalone": standalone}
                ),
                unsafe=UnsafeSection(skip_verification=skip_verification),
            ),
            RemotePorts(store=store, admin=store, index=index),
            worker_epoch=Epoch(3),
            clock=clock,
            health=health,
            metrics=metrics,
            attached=lambda: True,
            tracer=tracer,
        )
        nodes.append(Node(store, index, tier, RemoteBench(tier.executor), health, metrics, clock, tracer))
        return nodes[-1]

    yield make
    for node in nodes:
        await node.tier.close()
        node.bench.close()
        assert node.tracer.open == [], "every span ends"


@pytest.fixture
async def node(make_node: MakeNode) -> Node:
    """A node that is ready."""
    made = make_node()
    await made.until_ready()
    return made
