"""A real node: block-manager, offload-worker and remote tier with their servers, used by two engines."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from uuid import uuid4

import nats
import pytest
from pydantic import ByteSize, SecretStr

from blockyard.cli.embedded.nats import NatsServer
from blockyard.cli.embedded.seaweedfs import SeaweedfsServer
from blockyard.cli.embedded.valkey import ValkeyServer
from blockyard.cli.run_folder import RunFolder
from blockyard.connectors.client import BlockyardClient, EngineDescription
from blockyard.connectors.engine_memory import EngineMemory
from blockyard.connectors.mock.oracle import payload, wrong_bytes
from blockyard.core.chain_run import ChainRun
from blockyard.core.errors import UnavailableError
from blockyard.core.hashing import content_run
from blockyard.core.identity import ModelIdentity, SequenceScope
from blockyard.core.vocabulary import Availability, EngineBlockId, EngineId, ItemStatus, RequestId, Tier
from blockyard.runtime.node_folder import ServiceName
from blockyard.runtime.settings import (
    G2Section,
    G3Section,
    G4Section,
    NatsSection,
    NodeSection,
    NodeSettings,
    RedisSection,
)
from blockyard.testing.event_fold import EventFold
from blockyard.testing.running_node import RunningNode, eventually, running_node
from blockyard.wire.event_codec import decode_event
from blockyard.wire.subjects import events_of

BLOCK_BYTES = 16_384
BLOCK_TOKENS = 16
BLOCKS = 64
IDENTITY = ModelIdentity(model="test", block_bytes=BLOCK_BYTES, block_tokens=BLOCK_TOKENS)
ALL = tuple(ServiceName)
BM, OW, RT = ServiceName.BLOCK_MANAGER, ServiceName.OFFLOAD_WORKER, ServiceName.REMOTE_TIER
_databases = count(1)


def run_of(blocks: int, first: int = 0) -> ChainRun:
    return content_run(IDENTITY.digest(), SequenceScope(), range(first, first + blocks * BLOCK_TOKENS), BLOCK_TOKENS)


@dataclass
class Engine:
    client: BlockyardClient
    memory: EngineMemory

    async def compute(self, run: ChainRun, first_block: int = 0) -> None:
        """Fill memory blocks as a forward pass would, then register them."""
        blocks = [EngineBlockId(first_block + index) for index in range(len(run))]
        self.memory.raise_guards(blocks)
        for block, key in zip(blocks, run, strict=True):
            self.memory.view(block)[:] = payload(IDENTITY.digest(), key, BLOCK_BYTES)
        await self.client.register(run, blocks)

    async def load(self, run: ChainRun, first_block: int = 0) -> tuple[list[ItemStatus], list[Tier | None]]:
        """Load into memory blocks and compare every byte of what is reported as loaded."""
        blocks = [EngineBlockId(first_block + index) for index in range(len(run))]
        self.memory.raise_guards(blocks)
        result = await self.client.load(RequestId(uuid4().hex), run, blocks, ttl_seconds=5.0)
        for block, key, status in zip(blocks, run, result.statuses, strict=True):
            if status is ItemStatus.OK:
                assert wrong_bytes(self.memory.view(block), IDENTITY.digest(), key) == 0
        return list(result.statuses), list(result.sources)


@asynccontextmanager
async def engine(node: RunningNode, name: str) -> AsyncIterator[Engine]:
    description = EngineDescription(engine=EngineId(name), identity=IDENTITY)
    with EngineMemory(BLOCKS, BLOCK_BYTES) as memory:
        async with BlockyardClient(node.engine_socket, description, memory) as client:
            await client.wait_connected(20.0)
            yield Engine(client, memory)


@pytest.fixture
def node_folder(run_folder: RunFolder) -> Path:
    folder = run_folder.path / f"n{uuid4().hex[:6]}"
    folder.mkdir()
    return folder


def local_settings(folder: Path, nats_url: str = "nats://127.0.0.1:1") -> NodeSettings:
    return NodeSettings(
        node=NodeSection(name=folder.name, folder=folder, block_bytes=ByteSize(BLOCK_BYTES), block_tokens=BLOCK_TOKENS),
        g2=G2Section(capacity=ByteSize(32 * BLOCK_BYTES)),
        g3=G3Section(capacity=ByteSize(128 * BLOCK_BYTES)),
        g4=G4Section(enabled=False),
        nats=NatsSection(url=SecretStr(nats_url), timeout_seconds=1.0),
    )


@pytest.fixture
def settings(
    node_folder: Path, nats_server: NatsServer, valkey_server: ValkeyServer, seaweedfs_server: SeaweedfsServer
) -> NodeSettings:
    local = local_settings(node_folder, nats_server.url)
    return local.model_copy(
        update={
            "g4": G4Section(
                endpoint_url=seaweedfs_server.url,
                access_key=SecretStr(seaweedfs_server.access_key),
                secret_key=SecretStr(seaweedfs_server.secret_key),
                bucket=f"b{uuid4().hex[:12]}",
                target_bytes=ByteSize(4 * (BLOCK_BYTES + 256)),
                tail_idle_seconds=0.2,
            ),
            # An index describes one store: each bucket gets a database of its own.
            "redis": RedisSection(url=SecretStr(f"{valkey_server.url.rsplit('/', 1)[0]}/{next(_databases)}")),
        }
    )


async def test_what_one_engine_computed_another_loads_from_every_tier(settings: NodeSettings) -> None:
    async with running_node(settings, *ALL) as node:
        await node.ready()
        async with engine(node, "one") as one, engine(node, "two") as two:
            run = run_of(10)
            await one.compute(run)
            for tier in ("g2", "g3", "g4"):
                await node.holds(tier, 10)
            assert await two.load(run) == ([ItemStatus.OK] * 10, [Tier.G2] * 10)
            assert (await node.post("/v1/tiers/g2:clear")).json()["done"]
            assert await two.load(run) == ([ItemStatus.OK] * 10, [Tier.G3] * 10)
            for tier in ("g2", "g3"):
                assert (await node.post(f"/v1/tiers/{tier}:clear")).json()["done"]
            assert await two.client.lookup(run) == (Availability.MISS,) * 10
            found = await two.client.lookup(run, remote_wait_seconds=1.0)
            assert found == (Availability.G4,) * 10
            assert await two.load(run) == ([ItemStatus.OK] * 10, [Tier.G4] * 10)


async def test_a_killed_block_manager_finds_everything_again(node_folder: Path) -> None:
    async with running_node(local_settings(node_folder), OW, BM) as node:
        await node.ready("nats", "node-lease")
        async with engine(node, "one") as one, engine(node, "two") as two:
            run = run_of(12)
            await one.compute(run)
            await node.holds("g3", 12)
            node.kill(BM)
            node.start(BM)
            await node.ready("nats", "node-lease")
            await node.holds("g2", 12)
            await node.holds("g3", 12)
            await two.client.wait_connected(10.0)
            assert await two.load(run) == ([ItemStatus.OK] * 12, [Tier.G2] * 12)
            await one.client.wait_connected(10.0)
            await node.holds("g1", 12)


async def test_host_memory_survives_its_worker(node_folder: Path) -> None:
    async with running_node(local_settings(node_folder), OW, BM) as node:
        await node.ready("nats", "node-lease")
        async with engine(node, "one") as one, engine(node, "two") as two:
            run = run_of(12)
            await one.compute(run)
            await node.holds("g3", 12)
            node.kill(OW)

            async def unknown() -> bool:
                return await two.client.lookup(run) == (Availability.UNKNOWN,) * 12

            await eventually(unknown, "lookups say unknown")
            statuses, _ = await two.load(run)
            assert statuses == [ItemStatus.UNKNOWN] * 12
            node.start(OW)
            await node.ready("nats", "node-lease")

            async def mapped() -> bool:
                page = await node.get("/v1/engines")
                return page is not None and [item["mapped"] for item in page["engines"]] == [True, True]

            await eventually(mapped, "engines are mapped again")
            assert await two.load(run) == ([ItemStatus.OK] * 12, [Tier.G2] * 12)
            assert await node.registered("g3") == 12


async def test_events_on_the_bus_add_up_to_the_tables(settings: NodeSettings, nats_server: NatsServer) -> None:
    async with running_node(settings, *ALL) as node:
        await node.ready()
        async with engine(node, "one") as one:
            await one.compute(run_of(40))  # more than G2 holds
            await node.holds("g4", 40)
            await node.post("/v1/tiers/g3:clear")
            await one.client.deregister([EngineBlockId(3)])
            fold = EventFold()
            connection = await nats.connect(nats_server.url)
            try:
                subject = events_of(settings.node.namespace, settings.node.name)
                subscription = await connection.jetstream().subscribe(subject, ordered_consumer=True)
                last = (await node.get("/v1/nodes"))["this"]["last_event"]
                while fold.cursor < last:
                    message = await subscription.next_msg(timeout=5.0)
                    fold.receive(decode_event(message.data))
            finally:
                await connection.close()
            assert fold.gaps == 0
            held = {tier: sum(item.tier is tier for item in fold.held) for tier in Tier}
            for tier, count in held.items():
                assert count == await node.registered(tier.label), tier
            assert held[Tier.G1] == 39


async def test_a_killed_remote_tier_never_holds_up_local_loads(settings: NodeSettings) -> None:
    async with running_node(settings, *ALL) as node:
        await node.ready()
        async with engine(node, "one") as one, engine(node, "two") as two:
            run = run_of(8)
            await one.compute(run)
            await node.holds("g4", 8)
            node.kill(RT)
            assert await two.load(run) == ([ItemStatus.OK] * 8, [Tier.G2] * 8)
            longer = run_of(9)
            found = await two.client.lookup(longer, remote_wait_seconds=0.5)
            assert found == (*(Availability.G2,) * 8, Availability.UNKNOWN)
            await one.compute(run_of(4, first=100_000), first_block=20)
            await node.holds("g3", 12)
            node.start(RT)
            await node.ready()
            await node.holds("g4", 12)


async def test_an_engine_that_goes_leaves_nothing_behind(node_folder: Path) -> None:
    async with running_node(local_settings(node_folder), OW, BM) as node:
        await node.ready("nats", "node-lease")
        async with engine(node, "one") as one:
            await one.compute(run_of(5))
            await one.client.reserve(RequestId("r"), run_of(5))
            await node.holds("g3", 5)
        await node.holds("g1", 0)
        this = (await node.get("/v1/nodes"))["this"]
        assert (this["engines"], this["leases"], this["pins"], this["open_loads"]) == (0, 0, 0, 0)


async def test_a_refused_engine_is_told_why(node_folder: Path) -> None:
    async with running_node(local_settings(node_folder), OW, BM) as node:
        await node.ready("nats", "node-lease")
        wrong = ModelIdentity(model="test", block_bytes=BLOCK_BYTES, block_tokens=BLOCK_TOKENS * 2)
        with EngineMemory(4, BLOCK_BYTES) as memory:
            description = EngineDescription(engine=EngineId("odd"), identity=wrong)
            async with BlockyardClient(node.engine_socket, description, memory) as client:
                with pytest.raises(UnavailableError.__bases__[0], match="block_tokens"):
                    await client.wait_connected(10.0)


async def test_two_engines_that_ask_at_once_share_one_read(node_folder: Path) -> None:
    async with running_node(local_settings(node_folder), OW, BM) as node:
        await node.ready("nats", "node-lease")
        async with engine(node, "one") as one, engine(node, "two") as two:
            run = run_of(16)
            await one.compute(run)
            await node.holds("g3", 16)
            await node.post("/v1/tiers/g2:clear")
            first, second = await asyncio.gather(one.load(run, 32), two.load(run, 32))
            assert first == second == ([ItemStatus.OK] * 16, [Tier.G3] * 16)
            assert await node.registered("g2") == 16
