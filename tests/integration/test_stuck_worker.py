"""An offload-worker that stops or dies with copies into engine memory: its life is ended, and so are the loads.

The node has no service manager here: nobody else ends a process that stands still, and nobody starts one again.
"""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import uuid4

import pytest
from pydantic import ByteSize
from tests.integration.engine_kit import BM, OW, local_settings, node_folder
from tests.integration.process_namespace import wrapper

from blockyard.connectors.client import BlockyardClient
from blockyard.connectors.engine_memory import EngineMemory
from blockyard.connectors.load_result import LoadResult
from blockyard.connectors.mock.oracle import payload, wrong_bytes
from blockyard.core.hashing import content_run
from blockyard.core.identity import ModelIdentity, SequenceScope
from blockyard.core.vocabulary import EngineBlockId, EngineId, ItemStatus, RequestId
from blockyard.runtime.settings import G2Section, G3Section, JobSection, NodeSettings
from blockyard.testing.running_node import RunningNode, eventually, running_node

__all__ = ["node_folder", "wrapper"]

BLOCK_BYTES = 4 << 20
"""Large, so that a copy of all blocks takes long enough to be stopped in the middle of it."""
BLOCK_TOKENS = 16
IDENTITY = ModelIdentity(model="test", block_bytes=BLOCK_BYTES, block_tokens=BLOCK_TOKENS)
RUN = content_run(IDENTITY.digest(), SequenceScope(), range(24 * BLOCK_TOKENS), BLOCK_TOKENS)
TTL_SECONDS = 1.0
STUCK_SECONDS = 1.0
BOUND_SECONDS = 10.0
"""From the end of the load's time: patience, death and its proof, on a busy machine."""
NO_SERVERS = ("nats", "node-lease")


class Engine:
    """An engine that computes the run into its first blocks, or loads it into any others."""

    def __init__(self, client: BlockyardClient, memory: EngineMemory) -> None:
        self.client = client
        self.memory = memory

    async def compute(self) -> None:
        blocks = [EngineBlockId(index) for index in range(len(RUN))]
        for block, key in zip(blocks, RUN, strict=True):
            self.memory.view(block)[:] = payload(IDENTITY.digest(), key, BLOCK_BYTES)
        await self.client.register(RUN, blocks)

    def begin_load(self) -> asyncio.Task[LoadResult]:
        """Load into blocks that hold nothing."""
        blocks = [EngineBlockId(index) for index in range(len(RUN))]
        self.memory.raise_guards(blocks)
        for block in blocks:
            self.memory.view(block)[:] = 0
        request = RequestId(uuid4().hex)
        return asyncio.create_task(self.client.load(request, RUN, blocks, ttl_seconds=TTL_SECONDS))

    def has_begun(self, block: int) -> bool:
        return bool(self.memory.view(EngineBlockId(block))[-8:].any())

    def bytes_now(self) -> bytes:
        return b"".join(self.memory.view(EngineBlockId(index)).tobytes() for index in range(len(RUN)))

    async def loads_right(self) -> bool:
        result = await self.begin_load()
        for index, (key, status) in enumerate(zip(RUN, result.statuses, strict=True)):
            if status is ItemStatus.OK:
                assert wrong_bytes(self.memory.view(EngineBlockId(index)), IDENTITY.digest(), key) == 0
        return set(result.statuses) == {ItemStatus.OK}

    async def settled(self) -> bool:
        return not self.client.unsettled_blocks


@asynccontextmanager
async def engine(node: RunningNode, name: str) -> AsyncIterator[Engine]:
    with EngineMemory(len(RUN), BLOCK_BYTES) as memory:
        description = memory.description(EngineId(name), IDENTITY)
        async with BlockyardClient(node.engine_socket, description, memory.guards, memory=memory.rank) as client:
            await client.wait_connected(20.0)
            yield Engine(client, memory)


@asynccontextmanager
async def reader_at(settings: NodeSettings, wrapper: tuple[str, ...] = ()) -> AsyncIterator[tuple[RunningNode, Engine]]:
    """A node whose G2 holds the run, and an engine that can load it."""
    async with running_node(settings, OW, BM, wrapper=wrapper) as node:
        await node.ready(*NO_SERVERS)
        async with engine(node, "one") as one, engine(node, "two") as two:
            await one.compute()
            await node.holds("g2", len(RUN))
            yield node, two


