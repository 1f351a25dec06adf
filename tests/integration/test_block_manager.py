"""A real node: block-manager, offload-worker and remote tier with their servers, used by two engines."""

import asyncio
from pathlib import Path

import pytest
from tests.integration.engine_kit import (
    ALL,
    BLOCK_BYTES,
    BLOCK_TOKENS,
    BM,
    OW,
    RT,
    engine,
    local_settings,
    node_folder,
    published,
    run_of,
    settings,
)

from blockyard.cli.embedded.nats import NatsServer
from blockyard.connectors.client import BlockyardClient
from blockyard.connectors.engine_memory import EngineMemory
from blockyard.core.errors import UnavailableError
from blockyard.core.identity import ModelIdentity
from blockyard.core.vocabulary import Availability, EngineBlockId, EngineId, ItemStatus, RequestId, Tier
from blockyard.runtime.settings import NodeSettings
from blockyard.testing.running_node import eventually, running_node

__all__ = ["node_folder", "settings"]


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
            assert await two.lookup(run) == (Availability.MISS,) * 10
            found = await two.lookup(run, remote_wait_seconds=1.0)
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
                return await two.lookup(run) == (Availability.UNKNOWN,) * 12

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
            one.memory.raise_guards([EngineBlockId(3)])
            await one.client.deregister([EngineBlockId(3)])
            fold = await published(node, nats_server.url)
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
            found = await two.lookup(longer, remote_wait_seconds=0.5)
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
            description = memory.description(EngineId("odd"), wrong)
            async with BlockyardClient(node.engine_socket, description, memory.guards, memory=memory.rank) as client:
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
