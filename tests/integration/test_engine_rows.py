"""An engine as real ones are, on a real node: several engine blocks per block, groups of three kinds, two ranks."""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.integration.engine_kit import BLOCK_TOKENS, BM, OW, local_settings, node_folder

from blockyard.connectors.client import BlockyardClient, EngineDescription
from blockyard.connectors.rank_link import RankLink
from blockyard.connectors.rank_memory import RankMemory
from blockyard.core.chain_run import ChainRun
from blockyard.core.identity import ModelIdentity
from blockyard.core.kv_groups import NO_PAGE, GroupKind, KvGroup, Region, common_block_tokens, group_spec
from blockyard.core.vocabulary import (
    Availability,
    EngineBlockId,
    EngineId,
    Executor,
    GroupId,
    ItemStatus,
    RequestId,
    Tier,
)
from blockyard.testing.rank_engine import RankEngine
from blockyard.testing.running_node import WAIT_SECONDS, RunningNode, eventually, running_node
from blockyard.wire.worker_channel import GroupLayout

__all__ = ["node_folder"]

FULL, WINDOW, LATENT = GroupId(0), GroupId(1), GroupId(2)
GROUPS = (
    KvGroup(group=FULL, engine_block_tokens=BLOCK_TOKENS // 4),
    KvGroup(group=WINDOW, kind=GroupKind.SLIDING_WINDOW, engine_block_tokens=BLOCK_TOKENS // 2, window_tokens=40),
    KvGroup(group=LATENT, engine_block_tokens=BLOCK_TOKENS // 4, replicated=True),
)
BLOCKS, PAGE, RANKS = 48, 512, 2
IDENTITY = ModelIdentity(
    model="rows",
    engine_block_tokens=common_block_tokens(GROUPS),
    block_tokens=BLOCK_TOKENS,
    block_bytes=16_384,
    group_spec=group_spec(GROUPS),
    parallel_shape="tp2",
)
RUN = ChainRun(b"".join(hashlib.sha256(bytes([index])).digest() for index in range(2)))
NOWHERE = int(NO_PAGE)


def regions_of(shift: int) -> tuple[tuple[Region, ...], ...]:
    """Six layers, one after the other: three of full attention, two of a window, one that all ranks hold alike."""
    layers = [Region(shift + layer * BLOCKS * PAGE, PAGE, PAGE) for layer in range(6)]
    return tuple(layers[:3]), tuple(layers[3:5]), tuple(layers[5:])


@dataclass
class Ranked:
    """The engine under test; its ranks come and go one by one."""

    socket: Path
    client: BlockyardClient
    memory: RankEngine
    links: list[RankLink]
    settled: list[int] = field(default_factory=list)

    def pages(self, *numbers: int) -> list[EngineBlockId]:
        return [EngineBlockId(number) for number in numbers]

    async def compute(self, group: GroupId, names: tuple[int, ...], *numbers: int, ticket: int = 0) -> None:
        """Two rows of a group, in these pages."""
        per_row = len(numbers) // 2
        for index, name in enumerate(names):
            self.memory.compute(group, numbers[index * per_row : (index + 1) * per_row], name)
        await self.client.register(RUN, self.pages(*numbers), group=group, ticket=ticket)

    async def load(self, group: GroupId, *numbers: int) -> tuple[list[ItemStatus], list[Tier | None]]:
        pages = self.pages(*numbers)
        wanted = [page for page in pages if page != NO_PAGE]
        self.memory.guards.raise_guards(wanted)
        await self.client.deregister(wanted)
        result = await self.client.load(RequestId("r"), RUN, pages, group=group, ttl_seconds=5.0)
        return list(result.statuses), list(result.sources)

    def wrong(self, group: GroupId, names: tuple[int, ...], *numbers: int) -> int:
        per_row = len(numbers) // 2
        return sum(
            self.memory.wrong_pages(group, numbers[index * per_row : (index + 1) * per_row], name)
            for index, name in enumerate(names)
        )


@asynccontextmanager
async def ranked(node: RunningNode, executor: Executor = Executor.MAPPED) -> AsyncIterator[Ranked]:
    layouts = [
        GroupLayout(group=group.group, pages_per_row=group.pages_per_row(BLOCK_TOKENS), replicated=group.replicated)
        for group in GROUPS
    ]
    places = (regions_of(0), regions_of(4_096))
    description = EngineDescription(
        engine=EngineId("ranked"),
        identity=IDENTITY,
        blocks=BLOCKS,
        groups=GROUPS,
        ranks=RANKS,
        executor=executor,
    )
    settled: list[int] = []
    async with AsyncExitStack() as stack:
        memory = stack.enter_context(RankEngine(BLOCKS, layouts, places))
        links = [await stack.enter_async_context(rank_link(node, memory, rank, places[rank])) for rank in range(RANKS)]
        client = await stack.enter_async_context(
            BlockyardClient(node.engine_socket, description, memory.guards, on_stores_settled=settled.append)
        )
        await client.wait_connected(WAIT_SECONDS)
        await mapped(node)
        yield Ranked(node.engine_socket, client, memory, links, settled)


def rank_link(node: RunningNode, memory: RankEngine, rank: int, regions: tuple[tuple[Region, ...], ...]) -> RankLink:
    size = memory.request.ranks[rank].memory_bytes
    handed = RankMemory(memory.fds[rank], size, regions)
    return RankLink(node.engine_socket, EngineId("ranked"), 0, rank, handed, regions)


async def mapped(node: RunningNode, *, expected: bool = True) -> None:
    async def holds() -> bool:
        page = await node.get("/v1/engines")
        return page is not None and [engine["mapped"] for engine in page["engines"]] == [expected]

    await eventually(holds, f"the engine is mapped: {expected}")


@pytest.fixture
async def node(node_folder: Path) -> AsyncIterator[RunningNode]:
    async with running_node(local_settings(node_folder), OW, BM) as node:
        await node.ready("nats", "node-lease")
        yield node


async def test_rows_of_every_group_come_back_from_memory_and_disk_to_all_ranks(node: RunningNode) -> None:
    await rows_come_back(node, Executor.MAPPED)


async def rows_come_back(node: RunningNode, executor: Executor) -> None:
    async with ranked(node, executor) as engine:
        await engine.compute(FULL, (1, 2), *range(8), ticket=1)
        await engine.compute(WINDOW, (3, 4), *range(8, 12), ticket=2)
        await engine.compute(LATENT, (5, 6), *range(12, 20), ticket=3)
        await node.holds("g3", 6)

        async def all_settled() -> bool:
            return sorted(engine.settled) == [1, 2, 3]

        await eventually(all_settled, "the engine is told that its stores are over")
        found = await engine.client.lookup(RUN, groups=(FULL, WINDOW, LATENT))
        assert found == ((Availability.G2,) * 2,) * 3
        assert await engine.client.reserve(RequestId("r"), RUN, groups=(FULL, WINDOW, LATENT)) == 2
        for tier in (Tier.G2, Tier.G3):
            full = (20, NOWHERE, 21, 22, 23, 24, NOWHERE, 25)
            assert await engine.load(FULL, *full) == ([ItemStatus.OK] * 2, [tier] * 2)
            assert engine.wrong(FULL, (1, 2), *full) == 0
            assert await engine.load(WINDOW, 30, 31, 32, 33) == ([ItemStatus.OK] * 2, [tier] * 2)
            assert engine.wrong(WINDOW, (3, 4), 30, 31, 32, 33) == 0
            assert await engine.load(LATENT, *range(40, 48)) == ([ItemStatus.OK] * 2, [tier] * 2)
            assert engine.wrong(LATENT, (5, 6), *range(40, 48)) == 0
            for block in range(20, 48):
                for group in (FULL, WINDOW, LATENT):
                    for rank in range(RANKS):
                        for region in range(engine.memory.regions(group, rank)):
                            engine.memory.page(group, rank, region, block)[:] = 0
            await engine.client.release(RequestId("r"))
            assert (await node.post("/v1/tiers/g2:clear")).json()["done"]


async def test_a_rank_that_goes_unmaps_the_engine_until_it_is_back(node: RunningNode) -> None:
    async with ranked(node) as engine:
        await engine.compute(FULL, (1, 2), *range(8))
        await node.holds("g2", 2)
        await engine.links[1].__aexit__(None, None, None)
        await mapped(node, expected=False)
        statuses, _ = await engine.load(FULL, *range(20, 28))
        assert statuses == [ItemStatus.UNKNOWN] * 2
        await engine.compute(WINDOW, (3, 4), *range(8, 12), ticket=9)

        async with rank_link(node, engine.memory, 1, regions_of(4_096)):
            await mapped(node)
            async with asyncio.timeout(WAIT_SECONDS):
                while engine.client.unsettled_blocks:
                    await asyncio.sleep(0.01)
            assert await engine.load(FULL, *range(20, 28)) == ([ItemStatus.OK] * 2, [Tier.G2] * 2)
            assert engine.wrong(FULL, (1, 2), *range(20, 28)) == 0


async def test_an_engine_whose_rows_are_too_large_is_told_the_size_it_needs(node: RunningNode) -> None:
    large = ModelIdentity(
        model="large", engine_block_tokens=BLOCK_TOKENS // 4, block_tokens=BLOCK_TOKENS, block_bytes=16_384
    )
    region = Region(0, 8_192, 8_192)
    with RankEngine(4, [GroupLayout(group=0, pages_per_row=4)], ([[region]],)) as memory:
        description = EngineDescription(
            engine=EngineId("large"),
            identity=large,
            blocks=4,
            groups=(KvGroup(engine_block_tokens=BLOCK_TOKENS // 4),),
        )
        rank = RankMemory(memory.fds[0], memory.request.ranks[0].memory_bytes, ((region,),))
        async with BlockyardClient(node.engine_socket, description, memory.guards, memory=rank) as client:
            with pytest.raises(Exception, match="needed_bytes=32768"):
                await client.wait_connected(WAIT_SECONDS)
