"""The engine client around a lost connection: what the next block-manager is told, and what a refusal looks like."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from blockyard.connectors.client import BlockyardClient
from blockyard.connectors.engine_memory import EngineMemory
from blockyard.core.chain_run import ChainRun
from blockyard.core.errors import (
    BlockyardError,
    ConfigurationError,
    LayoutMismatchError,
    RequestError,
    UnavailableError,
    UnknownSessionError,
    UnsupportedOperationError,
)
from blockyard.core.identity import ModelIdentity
from blockyard.core.vocabulary import EngineBlockId, EngineId, ItemStatus, RequestId
from blockyard.testing.scripted_manager import WAIT_SECONDS, ScriptedManager, served
from blockyard.wire import connector_channel as channel

BLOCK_BYTES = 4_096
REQUEST = RequestId("r")
FIRST, SECOND, THIRD = (ChainRun(bytes([name]) * 64) for name in (1, 2, 3))


def blocks(*ids: int) -> list[EngineBlockId]:
    return [EngineBlockId(block) for block in ids]


@asynccontextmanager
async def client_of(path: Path, states: list[bool] | None = None) -> AsyncIterator[BlockyardClient]:
    with EngineMemory(8, BLOCK_BYTES) as memory:
        async with client_with(memory, path, states) as client:
            yield client


@asynccontextmanager
async def client_with(
    memory: EngineMemory, path: Path, states: list[bool] | None = None
) -> AsyncIterator[BlockyardClient]:
    told: list[bool] = [] if states is None else states
    description = memory.description(EngineId("e"), ModelIdentity(model="m"))
    async with BlockyardClient(path, description, memory.guards, memory=memory.rank, on_state=told.append) as client:
        yield client


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        while not condition():
            await asyncio.sleep(0)


def held_back(script: ScriptedManager, kind: type[channel.Request], reply: channel.Reply) -> asyncio.Event:
    """Answers to requests of this type wait for the event."""
    go_on = asyncio.Event()

    async def answer() -> channel.Reply:
        await go_on.wait()
        return reply

    script.answers[kind] = answer
    return go_on


def refusing(error: Callable[[], BlockyardError]) -> Callable[[], Awaitable[channel.Reply]]:
    async def answer() -> channel.Reply:
        raise error()

    return answer


def named(script: ScriptedManager, kind: type[channel.Register] | type[channel.Deregister]) -> list[int]:
    """Memory blocks that these requests named, in order."""
    found: list[int] = []
    for request in script.of(kind):
        assert isinstance(request, channel.Register | channel.Deregister)
        column = request.pages if isinstance(request, channel.Register) else request.blocks
        found += memoryview(column).cast("I").tolist()
    return found


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "c.sock"


async def two_runs_registered_then_lost(path: Path, client: BlockyardClient) -> None:
    async with served(path, ScriptedManager()):
        await client.wait_connected(WAIT_SECONDS)
        await client.register(FIRST, blocks(0, 1))
        await client.register(SECOND, blocks(2, 3))
    await until(lambda: not client.connected)


async def test_what_is_registered_while_the_set_is_announced_arrives_too(path: Path) -> None:
    script = ScriptedManager()
    go_on = held_back(script, channel.Register, channel.Registered(registered=2, stores=0))
    async with client_of(path) as client:
        await two_runs_registered_then_lost(path, client)
        async with served(path, script):
            await script.wait_for(channel.Register)
            async with asyncio.TaskGroup() as group:
                group.create_task(client.register(THIRD, blocks(4, 5)))
                await until(lambda: 4 in named(script, channel.Register))
                go_on.set()
            await until(lambda: sorted(named(script, channel.Register)) == [0, 1, 2, 3, 4, 5])


async def test_what_is_deregistered_while_the_set_is_announced_does_not_stay(path: Path) -> None:
    """One block whose announcement is under way and one whose turn has not come."""
    script = ScriptedManager()
    go_on = held_back(script, channel.Register, channel.Registered(registered=2, stores=0))
    with EngineMemory(8, BLOCK_BYTES) as memory:
        async with client_with(memory, path) as client:
            await two_runs_registered_then_lost(path, client)
            async with served(path, script):
                await script.wait_for(channel.Register)
                memory.raise_guards(blocks(1, 3))
                await client.deregister(blocks(1, 3))
                go_on.set()
                await until(lambda: len(script.of(channel.Register)) == 2)
                assert sorted(named(script, channel.Register)) == [0, 1, 2]
                kinds = [type(request) for request in script.seen]
                assert kinds.index(channel.Register) < kinds.index(channel.Deregister)
                assert named(script, channel.Deregister) == [1, 3]


async def test_a_registration_that_is_refused_is_not_announced_again(path: Path) -> None:
    first, second = ScriptedManager(), ScriptedManager()
    first.answers[channel.Register] = refusing(lambda: RequestError("no"))
    async with client_of(path) as client:
        async with served(path, first):
            await client.wait_connected(WAIT_SECONDS)
            with pytest.raises(RequestError):
                await client.register(FIRST, blocks(0, 1))
            first.answers.clear()
            await client.register(SECOND, blocks(2, 3))
        async with served(path, second):
            await second.wait_for(channel.Register)
            await client.release(REQUEST)
            assert named(second, channel.Register) == [2, 3]


async def test_an_announcement_that_is_refused_leaves_the_connection_alone(path: Path) -> None:
    script = ScriptedManager()
    script.answers[channel.Register] = refusing(lambda: RequestError("no"))
    async with client_of(path) as client:
        await two_runs_registered_then_lost(path, client)
        async with served(path, script):
            await until(lambda: len(script.of(channel.Register)) == 2)
            await client.release(REQUEST)
            assert len(script.of(channel.Hello)) == 1


@pytest.mark.parametrize(
    ("run", "ids"),
    [(FIRST, (0,)), (FIRST, (0, 1, 2)), (FIRST, (0, 8)), (FIRST, (0, -1)), (FIRST, (3, 3))],
)
async def test_blocks_that_do_not_fit_are_refused_before_anything_is_kept(
    path: Path, run: ChainRun, ids: tuple[int, ...]
) -> None:
    script = ScriptedManager()
    async with client_of(path) as client, served(path, script):
        await client.wait_connected(WAIT_SECONDS)
        with pytest.raises(RequestError, match="block"):
            await client.register(run, blocks(*ids))
        with pytest.raises(RequestError, match="block"):
            await client.load(REQUEST, run, blocks(*ids), ttl_seconds=1.0)
        assert client.unsettled_blocks == set()
        assert [type(request) for request in script.seen] == [channel.Hello, channel.AttachRank]
    async with client_of(path) as client:
        with pytest.raises(RequestError, match="block"):
            await client.deregister(blocks(8))


async def test_a_block_of_an_unfinished_load_is_no_destination(path: Path) -> None:
    script = ScriptedManager()
    async with client_of(path) as client, served(path, script):
        await client.wait_connected(WAIT_SECONDS)
        loading = asyncio.create_task(client.load(REQUEST, FIRST, blocks(0, 1), ttl_seconds=1.0))
        await script.wait_for(channel.OpenLoad)
        with pytest.raises(RequestError, match="unfinished"):
            await client.load(REQUEST, SECOND, blocks(1, 2), ttl_seconds=1.0)
        assert client.unsettled_blocks == {0, 1}
        script.sessions[0].push(channel.LoadFinished(load=7, status=bytes(2), sources=bytes([2, 2])))
        assert (await loading).usable == 2


async def test_a_session_that_ends_while_a_load_opens_leaves_its_blocks_unsettled(path: Path) -> None:
    """The typed farewell of the connection is no answer to the call: the load may have been planned."""
    script, second = ScriptedManager(), ScriptedManager()
    held_back(script, channel.OpenLoad, channel.LoadOpened(load=7))
    go_on = held_back(second, channel.Settle, channel.Done())
    async with client_of(path) as client:
        async with served(path, script):
            await client.wait_connected(WAIT_SECONDS)
            loading = asyncio.create_task(client.load(REQUEST, FIRST, blocks(0, 1), ttl_seconds=1.0))
            await script.wait_for(channel.OpenLoad)
            script.sessions[0].close(UnknownSessionError("the engine has another connection"))
            result = await asyncio.wait_for(loading, WAIT_SECONDS)
            assert set(result.statuses) == {ItemStatus.UNKNOWN}
            assert client.unsettled_blocks == {0, 1}
        async with served(path, second):
            await second.wait_for(channel.Settle)
            assert client.unsettled_blocks == {0, 1}
            go_on.set()
            await until(lambda: not client.unsettled_blocks)


async def test_a_load_cancelled_while_it_opens_costs_no_connection(path: Path) -> None:
    script = ScriptedManager()
    go_on = held_back(script, channel.OpenLoad, channel.LoadOpened(load=7))
    async with client_of(path) as client, served(path, script):
        await client.wait_connected(WAIT_SECONDS)
        loading = asyncio.create_task(client.load(REQUEST, FIRST, blocks(0, 1), ttl_seconds=1.0))
        await script.wait_for(channel.OpenLoad)
        loading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await loading
        assert client.unsettled_blocks == {0, 1}
        go_on.set()
        await script.wait_for(channel.CloseLoad)
        await until(lambda: not client.unsettled_blocks)
        assert len(script.of(channel.Hello)) == 1


async def test_a_load_that_is_not_opened_because_the_node_is_not_ready_frees_its_blocks(path: Path) -> None:
    script = ScriptedManager()
    script.answers[channel.OpenLoad] = refusing(lambda: UnavailableError("starting"))
    async with client_of(path) as client, served(path, script):
        await client.wait_connected(WAIT_SECONDS)
        result = await client.load(REQUEST, FIRST, blocks(0, 1), ttl_seconds=1.0)
        assert set(result.statuses) == {ItemStatus.UNKNOWN}
        assert client.unsettled_blocks == set()
        assert client.connected


async def test_closing_the_client_ends_a_load_at_once(path: Path) -> None:
    script = ScriptedManager()
    async with served(path, script):
        async with client_of(path) as client:
            await client.wait_connected(WAIT_SECONDS)
            loading = asyncio.create_task(client.load(REQUEST, FIRST, blocks(0, 1), ttl_seconds=60.0))
            await script.wait_for(channel.OpenLoad)
        result = await asyncio.wait_for(loading, WAIT_SECONDS)
        assert set(result.statuses) == {ItemStatus.UNKNOWN}


@pytest.mark.parametrize(
    ("status", "sources"), [(b"\0", b"\2"), (bytes([0, 99]), bytes([2, 77])), (bytes(3), bytes(2))]
)
async def test_results_of_an_unknown_kind_are_no_hits(path: Path, status: bytes, sources: bytes) -> None:
    script = ScriptedManager()
    async with client_of(path) as client, served(path, script):
        await client.wait_connected(WAIT_SECONDS)
        loading = asyncio.create_task(client.load(REQUEST, FIRST, blocks(0, 1), ttl_seconds=1.0))
        await script.wait_for(channel.OpenLoad)
        script.sessions[0].push(channel.LoadFinished(load=7, status=status, sources=sources))
        result = await asyncio.wait_for(loading, WAIT_SECONDS)
        assert len(result.statuses) == len(result.sources) == 2
        assert result.statuses[1] is ItemStatus.UNKNOWN
        assert client.unsettled_blocks == set()


async def test_a_lookup_answered_for_another_number_of_blocks_counts_as_no_answer(path: Path) -> None:
    async with client_of(path) as client, served(path, ScriptedManager()):
        await client.wait_connected(WAIT_SECONDS)
        with pytest.raises(UnavailableError, match="4"):
            await client.lookup(FIRST)


@pytest.mark.parametrize(
    "error", [RequestError("an engine has a printable name"), UnsupportedOperationError(field="group_spec")]
)
async def test_any_refusal_of_the_hello_is_told(path: Path, error: BlockyardError) -> None:
    script = ScriptedManager()
    script.answers[channel.Hello] = refusing(lambda: error)
    async with client_of(path) as client, served(path, script):
        with pytest.raises(type(error)):
            await client.wait_connected(WAIT_SECONDS)


async def test_a_socket_path_that_cannot_be_is_told(tmp_path: Path) -> None:
    async with client_of(tmp_path / ("x" * 120)) as client:
        with pytest.raises(ConfigurationError, match="path"):
            await client.wait_connected(WAIT_SECONDS)


async def test_an_engine_refused_after_a_restart_says_why_and_comes_back_when_it_fits_again(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("blockyard.connectors.manager_connector._REFUSED_SECONDS", 0.01)
    second = ScriptedManager()
    second.answers[channel.Hello] = refusing(lambda: LayoutMismatchError(field="block_bytes", engine=1, node=2))
    async with client_of(path) as client:
        async with served(path, ScriptedManager()):
            await client.wait_connected(WAIT_SECONDS)
        async with served(path, second):
            await until(lambda: len(second.of(channel.Hello)) >= 2)
            with pytest.raises(UnavailableError, match="node=2"):
                await client.lookup(FIRST)
            with pytest.raises(LayoutMismatchError):
                await client.wait_connected(WAIT_SECONDS)
        async with served(path, ScriptedManager()):
            await until(lambda: client.connected)
            await client.wait_connected(WAIT_SECONDS)


async def test_why_no_manager_answers_is_part_of_the_error(path: Path) -> None:
    async with client_of(path) as client:
        with pytest.raises(UnavailableError, match="nobody listens"):
            await client.wait_connected(0.2)
