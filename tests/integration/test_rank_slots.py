"""Ranks that copy by themselves, as processes of their own, on a real node: what they store is loaded, or is a miss.

Every row has one right content, which both processes know: a wrong byte anywhere fails the test that meets it.
"""

import asyncio
import hashlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.integration.engine_kit import BLOCK_BYTES, BLOCK_TOKENS, BM, OW, local_settings, node_folder

from blockyard.connectors.client import BlockyardClient, EngineDescription
from blockyard.connectors.engine_guards import EngineGuards
from blockyard.connectors.slot_calls import StagedLoad, StoreGrant
from blockyard.core.chain_run import ChainRun
from blockyard.core.identity import ModelIdentity
from blockyard.core.kv_groups import KvGroup
from blockyard.core.vocabulary import Availability, EngineId, Executor, ItemStatus, RequestId
from blockyard.testing.running_node import WAIT_SECONDS, RunningNode, eventually, running_node

__all__ = ["node_folder"]

ROW_BYTES = BLOCK_BYTES - 1_024
IDENTITY = ModelIdentity(model="ranks", block_tokens=BLOCK_TOKENS, block_bytes=BLOCK_BYTES)
FROZEN_SECONDS = 40.0
"""A writer that stands still is waited for for 10 s; the rest is for the machine."""


def run_of(name: int, rows: int = 1) -> ChainRun:
    return ChainRun(b"".join(hashlib.sha256(f"{name + row}".encode()).digest() for row in range(rows)))


@dataclass
class Rank:
    """A rank process."""

    process: asyncio.subprocess.Process

    @property
    def pid(self) -> int:
        return self.process.pid

    async def tell(self, do: str, slot: int, generation: int, name: int) -> str:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        order = {"do": do, "slot": slot, "generation": generation, "name": name}
        self.process.stdin.write(json.dumps(order).encode() + b"\n")
        async with asyncio.timeout(WAIT_SECONDS):
            return (await self.process.stdout.readline()).decode().strip()

    async def kill(self) -> None:
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()


@asynccontextmanager
async def rank_process(node: RunningNode, name: str) -> AsyncIterator[Rank]:
    script = Path(__file__).with_name("rank_process.py")
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(script),
        str(node.engine_socket),
        name,
        str(ROW_BYTES),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    rank = Rank(process)
    try:
        yield rank
    finally:
        await rank.kill()


@asynccontextmanager
async def engine(node: RunningNode, name: str) -> AsyncIterator[BlockyardClient]:
    description = EngineDescription(
        engine=EngineId(name),
        identity=IDENTITY,
        blocks=8,
        groups=(KvGroup(engine_block_tokens=BLOCK_TOKENS),),
        executor=Executor.ENGINE,
    )
    with EngineGuards(8) as guards:
        async with BlockyardClient(node.engine_socket, description, guards) as client:
            await client.wait_connected(WAIT_SECONDS)
            yield client


async def granted(client: BlockyardClient, count: int, seconds: float = WAIT_SECONDS) -> StoreGrant:
    """A grant of at least one slot, as soon as there is one."""
    found: list[StoreGrant] = []

    async def some() -> bool:
        if client.connected:
            found[:] = [await client.reserve_store(count)]
        return bool(found and found[0].slots)

    await eventually(some, "slots are granted", seconds)
    return found[0]


async def store(client: BlockyardClient, rank: Rank, name: int, rows: int = 1) -> None:
    for row in range(rows):
        grant = await granted(client, 1)
        assert await rank.tell("write", grant.slots[0], grant.generations[0], name + row) == "written"
        run = run_of(name, rows)
        one = ChainRun(run.digests[32 * row : 32 * (row + 1)]) if rows == 1 else run_of(name + row)
        await client.commit_store(grant.grant, grant.slots, one, shards=1)


async def load(client: BlockyardClient, rank: Rank, name: int) -> tuple[ItemStatus, str]:
    """Status of a row, and what the rank found in its slot."""
    staged: StagedLoad = await client.stage_load(RequestId(f"r{name}"), run_of(name), ttl_seconds=5.0)
    (status,) = staged.statuses
    found = "miss"
    if status is ItemStatus.OK:
        found = await rank.tell("read", staged.slots[0], staged.generations[0], name)
    await client.close_load(staged.load)
    return status, found


