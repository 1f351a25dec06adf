"""The engine client against a scripted block-manager: what it announces, and what it does when one goes away."""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from blockyard.connectors.client import BlockyardClient
from blockyard.connectors.engine_memory import EngineMemory
from blockyard.core.chain_run import ChainRun
from blockyard.core.errors import LayoutMismatchError, RequestError, TooManyKeysError, UnavailableError
from blockyard.core.identity import ModelIdentity
from blockyard.core.vocabulary import Availability, EngineBlockId, EngineId, ItemStatus, RequestId, Tier
from blockyard.testing.scripted_manager import WAIT_SECONDS, ScriptedManager, served
from blockyard.wire import connector_channel as channel
from blockyard.wire.codec import MAX_KEYS_PER_CALL

BLOCK_BYTES = 4_096
RUN = ChainRun(b"".join(hashlib.sha256(bytes([index])).digest() for index in range(4)))
BLOCKS = tuple(EngineBlockId(block) for block in range(4))


@asynccontextmanager
async def connected(path: Path, states: list[bool] | None = None) -> AsyncIterator[BlockyardClient]:
    async with connected_with_memory(path, states) as (client, _):
        yield client


@asynccontextmanager
async def connected_with_memory(
    path: Path, states: list[bool] | None = None
) -> AsyncIterator[tuple[BlockyardClient, EngineMemory]]:
    told: list[bool] = [] if states is None else states
    with EngineMemory(8, BLOCK_BYTES) as memory:
        description = memory.description(EngineId("e"), ModelIdentity(model="m"))
        async with BlockyardClient(
            path, description, memory.guards, memory=memory.rank, on_state=told.append
        ) as client:
            await client.wait_connected(WAIT_SECONDS)
            yield client, memory


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "c.sock"


async def test_calls_carry_their_columns_and_answers_come_back_typed(path: Path) -> None:
    script = ScriptedManager()
    async with served(path, script), connected(path) as client:
        assert await client.lookup(RUN) == (
            (Availability.G2, Availability.G3, Availability.UNKNOWN, Availability.MISS),
        )
        assert await client.reserve(RequestId("r"), RUN) == 2
        await client.release(RequestId("r"))
        await client.register(RUN, BLOCKS)
        registered = script.of(channel.Register)[0]
        assert isinstance(registered, channel.Register)
        assert registered.run.digests == RUN.digests
        assert registered.pages == b"".join(block.to_bytes(4, "little") for block in BLOCKS)


async def test_a_load_reports_each_block_and_the_usable_prefix(path: Path) -> None:
    script = ScriptedManager()
    async with served(path, script), connected(path) as client:
        loading = asyncio.create_task(client.load(RequestId("r"), RUN, BLOCKS, ttl_seconds=1.0))
        await script.wait_for(channel.OpenLoad)
        assert client.unsettled_blocks == set(BLOCKS)
        script.sessions[0].push(channel.LoadFinished(load=7, status=bytes([0, 0, 1, 0]), sources=bytes([2, 4, 0, 3])))
        result = await asyncio.wait_for(loading, WAIT_SECONDS)
        assert result.statuses == (ItemStatus.OK, ItemStatus.OK, ItemStatus.CORRUPT, ItemStatus.OK)
        assert result.sources == (Tier.G2, Tier.G4, None, Tier.G3)
        assert result.usable == 2
        assert client.unsettled_blocks == set()


async def test_a_manager_lost_during_a_load_leaves_the_blocks_unsettled_until_the_next_one_settles_them(
    path: Path,
) -> None:
    first, second = ScriptedManager(), ScriptedManager()
    settled = asyncio.Event()
    async with served(path, first) as server:
        client_context = connected(path)
        client = await client_context.__aenter__()
        loading = asyncio.create_task(client.load(RequestId("r"), RUN, BLOCKS, ttl_seconds=1.0))
        await first.wait_for(channel.OpenLoad)
        for session in server.sessions:
            session.close()
        result = await asyncio.wait_for(loading, WAIT_SECONDS)
        assert set(result.statuses) == {ItemStatus.UNKNOWN}
        assert result.usable == 0
        assert client.unsettled_blocks == set(BLOCKS)

    async def settle() -> channel.Reply:
        await settled.wait()
        return channel.Done()

    second.answers[channel.Settle] = settle
    async with served(path, second):
        await second.wait_for(channel.Settle)
        assert client.unsettled_blocks == set(BLOCKS)
        settled.set()
        async with asyncio.timeout(WAIT_SECONDS):
            while client.unsettled_blocks:
                await asyncio.sleep(0)
        await client_context.__aexit__(None, None, None)


