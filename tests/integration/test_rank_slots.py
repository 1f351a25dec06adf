"""Ranks that copy by themselves, as processes of their own, on a real node: what they store is loaded, or is a miss.

Every row has one right content, which both processes know: a wrong byte anywhere fails the test that meets it.
"""

import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.integration.engine_kit import BM, OW, local_settings, node_folder
from tests.integration.rank_kit import engine, granted, load, rank_process, run_of, store, stored

from blockyard.core.vocabulary import Availability, ItemStatus
from blockyard.testing.running_node import RunningNode, eventually, running_node

__all__ = ["node_folder"]

FROZEN_SECONDS = 40.0
"""A writer that stands still is waited for for 10 s; the rest is for the machine."""


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
