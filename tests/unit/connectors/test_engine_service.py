"""A demo engine on its own: controllers come and go over TCP, and its own replay ends when one takes over."""

import asyncio
import contextlib
import errno
import json
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from blockyard.connectors.client import BlockyardClient
from blockyard.connectors.engine_memory import EngineMemory
from blockyard.connectors.mock import engine_service
from blockyard.connectors.mock.engine import EngineCounts, MockEngine
from blockyard.connectors.mock.engine_service import (
    EngineService,
    ListenAddress,
    OwnReplay,
    notice_silence,
    read_lines,
    sentence,
    wait_for_node,
)
from blockyard.connectors.mock.trace import TRACE_BLOCK_TOKENS
from blockyard.core.errors import ConfigurationError, OutOfBlocksError, UnavailableError
from blockyard.core.identity import ModelIdentity
from blockyard.core.vocabulary import EngineId
from blockyard.testing.scripted_manager import ScriptedManager, served

BLOCK_BYTES = 4_096
IDENTITY = ModelIdentity(model="m", block_bytes=BLOCK_BYTES, block_tokens=TRACE_BLOCK_TOKENS)
LOOPBACK = ListenAddress("127.0.0.1", 0)
WAIT_SECONDS = 10.0


class Controller:
    """A controller's end of a connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def hear(self) -> dict[str, Any]:
        async with asyncio.timeout(WAIT_SECONDS):
            heard: dict[str, Any] = json.loads(await self.reader.readline())
        return heard

    async def ask(self, **command: object) -> dict[str, Any]:
        """The answer to one command."""
        self.writer.write(json.dumps(command).encode() + b"\n")
        while (event := await self.hear())["event"] == "progress":
            pass
        return event


@asynccontextmanager
async def calling(port: int) -> AsyncIterator[Controller]:
    """A controller, welcome or not."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield Controller(reader, writer)
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


@asynccontextmanager
async def controller(port: int) -> AsyncIterator[Controller]:
    """The controller; the engine needs a moment to notice that the one before is gone."""
    async with asyncio.timeout(WAIT_SECONDS), contextlib.AsyncExitStack() as calls:
        while (await (call := await calls.enter_async_context(calling(port))).hear())["event"] != "ready":
            pass
        yield call