async def test_a_reconnect_announces_what_g1_still_holds(path: Path) -> None:
    first, second = ScriptedManager(), ScriptedManager()
    states: list[bool] = []
    client_context = connected_with_memory(path, states)
    async with served(path, first):
        client, memory = await client_context.__aenter__()
        await client.register(RUN, BLOCKS)
        memory.raise_guards([BLOCKS[3]])
        await client.deregister([BLOCKS[3]])
    async with served(path, second):
        await second.wait_for(channel.Register)
        announced = second.of(channel.Register)[0]
        assert isinstance(announced, channel.Register)
        assert announced.run.digests == RUN.slice(0, 3).digests
        await client_context.__aexit__(None, None, None)
    assert states[:3] == [True, False, True]


async def test_without_a_manager_every_call_says_so_at_once(path: Path) -> None:
    client_context = connected(path)
    async with served(path, ScriptedManager()):
        client = await client_context.__aenter__()
    async with asyncio.timeout(WAIT_SECONDS):
        while client.connected:
            await asyncio.sleep(0)
    with pytest.raises(UnavailableError, match=r"c\.sock"):
        await client.lookup(RUN)
    await client_context.__aexit__(None, None, None)


async def test_an_engine_that_is_refused_learns_why(path: Path) -> None:
    script = ScriptedManager()

    async def refuse() -> channel.Reply:
        raise LayoutMismatchError(field="block_bytes", engine=BLOCK_BYTES, node=8_192)

    script.answers[channel.Hello] = refuse
    async with served(path, script):
        with pytest.raises(LayoutMismatchError, match="node=8192"):
            async with connected(path):
                pass


async def test_a_cancelled_load_is_closed_and_its_blocks_come_back(path: Path) -> None:
    script = ScriptedManager()
    async with served(path, script), connected(path) as client:
        opened = asyncio.Event()

        async def open_load() -> channel.Reply:
            opened.set()
            return channel.LoadOpened(load=7)

        script.answers[channel.OpenLoad] = open_load
        loading = asyncio.create_task(client.load(RequestId("r"), RUN, BLOCKS, ttl_seconds=1.0))
        await asyncio.wait_for(opened.wait(), WAIT_SECONDS)
        await client.lookup(RUN)  # its answer follows that of the open, so the load waits for its end now
        loading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await loading
        await script.wait_for(channel.CloseLoad)
        async with asyncio.timeout(WAIT_SECONDS):
            while client.unsettled_blocks:
                await asyncio.sleep(0)
        assert client.connected


async def test_a_batch_above_the_limit_is_refused_before_it_is_sent(path: Path) -> None:
    script = ScriptedManager()
    run = ChainRun(bytes(32) * (MAX_KEYS_PER_CALL + 1))
    async with served(path, script), connected(path) as client:
        with pytest.raises(TooManyKeysError, match=str(MAX_KEYS_PER_CALL)):
            await client.register(run, [EngineBlockId(0)] * len(run))
        assert script.of(channel.Register) == []


async def test_a_block_has_one_name_at_a_time(path: Path) -> None:
    """Bytes loaded over a registered block would be stored under its old name; both orders are refused unsent."""
    script = ScriptedManager()
    async with served(path, script), connected_with_memory(path) as (client, memory):
        await client.register(RUN, BLOCKS)
        with pytest.raises(RequestError, match="deregister"):
            await client.load(RequestId("r"), RUN, BLOCKS, ttl_seconds=1.0)
        assert script.of(channel.OpenLoad) == []
        with pytest.raises(RequestError, match="raise the guard"):
            await client.deregister(BLOCKS)
        memory.raise_guards(BLOCKS)
        await client.deregister(BLOCKS)
        loading = asyncio.create_task(client.load(RequestId("r"), RUN, BLOCKS, ttl_seconds=1.0))
        await script.wait_for(channel.OpenLoad)
        with pytest.raises(RequestError, match="unfinished load"):
            await client.register(RUN, BLOCKS)
        assert len(script.of(channel.Register)) == 1
        script.sessions[0].push(channel.LoadFinished(load=7, status=bytes(4), sources=bytes([2] * 4)))
        assert (await asyncio.wait_for(loading, WAIT_SECONDS)).usable == 4
