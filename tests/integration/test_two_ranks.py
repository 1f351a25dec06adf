"""Two ranks of one engine that copy by themselves, on a real node, of which one goes at the worst moment.

A row is stored with the shards of both or not at all, and no slot is granted again while one of them may touch it.
"""

import os
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.integration.engine_kit import BM, OW, local_settings, node_folder
from tests.integration.rank_kit import Rank, engine, granted, rank_process, run_of, store, stored

from blockyard.connectors.client import BlockyardClient
from blockyard.connectors.slot_calls import StagedLoad
from blockyard.core.vocabulary import Availability, ItemStatus, RequestId
from blockyard.testing.running_node import RunningNode, eventually, running_node

__all__ = ["node_folder"]

ALL_SHARDS = 0b11


@dataclass
class Pair:
    """An engine with its two ranks, whose processes end where a test says so."""

    node: RunningNode
    client: BlockyardClient
    ranks: list[Rank]
    stack: AsyncExitStack

    async def store(self, name: int) -> None:
        grant = await granted(self.client, 1)
        for number, rank in enumerate(self.ranks):
            assert await rank.tell("write", grant.slots[0], grant.generations[0], name) == "written"
            await self.client.commit_store(grant.grant, grant.slots, run_of(name), shards=1 << number)
        await stored(self.client, name)

    async def stage(self, name: int) -> StagedLoad:
        staged = await self.client.stage_load(RequestId(f"r{name}"), run_of(name), ttl_seconds=5.0)
        assert staged.statuses == (ItemStatus.OK,)
        return staged

    async def start_again(self, number: int) -> None:
        """Another process is the rank from now on."""
        self.ranks[number] = await self.stack.enter_async_context(rank_process(self.node, "two", number, 2))


@asynccontextmanager
async def pair(node: RunningNode) -> AsyncIterator[Pair]:
    async with AsyncExitStack() as stack:
        ranks = [await stack.enter_async_context(rank_process(node, "two", number, 2)) for number in range(2)]
        client = await stack.enter_async_context(engine(node, "two", ranks=2))
        yield Pair(node, client, ranks, stack)


@pytest.fixture
async def node(node_folder: Path) -> AsyncIterator[RunningNode]:
    async with running_node(local_settings(node_folder), OW, BM) as node:
        await node.ready("nats", "node-lease")
        yield node


async def slots_of(node: RunningNode, state: str) -> float:
    """Slots in the hands of ranks, as the metrics say."""
    url = node.folder.service(BM).read_http()
    lines = (await node.http.get(f"{url}/metrics")).text.splitlines()
    (found,) = [line for line in lines if line.startswith(f'blockyard_rank_blocks{{state="{state}"}}')]
    return float(found.split()[-1])


async def rests(node: RunningNode) -> None:
    """Nothing is in the hands of ranks, and nothing waits for one."""

    async def empty() -> bool:
        return [await slots_of(node, state) for state in ("open", "quarantined", "staged")] == [0.0, 0.0, 0.0]

    await eventually(empty, "no slot is held for a rank")


async def test_a_row_has_the_shards_of_both_ranks(node: RunningNode) -> None:
    async with pair(node) as two:
        await two.store(1)
        staged = await two.stage(1)
        for rank in two.ranks:
            assert await rank.tell("read", staged.slots[0], staged.generations[0], 1) == "right"
        await two.client.close_load(staged.load)
        await rests(node)


@pytest.mark.parametrize("dies", [0, 1])
async def test_a_row_of_which_one_shard_is_missing_is_none_and_its_slot_is_free_again(
    node: RunningNode, dies: int
) -> None:
    async with pair(node) as two:
        grant = await granted(two.client, 4)
        other = 1 - dies
        for slot, generation in zip(grant.slots, grant.generations, strict=True):
            assert await two.ranks[other].tell("write", slot, generation, 7) == "written"
        await two.client.commit_store(grant.grant, grant.slots[:1], run_of(7), shards=1 << other)
        assert await two.ranks[dies].tell("half", grant.slots[0], grant.generations[0], 7) == "half"
        await two.ranks[dies].kill()
        await two.start_again(dies)
        again = await granted(two.client, len(grant.slots))
        assert len(again.slots) == len(grant.slots)
        assert await two.client.lookup(run_of(7)) == ((Availability.MISS,),)
        await two.client.abort_store(again.grant, again.slots)
        await two.store(8)
        await rests(node)


async def test_rows_of_a_staged_load_stay_where_they_are_while_a_rank_that_was_told_of_them_stands_still(
    node: RunningNode,
) -> None:
    async with rank_process(node, "other") as rank, engine(node, "other") as other, pair(node) as two:
        await two.store(1)
        staged = await two.stage(1)
        frozen = two.ranks[1]
        os.kill(frozen.pid, signal.SIGSTOP)
        await two.ranks[0].kill()

        async def held() -> bool:
            return await slots_of(node, "staged") == 1.0

        await eventually(held, "the row is pinned for the rank that stands still")
        for name in range(20, 26):
            await store(other, rank, name)
        assert await slots_of(node, "staged") == 1.0 or "arena replaced" in node.logs()
        os.kill(frozen.pid, signal.SIGCONT)
        assert await frozen.tell("read", staged.slots[0], staged.generations[0], 1) != "wrong"
        await two.start_again(0)
        await two.store(2)
        await rests(node)