class Service:
    """A service of an engine whose node is away: it serves all the same."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.port = 0
        self.task: asyncio.Task[None] | None = None
        self.engine: MockEngine | None = None

    def counts(self) -> int:
        assert self.engine is not None
        return self.engine.counts.requests


@asynccontextmanager
async def running(
    folder: Path, own_replay: OwnReplay | None = None, listen: ListenAddress | None = LOOPBACK, blocks: int = 64
) -> AsyncIterator[Service]:
    service, listening = Service(), asyncio.Event()

    def on_listening(port: int) -> None:
        service.port = port
        listening.set()

    with EngineMemory(blocks, BLOCK_BYTES) as memory:
        description = memory.description(EngineId("e"), IDENTITY)
        async with BlockyardClient(folder / "none.sock", description, memory.guards, memory=memory.rank) as client:
            service.engine = MockEngine(client, memory, IDENTITY)
            service.task = asyncio.create_task(
                EngineService(service.engine, own_replay, service.said.append).run(listen, on_listening)
            )
            if listen is not None:
                await asyncio.wait_for(listening.wait(), WAIT_SECONDS)
            yield service
            service.task.cancel()
            await asyncio.gather(service.task, return_exceptions=True)


async def until_served(service: Service, requests: int) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        while service.counts() < requests:
            await asyncio.sleep(0.01)


async def test_an_engine_survives_its_controllers(tmp_path: Path) -> None:
    async with running(tmp_path) as service:
        async with controller(service.port) as first:
            assert (await first.ask(cmd="replay", count=2))["stats"]["requests"] == 2
            assert await first.ask(cmd="quit") == {"event": "done", "cmd": "quit"}
            assert await first.reader.read() == b""
        async with controller(service.port) as second:
            assert (await second.ask(cmd="stats"))["stats"]["requests"] == 2


async def test_a_second_controller_is_sent_away(tmp_path: Path) -> None:
    async with running(tmp_path) as service, controller(service.port) as first, calling(service.port) as second:
        assert (await second.hear())["code"] == "busy"
        assert await second.reader.read() == b""
        assert (await first.ask(cmd="stats"))["event"] == "done"


async def test_what_a_controller_asked_for_is_given_up_when_it_goes(tmp_path: Path) -> None:
    async with running(tmp_path) as service:
        async with controller(service.port) as first:
            # At this pace the trace takes longer than any test.
            first.writer.write(b'{"cmd": "replay", "pace": 1}\n')
            assert (await first.hear())["event"] == "progress"
        async with controller(service.port) as second:
            before = (await second.ask(cmd="stats"))["stats"]["requests"]
            assert (await second.ask(cmd="replay", first=0, count=1))["stats"]["requests"] == before + 1


async def test_the_own_replay_goes_on_while_a_controller_only_looks_and_stops_for_good_when_it_works(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, OwnReplay(pace=0.0, delay_seconds=0.0)) as service:
        async with controller(service.port) as first:
            seen = (await first.ask(cmd="stats"))["stats"]["requests"]
            await until_served(service, seen + 5)
            stopped = (await first.ask(cmd="reset"))["stats"]["requests"]
            assert (await first.ask(cmd="replay", count=3))["stats"]["requests"] == stopped + 3
        async with controller(service.port) as second:
            assert (await second.ask(cmd="stats"))["stats"]["requests"] == stopped + 3
        assert sum("stopped for good" in line for line in service.said) == 1


async def test_the_own_replay_starts_over_at_the_end_of_the_trace(tmp_path: Path) -> None:
    async with running(tmp_path, OwnReplay(pace=0.0, delay_seconds=0.0), listen=None) as service:
        await until_served(service, 1_010)


async def test_a_request_that_cannot_be_served_ends_the_service(tmp_path: Path) -> None:
    async with running(tmp_path, OwnReplay(pace=0.0, delay_seconds=0.0), listen=None, blocks=1) as service:
        assert service.task is not None
        with pytest.raises(OutOfBlocksError):
            await asyncio.wait_for(service.task, WAIT_SECONDS)


async def test_a_line_without_an_end_ends_the_conversation(tmp_path: Path) -> None:
    async with running(tmp_path) as service:
        async with controller(service.port) as first:
            first.writer.write(b"x" * (1 << 17))
            with contextlib.suppress(ConnectionError):
                assert await first.reader.read() == b""
        async with controller(service.port) as second:
            assert (await second.ask(cmd="stats"))["event"] == "done"


async def test_more_commands_than_may_wait_end_the_conversation(tmp_path: Path) -> None:
    async with running(tmp_path) as service:
        async with controller(service.port) as first:
            first.writer.write(b'{"cmd": "replay", "pace": 1}\n' + b'{"cmd": "stats"}\n' * 2_000)
            with contextlib.suppress(ConnectionError):
                async with asyncio.timeout(WAIT_SECONDS):
                    assert b'"cmd":"stats"' not in await first.reader.read()
        async with controller(service.port) as second:
            assert (await second.ask(cmd="stats"))["event"] == "done"


class SlowPeer:
    """The way back to a controller that reads its answers when it is allowed to."""

    def __init__(self) -> None:
        self.reads = asyncio.Event()

    async def drain(self) -> None:
        await self.reads.wait()


async def test_a_controller_that_reads_no_answers_is_not_listened_to() -> None:
    peer, reader, lines = SlowPeer(), asyncio.StreamReader(), asyncio.Queue[bytes | None]()
    reader.feed_data(b"1\n2\n")
    reader.feed_eof()
    reading = asyncio.create_task(read_lines(reader, peer, lines))
    async with asyncio.timeout(WAIT_SECONDS):
        assert await lines.get() == b"1\n"
        assert lines.empty()
        peer.reads.set()
        await reading
    assert lines.get_nowait() == b"2\n"


@pytest.mark.parametrize("number", [errno.ECONNRESET, errno.ETIMEDOUT, errno.EHOSTUNREACH])
async def test_a_connection_that_leads_nowhere_is_the_end_of_a_controller(number: int) -> None:
    reader = asyncio.StreamReader()
    reader.set_exception(OSError(number, "gone"))
    async with asyncio.timeout(WAIT_SECONDS):
        await read_lines(reader, SlowPeer(), asyncio.Queue())


def test_a_controller_whose_machine_is_gone_is_noticed_within_a_minute() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as connection:
        notice_silence(connection)
        asked_after = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE)
        given_up_after = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) / 1_000
        assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    assert 0 < asked_after + given_up_after < 60


async def test_how_it_goes_is_told_when_something_has_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = asyncio.Queue[str]()

    def look(counts: EngineCounts) -> str:
        looks.put_nowait(line := sentence(counts))
        return line

    monkeypatch.setattr(engine_service, "_TELL_SECONDS", 0.01)
    monkeypatch.setattr(engine_service, "sentence", look)
    async with running(tmp_path) as service, controller(service.port) as first:
        await first.ask(cmd="replay", count=2)
        async with asyncio.timeout(WAIT_SECONDS):
            seen = 0
            while seen < 3:
                seen += (await looks.get()).startswith("2 requests, ")
        assert sum(line.startswith("2 requests, ") for line in service.said) == 1


async def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = ListenAddress(*other.getsockname())
        async with running(tmp_path, listen=None) as service:
            assert service.engine is not None
            with pytest.raises(ConfigurationError, match=f"127.0.0.1:{address.port}"):
                await EngineService(service.engine, None, service.said.append).run(address)


async def test_the_node_is_waited_for_as_long_as_it_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_service, "_FIRST_TELL_SECONDS", 0.05)
    monkeypatch.setattr(engine_service, "_TELL_SECONDS", 0.05)
    path, said = tmp_path / "c.sock", asyncio.Queue[str]()
    with EngineMemory(4, BLOCK_BYTES) as memory:
        description = memory.description(EngineId("e"), IDENTITY)
        async with BlockyardClient(path, description, memory.guards, memory=memory.rank) as client:
            waiting = asyncio.create_task(wait_for_node(client, said.put_nowait))
            async with asyncio.timeout(WAIT_SECONDS):
                waits = await said.get()
                assert "waiting for the block-manager: " in waits
                assert waits.count(UnavailableError.remedy) == 1
                assert str(path) in await said.get()
                async with served(path, ScriptedManager()):
                    await waiting


async def test_a_wait_for_the_node_with_a_limit_ends_and_is_told_of_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_service, "_FIRST_TELL_SECONDS", 0.01)
    said: list[str] = []
    with EngineMemory(4, BLOCK_BYTES) as memory:
        description = memory.description(EngineId("e"), IDENTITY)
        async with (
            asyncio.timeout(WAIT_SECONDS),
            BlockyardClient(tmp_path / "none", description, memory.guards, memory=memory.rank) as client,
        ):
            with pytest.raises(UnavailableError):
                await wait_for_node(client, said.append, limit_seconds=0.05)
    assert len(said) == 1


async def test_the_process_ends_in_order_when_it_is_asked_to(tmp_path: Path) -> None:
    path = tmp_path / "c.sock"
    options = ("--socket", str(path), "--name", "e", "--blocks", "64", "--block-bytes", "4096")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "blockyard.connectors.mock", *options, "--listen", "127.0.0.1:0", "--replay"),
        stdin=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    async with asyncio.timeout(20), served(path, ScriptedManager()):
        said = b""
        while b"takes commands at port" not in said:
            line = await process.stderr.readline()
            assert line
            said += line
        process.send_signal(signal.SIGTERM)
        rest = await process.stderr.read()
        assert await process.wait() == 0
    assert b"e: connected to its node\n" in said
    assert rest.endswith(b"e: stopped\n")


@pytest.mark.parametrize(
    "options", [("--listen", "8810"), ("--listen", "h:99999"), ("--pace", "nan"), ("--delay", "-1"), ("--pace", "x")]
)
async def test_wrong_usage_is_refused(options: tuple[str, str]) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "blockyard.connectors.mock", "--socket", "s", "--name", "e", *options),
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(20):
        _, stderr = await process.communicate()
    assert process.returncode == 2
    assert options[1].encode() in stderr
