"""The engine client with engine blocks smaller than a block, several KV groups and ranks of its own processes."""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from blockyard.connectors.client import BlockyardClient, EngineDescription
from blockyard.connectors.engine_guards import EngineGuards
from blockyard.connectors.engine_memory import EngineMemory
from blockyard.core.chain_run import ChainRun
from blockyard.core.errors import BlockyardError, LayoutMismatchError, RequestError, UnavailableError
from blockyard.core.identity import ModelIdentity
from blockyard.core.kv_groups import NO_PAGE, GroupKind, KvGroup
from blockyard.core.vocabulary import Availability, EngineBlockId, EngineId, Executor, GroupId, Guard, RequestId
from blockyard.testing.scripted_manager import WAIT_SECONDS, ScriptedManager, served
from blockyard.wire import connector_channel as channel

RUN = ChainRun(b"".join(hashlib.sha256(bytes([index])).digest() for index in range(2)))
REQUEST = RequestId("r")
FULL, WINDOW = GroupId(0), GroupId(1)
GROUPS = (
    KvGroup(engine_block_tokens=16),
    KvGroup(group=WINDOW, kind=GroupKind.SLIDING_WINDOW, engine_block_tokens=32, window_tokens=100, replicated=True),
)
DESCRIPTION = EngineDescription(
    engine=EngineId("e"),
    identity=ModelIdentity(model="m", block_tokens=64),
    dp_rank=3,
    life="second",
    blocks=32,
    groups=GROUPS,
    ranks=2,
    executor=Executor.NIXL,
)


@dataclass
class Told:
    """What a client told its engine."""

    settled: list[int] = field(default_factory=list)
    loading: list[bool] = field(default_factory=list)


def pages(*numbers: int) -> list[EngineBlockId]:
    return [EngineBlockId(number) for number in numbers]


@asynccontextmanager
async def connected(
    path: Path, guards: EngineGuards, told: Told | None = None, *, patience: float = WAIT_SECONDS
) -> AsyncIterator[BlockyardClient]:
    told = told or Told()
    async with BlockyardClient(
        path,
        DESCRIPTION,
        guards,
        on_loading=told.loading.append,
        on_stores_settled=told.settled.append,
    ) as client:
        if patience:
            await client.wait_connected(patience)
        yield client


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "c.sock"


@pytest.fixture
def script() -> ScriptedManager:
    return ScriptedManager()


async def until(condition: object) -> None:
    assert callable(condition)
    async with asyncio.timeout(WAIT_SECONDS):
        while not condition():
            await asyncio.sleep(0)


def u32(column: bytes) -> list[int]:
    return memoryview(column).cast("I").tolist()


def u64(column: bytes) -> list[int]:
    return memoryview(column).cast("Q").tolist()


async def test_hello_tells_groups_ranks_and_executor_and_ranks_come_by_themselves(
    path: Path, script: ScriptedManager
) -> None:
    with EngineGuards(32) as guards:
        async with served(path, script), connected(path, guards):
            (hello,) = script.of(channel.Hello)
    assert isinstance(hello, channel.Hello)
    assert (hello.engine, hello.dp_rank, hello.blocks, hello.ranks, hello.executor) == ("e", 3, 32, 2, "nixl")
    assert hello.groups == (
        channel.Group(group=0, kind="full", engine_block_tokens=16),
        channel.Group(group=1, kind="sliding_window", engine_block_tokens=32, window_tokens=100, replicated=True),
    )
    assert hello.life == "second"
    assert script.of(channel.AttachRank) == []


async def test_the_rank_of_an_engine_in_one_process_belongs_to_its_start(path: Path, script: ScriptedManager) -> None:
    with EngineMemory(4, 4_096) as memory:
        description = replace(memory.description(EngineId("e"), ModelIdentity(model="m")), life="second")
        async with (
            served(path, script),
            BlockyardClient(path, description, memory.guards, memory=memory.rank) as client,
        ):
            await client.wait_connected(WAIT_SECONDS)
            said = [*script.of(channel.Hello), *script.of(channel.AttachRank)]
    assert [getattr(message, "life", None) for message in said] == ["second", "second"]