async def killed(node: RunningNode, outcome: str = "killed") -> int:
    """How often the block-manager dealt with a stuck worker like this."""
    url = node.folder.service(BM).read_http()
    lines = (await node.http.get(f"{url}/metrics")).text.splitlines()
    sample = f'blockyard_stuck_workers_total{{outcome="{outcome}"}} '
    (value,) = (line.removeprefix(sample) for line in lines if line.startswith(sample))
    return int(float(value))


async def comes_back(node: RunningNode, two: Engine) -> None:
    """Started again, the worker serves what the arena holds."""
    node.start(OW)
    await node.ready(*NO_SERVERS)
    await eventually(two.loads_right, "all of the run is loaded again")


@pytest.fixture
def local(node_folder: Path) -> NodeSettings:
    settings = local_settings(node_folder)
    size = ByteSize((len(RUN) + 8) * BLOCK_BYTES)
    return settings.model_copy(
        update={
            "node": settings.node.model_copy(update={"block_bytes": ByteSize(BLOCK_BYTES)}),
            "g2": G2Section(capacity=size),
            "g3": G3Section(enabled=False),
            "jobs": JobSection(stuck_ms=int(STUCK_SECONDS * 1_000)),
        }
    )


async def stop_in_a_copy(node: RunningNode, two: Engine) -> asyncio.Task[LoadResult]:
    """Stop the worker when the first block of a load has arrived and the last has not."""
    for _ in range(20):
        load = two.begin_load()
        while not two.has_begun(0):
            await asyncio.sleep(0)
            assert not load.done(), load.result().statuses
        os.killpg(node.pid(OW), signal.SIGSTOP)
        if not two.has_begun(len(RUN) - 1):
            return load
        os.killpg(node.pid(OW), signal.SIGCONT)
        await load
    raise AssertionError("no copy was caught in the middle")


async def test_a_worker_that_stops_in_the_middle_of_a_copy_is_ended_and_the_load_with_it(local: NodeSettings) -> None:
    async with reader_at(local) as (node, two):
        load = await stop_in_a_copy(node, two)
        began = time.monotonic()
        result = await load
        assert set(result.statuses) == {ItemStatus.UNKNOWN}
        assert two.client.unsettled_blocks, "it could go on at any moment"
        await eventually(two.settled, "nothing can write any more", BOUND_SECONDS)
        assert time.monotonic() - began >= STUCK_SECONDS
        assert await killed(node) == 1
        before = two.bytes_now()
        node.kill(OW)
        assert two.bytes_now() == before
        await comes_back(node, two)
        assert await killed(node) == 1


async def test_a_worker_that_dies_in_the_middle_of_a_copy_and_stays_away_holds_no_load(local: NodeSettings) -> None:
    async with reader_at(local) as (node, two):
        load = await stop_in_a_copy(node, two)
        began = time.monotonic()
        node.kill(OW)
        result = await load
        assert time.monotonic() - began < TTL_SECONDS, "the load ended with its worker"
        assert set(result.statuses) == {ItemStatus.UNKNOWN}
        assert not two.client.unsettled_blocks
        assert await killed(node) == 0
        await comes_back(node, two)


async def test_a_worker_out_of_reach_is_named_and_waited_for(local: NodeSettings, wrapper: tuple[str, ...]) -> None:
    """In a process space of its own it cannot be killed; its death is seen by its lock all the same."""
    async with reader_at(local, wrapper) as (node, two):
        load = await stop_in_a_copy(node, two)
        result = await load
        assert set(result.statuses) == {ItemStatus.UNKNOWN}

        async def named() -> bool:
            return await killed(node, "out_of_reach") == 1

        await eventually(named, "the worker is named")
        assert "cannot be killed from here" in node.logs()
        assert two.client.unsettled_blocks
        node.kill(OW)
        await eventually(two.settled, "nothing can write any more", BOUND_SECONDS)
        assert await killed(node) == 0
        await comes_back(node, two)