async def stored(client: BlockyardClient, name: int) -> None:
    async def there() -> bool:
        return await client.lookup(run_of(name)) == ((Availability.G2,),)

    await eventually(there, "the row is registered")


@pytest.fixture
async def node(node_folder: Path) -> AsyncIterator[RunningNode]:
    async with running_node(local_settings(node_folder), OW, BM) as node:
        await node.ready("nats", "node-lease")
        yield node


async def test_what_a_rank_stores_is_loaded_from_memory_and_disk(node: RunningNode) -> None:
    async with rank_process(node, "e") as rank, engine(node, "e") as client:
        for name in (1, 2):
            await store(client, rank, name)
            await stored(client, name)
            assert await load(client, rank, name) == (ItemStatus.OK, "right")
        await node.holds("g3", 2)
        assert (await node.post("/v1/tiers/g2:clear")).json()["done"]
        await node.holds("g2", 0)
        assert await load(client, rank, 1) == (ItemStatus.OK, "right")


async def test_slots_of_a_rank_that_dies_in_mid_write_are_granted_again(node: RunningNode) -> None:
    async with rank_process(node, "e") as rank, engine(node, "e") as client:
        await store(client, rank, 1)
        await stored(client, 1)
        grant = await granted(client, 4)
        assert await rank.tell("half", grant.slots[0], grant.generations[0], 7) == "half"
        await rank.kill()
        async with rank_process(node, "e") as second:
            again = await granted(client, 4)
            assert len(again.slots) == len(grant.slots), "the slots of the dead rank are free"
            assert await client.lookup(run_of(7)) == ((Availability.MISS,),)
            assert await load(client, second, 1) == (ItemStatus.OK, "right")


async def test_a_new_life_of_the_block_manager_grants_nothing_before_the_ranks_of_the_earlier_one_have_attached(
    node: RunningNode,
) -> None:
    async with rank_process(node, "e") as rank, engine(node, "e") as client:
        await store(client, rank, 1)
        await stored(client, 1)
        grant = await granted(client, 2)
        os.kill(rank.pid, signal.SIGSTOP)
        node.kill(BM)
        node.start(BM)

        async def waits() -> bool:
            page = await node.get("/readyz")
            checks = {} if page is None else {check["name"]: check["ok"] for check in page["checks"]}
            return checks.get("arena-writers") is False and checks.get("local-tiers") is True

        await eventually(waits, "the new life waits for the rank")
        os.kill(rank.pid, signal.SIGCONT)
        await node.ready("nats", "node-lease")
        fresh = await granted(client, 2)
        for slot, generation in zip(fresh.slots, fresh.generations, strict=True):
            assert await rank.tell("write", slot, generation, 3) == "written"
        assert grant.grant, "the grant of the earlier life was one"
        assert await load(client, rank, 1) == (ItemStatus.OK, "right")


async def test_a_rank_that_stands_still_costs_the_arena_and_what_it_writes_then_is_never_read(
    node: RunningNode,
) -> None:
    async with rank_process(node, "frozen") as frozen:
        async with engine(node, "frozen") as client:
            grant = await granted(client, 4)
            assert await frozen.tell("half", grant.slots[0], grant.generations[0], 7) == "half"
            os.kill(frozen.pid, signal.SIGSTOP)
        async with rank_process(node, "other") as rank, engine(node, "other") as client:
            for name in range(20, 28):
                await store(client, rank, name)
                await stored(client, name)

            async def replaced() -> bool:
                return "arena replaced" in node.logs()

            await eventually(replaced, "the arena is replaced", FROZEN_SECONDS)
            os.kill(frozen.pid, signal.SIGCONT)
            assert await frozen.tell("rest", grant.slots[0], grant.generations[0], 7) == "written"
            for name in range(40, 72):
                await store(client, rank, name)
            read = [await load(client, rank, name) for name in (*range(20, 28), *range(40, 72))]
            assert {found for _, found in read} <= {"right", "miss"}
            assert (ItemStatus.OK, "right") in read
