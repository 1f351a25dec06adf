"""A process that hangs costs one short wait and not one per request: each of them is stopped under serving engines.

What is asserted is counted: requests that met a timeout, wrong bytes, and that all of it works again afterwards.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count

import pytest
from pydantic import ByteSize
from tests.integration.engine_kit import ALL, BM, OW, RT, node_folder, settings

from blockyard.cli.embedded.seaweedfs import SeaweedfsServer
from blockyard.cli.embedded.valkey import ValkeyServer
from blockyard.connectors.client import BlockyardClient
from blockyard.connectors.engine_memory import EngineMemory
from blockyard.connectors.mock.engine import MockEngine
from blockyard.connectors.mock.trace import TRACE_BLOCK_TOKENS, TraceRequest
from blockyard.core.identity import ModelIdentity
from blockyard.core.vocabulary import EngineId, ItemStatus, Tier
from blockyard.runtime.settings import G2Section, NodeSettings
from blockyard.testing.frozen import frozen
from blockyard.testing.running_node import RunningNode, eventually, running_node

__all__ = ["node_folder", "settings"]

BLOCK_BYTES = 16_384
IDENTITY = ModelIdentity(model="test", block_bytes=BLOCK_BYTES, block_tokens=TRACE_BLOCK_TOKENS)
AT_ONCE = 4
"""Requests in progress when a process stops: each of them may meet it before anybody knows."""
MOST_LATE = 3 * AT_ONCE
"""Few, and not one per request: those in progress, and now and then one that tries again."""
SERVED = 80
KNOWN = [TraceRequest(0, 0.0, (10 * first, 10 * first + 1, 10 * first + 2)) for first in range(6)]
"""What the node holds; with their new ends more than G2 has room for, so that the disk is needed too."""
_new = count(1_000)


@dataclass
class Engines:
    """Engines under load, which never help themselves out of their own caches."""

    engines: list[MockEngine]
    late: int = 0
    """Requests of which a load or a lookup was not answered in time."""

    async def serve(self, requests: list[TraceRequest]) -> None:
        """Serve all of these, some at a time, divided among the engines."""
        slots = asyncio.Semaphore(AT_ONCE)
        before = sum(engine.counts.late_answers for engine in self.engines)
        await asyncio.gather(*(engine.reset() for engine in self.engines))

        async def one(engine: MockEngine, request: TraceRequest) -> None:
            async with slots:
                outcomes = await engine.serve(request)
            self.late += any(outcome.status is ItemStatus.TIMEOUT for outcome in outcomes)

        await asyncio.gather(
            *(one(self.engines[index % len(self.engines)], request) for index, request in enumerate(requests))
        )
        self.late += sum(engine.counts.late_answers for engine in self.engines) - before

    async def serve_known_with_new_ends(self, requests: int) -> None:
        known = [KNOWN[index % len(KNOWN)] for index in range(requests)]
        await self.serve([TraceRequest(0, 0.0, (*request.blocks, 10 * next(_new))) for request in known])

    def verified(self, tier: Tier) -> int:
        return sum(engine.counts.verified[tier] for engine in self.engines)

    @property
    def wrong_bytes(self) -> int:
        return sum(engine.counts.wrong_bytes for engine in self.engines)


@asynccontextmanager
async def engines_at(node: RunningNode, *names: str) -> AsyncIterator[Engines]:
    async with contextlib.AsyncExitStack() as stack:
        engines = []
        for name in names:
            memory = stack.enter_context(EngineMemory(96, BLOCK_BYTES))
            description = memory.description(EngineId(name), IDENTITY)
            client = await stack.enter_async_context(
                BlockyardClient(node.engine_socket, description, memory.guards, memory=memory.rank)
            )
            await client.wait_connected(20.0)
            engines.append(MockEngine(client, memory, IDENTITY))
        yield Engines(engines)


async def clear_own_tiers(node: RunningNode) -> None:
    for tier in (Tier.G2, Tier.G3):
        assert (await node.post(f"/v1/tiers/{tier.label}:clear")).is_success


async def all_tiers_serve(node: RunningNode, engines: Engines) -> None:
    """Wait until loads come from the node's own tiers, and from the store where those are empty."""
    await node.ready()

    async def served_from(*tiers: Tier) -> bool:
        before = sum(engines.verified(tier) for tier in tiers)
        await engines.serve(KNOWN)
        return sum(engines.verified(tier) for tier in tiers) > before

    async def served_from_store() -> bool:
        await clear_own_tiers(node)
        return await served_from(Tier.G4)

    await eventually(served_from_store, "loads come from the store")
    await eventually(lambda: served_from(Tier.G2, Tier.G3), "loads come from the node")


@pytest.mark.parametrize("hangs", ["object store", "index", "remote-tier", "offload-worker", "block-manager"])
async def test_a_process_that_hangs_costs_few_requests_a_wait_and_comes_back(
    settings: NodeSettings, valkey_server: ValkeyServer, seaweedfs_server: SeaweedfsServer, hangs: str
) -> None:
    sizes = {
        "node": settings.node.model_copy(update={"block_tokens": TRACE_BLOCK_TOKENS}),
        "g2": G2Section(capacity=ByteSize(24 * BLOCK_BYTES)),
    }
    async with running_node(settings.model_copy(update=sizes), *ALL) as node:
        await node.ready()
        stopping = {
            "object store": lambda: frozen(seaweedfs_server.pid),
            "index": lambda: frozen(valkey_server.pid),
            "remote-tier": lambda: node.hanging(RT),
            "offload-worker": lambda: node.hanging(OW),
            "block-manager": lambda: node.hanging(BM),
        }
        async with engines_at(node, "one", "two") as engines:
            await engines.serve(KNOWN)
            await node.holds("g4", 18)
            await all_tiers_serve(node, engines)
            if hangs in ("object store", "index", "remote-tier"):
                await clear_own_tiers(node)  # or nobody would need it
            engines.late = 0
            with stopping[hangs]():
                await engines.serve_known_with_new_ends(SERVED)
                assert engines.late <= MOST_LATE
                engines.late = 0
                await engines.serve_known_with_new_ends(SERVED)
                assert engines.late <= AT_ONCE, "by now everybody knows"
            await all_tiers_serve(node, engines)
            assert engines.wrong_bytes == 0
