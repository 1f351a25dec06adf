"""The engine client before a block-manager that hangs: one timeout, then none, and all is back when it answers."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from blockyard.connectors.client import BlockyardClient
from blockyard.connectors.engine_memory import EngineMemory
from blockyard.connectors.manager_link import ManagerLink
from blockyard.connectors.mock.engine import MockEngine
from blockyard.connectors.mock.trace import TRACE_BLOCK_TOKENS, TraceRequest
from blockyard.core.chain_run import ChainRun
from blockyard.core.errors import DeadlineExceededError, RequestError, UnavailableError
from blockyard.core.identity import ModelIdentity
from blockyard.core.vocabulary import EngineBlockId, EngineId, ItemStatus, RequestId
from blockyard.runtime.rpc.session import RpcSession
from blockyard.testing.scripted_manager import WAIT_SECONDS, ScriptedManager, served
from blockyard.wire import connector_channel as channel

BLOCK_BYTES = 4_096
IDENTITY = ModelIdentity(model="m", block_bytes=BLOCK_BYTES, block_tokens=TRACE_BLOCK_TOKENS)
REQUEST = RequestId("r")
RUN = ChainRun(b"".join(bytes([block]) * 32 for block in range(4)))
BLOCKS = [EngineBlockId(block) for block in range(4)]
OTHERS = [EngineBlockId(block) for block in range(4, 8)]


class Hanging(ScriptedManager):
    """A block-manager whose process can be stopped: requests arrive and wait."""

    def __init__(self) -> None:
        super().__init__()
        self.goes_on = asyncio.Event()
        self.goes_on.set()

    async def handle(self, session: RpcSession, request: channel.Request, fds: list[int]) -> channel.Reply:
        reply = await super().handle(session, request, fds)
        await self.goes_on.wait()
        return reply


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "c.sock"


@pytest.fixture(autouse=True)
def short_times(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("client.CALL_TIMEOUT_SECONDS", "engine_loads._OVERDUE_SECONDS"):
        monkeypatch.setattr(f"blockyard.connectors.{name}", 0.02)
    defaults = dict(ManagerLink.call.__kwdefaults__ or {})
    monkeypatch.setattr(ManagerLink.call, "__kwdefaults__", defaults | {"timeout_seconds": 0.02})


@asynccontextmanager
async def connected(path: Path) -> AsyncIterator[tuple[BlockyardClient, EngineMemory]]:
    with EngineMemory(16, BLOCK_BYTES) as memory:
        description = memory.description(EngineId("e"), IDENTITY)
        async with BlockyardClient(path, description, memory.guards, memory=memory.rank) as client:
            await client.wait_connected(WAIT_SECONDS)
            yield client, memory


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        while not condition():
            await asyncio.sleep(0)


async def until_it_answers(client: BlockyardClient) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        while True:
            try:
                await client.lookup(RUN)
            except UnavailableError:
                await asyncio.sleep(0)
            else:
                return


async def test_one_call_waits_and_the_others_fail_at_once_until_it_answers(path: Path) -> None:
    script = Hanging()
    async with served(path, script), connected(path) as (client, _):
        script.goes_on.clear()
        with pytest.raises(DeadlineExceededError):
            await client.lookup(RUN)
        for _ in range(100):
            with pytest.raises(UnavailableError, match="not asked"):
                await client.lookup(RUN)
        assert len(script.of(channel.Lookup)) == 1
        assert len(script.of(channel.Deregister)) <= 1, "one probe"
        script.goes_on.set()
        await until_it_answers(client)
        assert len(script.of(channel.Hello)) == 1, "the session went on"


async def test_a_call_that_takes_long_beside_others_that_are_answered_is_no_silence(path: Path) -> None:
    script = ScriptedManager()
    slow = asyncio.Event()

    async def lookup() -> channel.Reply:
        await slow.wait()
        return channel.LookupReply(availability=bytes(4))

    script.answers[channel.Lookup] = lookup
    async with served(path, script), connected(path) as (client, _):
        asking = asyncio.create_task(client.lookup(RUN))
        await script.wait_for(channel.Lookup)
        await client.release(REQUEST)
        with pytest.raises(DeadlineExceededError):
            await asking
        await client.release(REQUEST)
        slow.set()


async def test_what_could_not_be_told_is_told_over_a_new_connection(path: Path) -> None:
    script = Hanging()
    async with served(path, script), connected(path) as (client, _):
        script.goes_on.clear()
        with pytest.raises(DeadlineExceededError):
            await client.lookup(RUN)
        with pytest.raises(UnavailableError):
            await client.register(RUN, BLOCKS)
        assert client.connected, "a new connection would only wait at a manager that hangs"
        script.goes_on.set()
        await script.wait_for(channel.Register)
        assert len(script.of(channel.Hello)) == 2
        await until_it_answers(client)


async def test_a_load_that_was_not_opened_in_time_keeps_its_blocks_until_they_are_settled(path: Path) -> None:
    script = Hanging()
    async with served(path, script), connected(path) as (client, _):
        script.goes_on.clear()
        result = await client.load(REQUEST, RUN, BLOCKS, ttl_seconds=60.0)
        assert set(result.statuses) == {ItemStatus.UNKNOWN}
        assert client.unsettled_blocks == set(BLOCKS)
        with pytest.raises(RequestError, match="unfinished"):
            await client.load(REQUEST, RUN, BLOCKS, ttl_seconds=60.0)
        result = await client.load(REQUEST, RUN, OTHERS, ttl_seconds=60.0)
        assert set(result.statuses) == {ItemStatus.UNKNOWN}
        assert client.unsettled_blocks == set(BLOCKS), "nothing was begun, so nothing can be written"
        script.goes_on.set()
        await script.wait_for(channel.Settle)
        await until(lambda: not client.unsettled_blocks)


async def test_an_overdue_load_lets_its_request_go_on_and_is_settled_later(path: Path) -> None:
    script = ScriptedManager()
    settled = asyncio.Event()

    async def close() -> channel.Reply:
        await settled.wait()
        return channel.Done()

    script.answers[channel.CloseLoad] = close
    async with served(path, script), connected(path) as (client, _):
        result = await asyncio.wait_for(client.load(REQUEST, RUN, BLOCKS, ttl_seconds=0.01), WAIT_SECONDS)
        assert set(result.statuses) == {ItemStatus.UNKNOWN}
        assert client.unsettled_blocks == set(BLOCKS)
        await client.lookup(RUN)
        await script.wait_for(channel.CloseLoad)
        settled.set()
        await until(lambda: not client.unsettled_blocks)
        assert len(script.of(channel.Hello)) == 1


async def test_the_demo_engine_meets_one_timeout_and_computes_everything(path: Path) -> None:
    script = Hanging()
    async with served(path, script), connected(path) as (client, memory):
        engine = MockEngine(client, memory, IDENTITY)
        script.goes_on.clear()
        for index in range(20):
            await engine.serve(TraceRequest(index, 0.0, (index, 1_000 + index)))
        assert engine.counts.computed == 40
        assert engine.counts.late_answers == 1
        script.goes_on.set()
        await until_it_answers(client)
        await script.wait_for(channel.Register)


async def test_a_silent_connection_that_ends_leaves_nothing_behind(path: Path) -> None:
    script = Hanging()
    async with served(path, script):
        async with connected(path) as (client, _):
            script.goes_on.clear()
            with pytest.raises(DeadlineExceededError):
                await client.lookup(RUN)
        await until(lambda: not any(task.get_name() == "blockyard-probe" for task in asyncio.all_tasks()))
        script.goes_on.set()