async def test_a_lookup_of_several_groups_answers_group_by_group(path: Path, script: ScriptedManager) -> None:
    with EngineGuards(32) as guards:
        async with served(path, script), connected(path, guards) as client:
            assert await client.lookup(RUN, groups=(FULL, WINDOW)) == (
                (Availability.G2, Availability.G3),
                (Availability.UNKNOWN, Availability.MISS),
            )
            with pytest.raises(UnavailableError, match="asked=2"):
                await client.lookup(RUN, groups=(WINDOW,))
            await client.reserve(REQUEST, RUN, groups=(FULL, WINDOW))
    (asked, _), (reserved,) = script.of(channel.Lookup), script.of(channel.Reserve)
    assert isinstance(asked, channel.Lookup)
    assert isinstance(reserved, channel.Reserve)
    assert asked.groups == reserved.groups == (0, 1)


async def test_rows_are_registered_with_the_guards_of_now_or_with_those_that_were_noted(
    path: Path, script: ScriptedManager
) -> None:
    with EngineGuards(32) as guards:
        async with served(path, script), connected(path, guards) as client:
            guards.raise_guards(pages(2, 3))
            await client.register(RUN, pages(0, 1, 2, 3), group=WINDOW)
            await client.register(RUN.slice(0, 1), pages(8, 9, 10, 11), guards=[Guard(value) for value in (5, 6, 7, 8)])
    first, second = script.of(channel.Register)
    assert isinstance(first, channel.Register)
    assert isinstance(second, channel.Register)
    assert (first.group, u32(first.pages), u64(first.guards)) == (1, [0, 1, 2, 3], [0, 0, 1, 1])
    assert (second.group, u32(second.pages), u64(second.guards)) == (0, [8, 9, 10, 11], [5, 6, 7, 8])


async def test_a_reconnect_announces_rows_with_the_guards_of_their_registration(path: Path) -> None:
    """Guards of now would certify the bytes of the blocks' next owners."""
    first, second = ScriptedManager(), ScriptedManager()
    with EngineGuards(32) as guards:
        async with connected(path, guards, patience=0) as client:
            async with served(path, first):
                await client.wait_connected(WAIT_SECONDS)
                await client.register(RUN, pages(0, 1, 2, 3), group=WINDOW, ticket=4)
            guards.raise_guards(pages(3))
            async with served(path, second):
                await second.wait_for(channel.Register)
    (announced,) = second.of(channel.Register)
    assert isinstance(announced, channel.Register)
    assert (announced.group, u32(announced.pages), u64(announced.guards)) == (1, [0, 1, 2, 3], [0, 0, 0, 0])
    assert announced.ticket == 0


async def test_what_is_loaded_leaves_parts_without_a_page_out(path: Path, script: ScriptedManager) -> None:
    with EngineGuards(32) as guards:
        async with served(path, script), connected(path, guards) as client:
            guards.raise_guards(pages(7))
            wanted = [*pages(NO_PAGE, NO_PAGE, 6, 7), *pages(8, 9, 10, NO_PAGE)]
            loading = asyncio.create_task(client.load(REQUEST, RUN, wanted, ttl_seconds=1.0))
            await script.wait_for(channel.OpenLoad)
            assert client.unsettled_blocks == set(pages(6, 7, 8, 9, 10))
            with pytest.raises(RequestError, match="unfinished load"):
                await client.register(RUN.slice(0, 1), pages(4, 5, 6, 11))
            script.sessions[0].push(channel.LoadFinished(load=7, status=bytes(2), sources=bytes([2, 2])))
            assert (await asyncio.wait_for(loading, WAIT_SECONDS)).usable == 2
            assert client.unsettled_blocks == set()
    (opened,) = script.of(channel.OpenLoad)
    assert isinstance(opened, channel.OpenLoad)
    none = int(NO_PAGE)
    assert u32(opened.pages) == [none, none, 6, 7, 8, 9, 10, none]
    assert u64(opened.guards) == [0, 0, 0, 1, 0, 0, 0, 0]


@pytest.mark.parametrize(
    ("group", "numbers"),
    [
        (FULL, (0, 1, 2, 3)),
        (WINDOW, (0, 1, 2)),
        (WINDOW, (0, 1, 2, int(NO_PAGE))),
        (WINDOW, (0, 1, 1, 2)),
        (WINDOW, (0, 1, 2, 32)),
        (GroupId(2), (0, 1, 2, 3)),
        (GroupId(-1), (0, 1, 2, 3)),
    ],
)
async def test_pages_that_are_no_rows_of_their_group_are_refused_unsent(
    path: Path, script: ScriptedManager, group: GroupId, numbers: tuple[int, ...]
) -> None:
    told = Told()
    with EngineGuards(32) as guards:
        async with served(path, script), connected(path, guards, told) as client:
            with pytest.raises(RequestError):
                await client.register(RUN, pages(*numbers), group=group, ticket=1)
            with pytest.raises(RequestError, match="one guard per page"):
                await client.register(RUN, pages(0, 1, 2, 3), group=WINDOW, guards=[Guard(0)])
            assert script.of(channel.Register) == []
    assert told.settled == [1]


