"""A demo engine that runs by itself: replays the trace, tells how it goes, and takes commands over TCP.

It has one controller at a time; another one is sent away. When a controller goes, what it asked for is given up and
the engine waits for the next one. A controller that cannot be reached any more, sends without end or never reads what
it is answered is let go likewise. Its own replay stops for good as soon as a controller makes the engine do something:
replay, probe or reset; asking for the counters does not.
Invariants: the own replay never runs at the same time as a command that makes the engine do something.
Threading: one event loop.
"""

import asyncio
import contextlib
import socket
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Final, Protocol, final

import msgspec

from blockyard.connectors.client import BlockyardClient
from blockyard.connectors.mock.command_loop import CommandLoop, Lines
from blockyard.connectors.mock.commands import Replay
from blockyard.connectors.mock.engine import EngineCounts, MockEngine
from blockyard.connectors.mock.trace_replay import TraceReplay
from blockyard.core.errors import ConfigurationError, UnavailableError

_TELL_SECONDS: Final = 5.0
_FIRST_TELL_SECONDS: Final = 1.0
_LINE_LIMIT_BYTES: Final = 1 << 16
_MOST_WAITING_LINES: Final = 1_000
_SILENT_SECONDS: Final = 30
"""How long a controller may leave the system without any sign of life, and what is sent to it without a receipt."""
_PROBE_SECONDS: Final = 10
_BUSY: Final = {"event": "error", "code": "busy", "detail": "the engine has another controller"}


@final
@dataclass(frozen=True, slots=True)
class ListenAddress:
    """Where commands are taken."""

    host: str
    port: int


@final
@dataclass(frozen=True, slots=True)
class OwnReplay:
    """The replay that needs no controller: the whole trace, again and again."""

    pace: float
    delay_seconds: float


@final
class EngineService:
    """One engine on its own."""

    def __init__(self, engine: MockEngine, own_replay: OwnReplay | None, say: Callable[[str], None]) -> None:
        """Run ``engine``; ``say`` takes lines for people."""
        self._engine = engine
        self._replay = TraceReplay(engine)
        self._own_replay = own_replay
        self._say = say
        self._own: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._taken = False
        """Whether there is a controller."""
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def run(self, listen: ListenAddress | None, on_listening: Callable[[int], None] = lambda port: None) -> None:
        """Serve until cancelled; ``on_listening`` is told the port.

        Raises:
            ConfigurationError: commands cannot be taken at this address.
            BlockyardError: a request of the own replay could not be served.
        """
        server = None if listen is None else await self._listen(listen)
        try:
            if server is not None:
                on_listening(server.sockets[0].getsockname()[1])
            self._start(self._tell())
            if self._own_replay is not None:
                self._own = self._start(self._replay_for_ever(self._own_replay))
            await self._failed
        finally:
            if server is not None:
                server.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            self._say(sentence(self._engine.counts))

    async def _listen(self, listen: ListenAddress) -> asyncio.Server:
        try:
            return await asyncio.start_server(self._accept, listen.host, listen.port, limit=_LINE_LIMIT_BYTES)
        except OSError as error:
            reason = error.strerror or str(error)
            place = f"{listen.host}:{listen.port}"
            raise ConfigurationError("cannot take commands", key="--listen", address=place, reason=reason) from error

    def _start(self, work: Coroutine[object, object, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Let nothing fail in silence."""
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None and not self._failed.done():
            self._failed.set_exception(error)

    # --- without a controller -----------------------------------------------------------------------------------------
    async def _replay_for_ever(self, own: OwnReplay) -> None:
        await asyncio.sleep(own.delay_seconds)
        while True:
            await self._replay.run(Replay(pace=own.pace))

    async def _stop_own_replay(self) -> None:
        if self._own is not None:
            own, self._own = self._own, None
            own.cancel()
            await asyncio.gather(own, return_exceptions=True)
            self._say("a controller has taken over: the replay is stopped for good")

    async def _tell(self) -> None:
        told = ""
        while True:
            await asyncio.sleep(_TELL_SECONDS)
            if (now := sentence(self._engine.counts)) != told:
                told = now
                self._say(now)

    # --- controllers --------------------------------------------------------------------------------------------------
    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._taken:
            writer.write(msgspec.json.encode(_BUSY) + b"\n")
            writer.close()
            return
        self._taken = True
        notice_silence(writer.get_extra_info("socket"))
        self._start(self._converse(reader, writer))

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        lines: Lines = asyncio.Queue(_MOST_WAITING_LINES)
        commands = CommandLoop(self._engine, self._replay, writer.write, before_work=self._stop_own_replay)
        answering = asyncio.create_task(commands.run(lines))
        reading = asyncio.create_task(read_lines(reader, writer, lines))
        try:
            await asyncio.wait((answering, reading), return_when=asyncio.FIRST_COMPLETED)
        finally:
            answering.cancel()
            reading.cancel()
            await asyncio.gather(answering, reading, return_exceptions=True)
            self._taken = False
            writer.close()
        for task in (answering, reading):
            if not task.cancelled():
                task.result()


async def wait_for_node(
    client: BlockyardClient, say: Callable[[str], None], limit_seconds: float | None = None
) -> None:
    """Wait until the node has taken this engine, and say soon, and then every few seconds, for what.

    Raises:
        UnavailableError: it did not within ``limit_seconds``; None waits as long as it takes.
        RequestError: the block-manager refuses this engine.
        ConfigurationError: there can be no socket at this path.
    """
    clock = asyncio.get_running_loop().time
    end = None if limit_seconds is None else clock() + limit_seconds
    patience = _FIRST_TELL_SECONDS
    while True:
        left = patience if end is None else min(patience, end - clock())
        try:
            await client.wait_connected(left)
        except UnavailableError as error:
            if left < patience:
                raise
            say(f"waiting for the block-manager: {error}")
            patience = _TELL_SECONDS
        else:
            return


def sentence(counts: EngineCounts) -> str:
    """Counters of an engine in one line; blocks unless named otherwise."""
    verified = ", ".join(f"{tier.name} {count}" for tier, count in counts.verified.items())
    return (
        f"{counts.requests} requests, {counts.asked} blocks: {counts.g1_hits} in G1, loaded and verified from "
        f"{verified}, {counts.computed} computed; {counts.failed} loads failed, {counts.unknown} unknown, "
        f"{counts.refused_calls} calls refused, {counts.wrong_bytes} wrong bytes"
    )


class Peer(Protocol):
    """The way back to a controller."""

    async def drain(self) -> None:
        """Wait while too much of what was written has not been taken."""
        ...


async def read_lines(reader: asyncio.StreamReader, peer: Peer, lines: Lines) -> None:
    """Until the controller goes, or says more than a line or ``lines`` may hold; only while it reads its answers."""
    # Not only a connection that was closed: one that leads nowhere any more ends in a timeout, or without a route.
    with contextlib.suppress(OSError, ValueError, asyncio.QueueFull):
        while line := await reader.readline():
            lines.put_nowait(line)
            await peer.drain()


def notice_silence(connection: socket.socket) -> None:
    """Have the system end a connection whose other end is gone without a word: it would hold the engine for ever."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _PROBE_SECONDS)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _PROBE_SECONDS)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _SILENT_SECONDS * 1_000)
