"""A request of the demo engine waits for room in its memory; small memories cost time, never the engine."""

import asyncio
from pathlib import Path

import pytest

from blockyard.connectors.client import BlockyardClient
from blockyard.connectors.engine_memory import EngineMemory
from blockyard.connectors.mock.admission import Admission, Admitted
from blockyard.connectors.mock.commands import Replay
from blockyard.connectors.mock.engine import MockEngine
from blockyard.connectors.mock.prefix_cache import PrefixCache
from blockyard.connectors.mock.trace import TRACE_BLOCK_TOKENS, load_trace
from blockyard.connectors.mock.trace_replay import TraceReplay
from blockyard.core.errors import OutOfBlocksError
from blockyard.core.identity import ModelIdentity
from blockyard.core.vocabulary import ContentKey, EngineBlockId, EngineId
from blockyard.testing.scripted_manager import WAIT_SECONDS, ScriptedManager, served

REQUESTS = 60
LONGEST = max(len(request.blocks) for request in load_trace())


def keys(*names: int) -> list[ContentKey]:
    return [ContentKey(name.to_bytes(16, "little")) for name in names]


class Memory:
    """A memory of four blocks."""

    def __init__(self) -> None:
        self.unusable: set[EngineBlockId] = set()
        self.cache = PrefixCache(4)
        self.admission = Admission(self.cache, 4, lambda: self.unusable)
        self.began: list[str] = []

    async def begin(self, name: str, *names: int) -> Admitted:
        admitted = await self.admission.enter(keys(*names))
        self.began.append(name)
        return admitted


async def settle() -> None:
    """Let everything run that can."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_a_request_waits_for_the_blocks_of_another_and_holds_none_meanwhile() -> None:
    memory = Memory()
    first = await memory.begin("first", 1, 2, 3)
    assert memory.cache.insert(keys(1)[0], first.taken[0])
    waiting = asyncio.create_task(memory.begin("second", 1, 8, 9))
    await settle()
    assert memory.began == ["first"]
    memory.admission.leave(first)
    async with asyncio.timeout(WAIT_SECONDS):
        second = await waiting
    assert (second.held, len(second.taken)) == ([first.taken[0]], 2)
    memory.admission.leave(second)
    memory.cache.clear()
    assert len(memory.cache.allocate(4, ())[0]) == 4


async def test_requests_begin_in_the_order_in_which_they_came() -> None:
    """Otherwise a long one would never find room among short ones."""
    memory = Memory()
    first = await memory.begin("first", 1, 2, 3)
    long = asyncio.create_task(memory.begin("long", 4, 5, 6, 7))
    short = asyncio.create_task(memory.begin("short", 8))
    await settle()
    assert memory.began == ["first"]
    memory.admission.leave(first)
    async with asyncio.timeout(WAIT_SECONDS):
        memory.admission.leave(await long)
        await short
    assert memory.began == ["first", "long", "short"]


async def test_blocks_that_a_late_write_may_reach_are_waited_for() -> None:
    memory = Memory()
    memory.unusable.add(EngineBlockId(0))
    waiting = asyncio.create_task(memory.begin("first", 1, 2, 3, 4))
    await settle()
    assert memory.began == []
    memory.unusable.clear()
    async with asyncio.timeout(WAIT_SECONDS):
        await waiting


async def test_a_request_that_is_given_up_while_it_waits_leaves_the_way_free() -> None:
    memory = Memory()
    first = await memory.begin("first", 1, 2, 3)
    given_up = asyncio.create_task(memory.begin("second", 4, 5))
    await settle()
    given_up.cancel()
    await asyncio.gather(given_up, return_exceptions=True)
    async with asyncio.timeout(WAIT_SECONDS):
        await memory.begin("third", 9)
    assert memory.began == ["first", "third"]
    memory.admission.leave(first)


async def test_what_never_fits_is_refused_at_once() -> None:
    memory = Memory()
    await memory.begin("first", 1)
    async with asyncio.timeout(WAIT_SECONDS):
        with pytest.raises(OutOfBlocksError, match="asked=5, blocks=4"):
            await memory.begin("second", 1, 2, 3, 4, 5)


@pytest.mark.parametrize(("blocks", "concurrency"), [(LONGEST, 4), (64, 32)])
async def test_a_small_memory_serves_many_requests(tmp_path: Path, blocks: int, concurrency: int) -> None:
    identity = ModelIdentity(model="m", block_bytes=4_096, block_tokens=TRACE_BLOCK_TOKENS)
    with EngineMemory(blocks, 4_096) as memory:
        description, path = memory.description(EngineId("e"), identity), tmp_path / "c.sock"
        async with (
            served(path, ScriptedManager()),
            BlockyardClient(path, description, memory.guards, memory=memory.rank) as client,
        ):
            await client.wait_connected(WAIT_SECONDS)
            engine = MockEngine(client, memory, identity)
            async with asyncio.timeout(60):
                await TraceReplay(engine).run(Replay(count=REQUESTS, concurrency=concurrency))
    assert engine.counts.requests == REQUESTS