async def test_guards_of_another_engine_are_refused() -> None:
    with EngineGuards(31) as guards, pytest.raises(LayoutMismatchError, match="guards=31"):
        BlockyardClient(Path("none"), DESCRIPTION, guards)


async def test_a_reset_needs_all_guards_raised(path: Path, script: ScriptedManager) -> None:
    with EngineGuards(32) as guards:
        async with served(path, script), connected(path, guards) as client:
            await client.register(RUN, pages(0, 1, 2, 3), group=WINDOW)
            guards.raise_guards(pages(0, 1, 2))
            with pytest.raises(RequestError, match="raise the guard"):
                await client.reset()
            with pytest.raises(RequestError, match="raise the guard"):
                await client.deregister(pages(3))
            assert script.of(channel.Reset) == []
            guards.raise_all()
            await client.reset()
            await client.deregister(pages(3))
    assert len(script.of(channel.Reset)) == 1


async def test_a_ticket_is_told_once_by_the_push_also_before_the_answer(path: Path, script: ScriptedManager) -> None:
    told = Told()

    async def settle_first() -> channel.Reply:
        script.sessions[0].push(channel.StoresSettled(ticket=5))
        return channel.Registered(registered=1, stores=0)

    script.answers[channel.Register] = settle_first
    with EngineGuards(32) as guards:
        async with served(path, script), connected(path, guards, told) as client:
            await client.register(RUN, pages(0, 1, 2, 3), group=WINDOW, ticket=5)
            assert told.settled == [5]
            script.sessions[0].push(channel.StoresSettled(ticket=5))
            script.sessions[0].push(channel.StoresSettled(ticket=77))
            await client.release(REQUEST)
    assert told.settled == [5]


async def test_tickets_are_told_when_the_connection_ends_or_the_call_fails(path: Path) -> None:
    first, second, told = ScriptedManager(), ScriptedManager(), Told()

    async def refuse() -> channel.Reply:
        raise BlockyardError("no")

    second.answers[channel.Register] = refuse
    with EngineGuards(32) as guards:
        async with connected(path, guards, told, patience=0) as client:
            with pytest.raises(UnavailableError):
                await client.register(RUN, pages(4, 5, 6, 7), group=WINDOW, ticket=1)
            assert told.settled == [1]
            guards.raise_all()
            await asyncio.gather(client.reset(), return_exceptions=True)
            async with served(path, first):
                await client.wait_connected(WAIT_SECONDS)
                await client.register(RUN, pages(0, 1, 2, 3), group=WINDOW, ticket=2)
                assert told.settled == [1]
            await until(lambda: told.settled == [1, 2])
            async with served(path, second):
                await until(lambda: client.connected)
                with pytest.raises(BlockyardError):
                    await client.register(RUN, pages(8, 9, 10, 11), group=WINDOW, ticket=3)
    assert told.settled == [1, 2, 3]


async def test_an_engine_is_told_whether_loads_are_on_and_when_that_changes(
    path: Path, script: ScriptedManager
) -> None:
    told = Told()

    async def off() -> channel.Reply:
        return channel.LookupReply(availability=bytes(2), loading=False)

    with EngineGuards(32) as guards:
        async with served(path, script), connected(path, guards, told) as client:
            assert told.loading == [True]
            script.answers[channel.Lookup] = off
            await client.lookup(RUN)
            await client.lookup(RUN)
            assert told.loading == [True, False]
            script.sessions[0].push(channel.LoadingSwitched(loading=True))
            await client.release(REQUEST)
    assert told.loading == [True, False, True]


async def test_a_load_that_is_ended_as_another_kind_of_load_is_unknown(path: Path, script: ScriptedManager) -> None:
    with EngineGuards(32) as guards:
        async with served(path, script), connected(path, guards) as client:
            loading = asyncio.create_task(client.load(REQUEST, RUN, pages(0, 1, 2, 3), group=WINDOW, ttl_seconds=1.0))
            await script.wait_for(channel.OpenLoad)
            script.sessions[0].push(
                channel.LoadStaged(
                    load=7, status=bytes(2), sources=bytes([2, 2]), slots=bytes(8), generations=bytes(16)
                )
            )
            assert (await asyncio.wait_for(loading, WAIT_SECONDS)).usable == 0
            assert client.unsettled_blocks == set(pages(0, 1, 2, 3))
