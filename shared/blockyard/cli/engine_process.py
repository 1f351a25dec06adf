"""A demo engine as a child process: commands as JSON lines to it, events as JSON lines from it.

Invariants: one command at a time; every command ends in one ``done`` or ``error`` event or in :class:`PeerClosedError`;
an engine whose answer was not awaited to its end takes no further command and is ended without being asked.
Threading: one event loop, in the main thread.
"""

import asyncio
import contextlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from blockyard.cli.child_process import ChildProcess, ChildSpec
from blockyard.cli.engine_events import BlockReport, Done, EngineEvent, EngineStats, Failed, Progress, Ready
from blockyard.connectors.mock.commands import Probe, Quit, Replay, Reset, Stats
from blockyard.core.errors import DeadlineExceededError, EngineCommandError, PeerClosedError

_START_SECONDS: Final = 40.0
_QUIT_SECONDS: Final = 5.0
_LINE_LIMIT_BYTES: Final = 1 << 20

Command = Replay | Probe | Reset | Stats | Quit


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """What kind of engine to start."""

    name: str
    socket: Path
    blocks: int
    block_bytes: int
    log_file: Path

    def child(self) -> ChildSpec:
        """Its command line."""
        options = (
            *("--socket", str(self.socket), "--name", self.name),
            *("--blocks", str(self.blocks), "--block-bytes", str(self.block_bytes)),
        )
        command = (sys.executable, "-m", "blockyard.connectors.mock", *options)
        return ChildSpec(self.name, command, self.log_file, piped=True)


class EngineProcess:
    """One running demo engine."""

    def __init__(self, spec: EngineSpec) -> None:
        """Start the process; it connects by itself once its node answers."""
        self.spec = spec
        self.latest = EngineStats()
        """Counters as last reported; kept after its end."""
        self.requests = 0
        """Requests in its trace; known once it is ready."""
        self._child = ChildProcess(spec.child())
        self._events = asyncio.StreamReader(limit=_LINE_LIMIT_BYTES)
        self._transport: asyncio.ReadTransport | None = None
        self._busy = asyncio.Lock()
        self._unanswered = False
        self._decoder: msgspec.json.Decoder[EngineEvent] = msgspec.json.Decoder(EngineEvent)

    @property
    def pid(self) -> int:
        """Process id."""
        return self._child.pid

    @property
    def running(self) -> bool:
        """Whether the process lives."""
        return self._child.exit_code is None

    async def wait_ready(self) -> None:
        """Wait until it is connected.

        Raises:
            PeerClosedError: it ended; the message holds the end of its log.
            DeadlineExceededError: it did not connect in time.
        """
        loop = asyncio.get_running_loop()
        self._transport, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(self._events), self._child.stdout
        )
        try:
            async with asyncio.timeout(_START_SECONDS):
                event = await self._next_event()
        except TimeoutError:
            raise DeadlineExceededError("the demo engine did not connect", engine=self.spec.name) from None
        if not isinstance(event, Ready):
            raise EngineCommandError("the demo engine did not start", engine=self.spec.name)
        self.requests = event.requests

    async def replay(
        self,
        first: int,
        count: int,
        *,
        pace: float = 0.0,
        on_progress: Callable[[Progress], None] = lambda _: None,
    ) -> EngineStats:
        """Serve requests ``first ... first + count - 1`` of the trace; the counters afterwards."""
        return (await self._call(Replay(first=first, count=count, pace=pace), on_progress)).stats

    async def probe(self, key_hex: str) -> BlockReport:
        """Drop its cache, serve the first request that contains this block, and tell what became of the block."""
        done = await self._call(Probe(key=key_hex))
        if done.block is None:
            raise EngineCommandError("a probe was answered without a block", engine=self.spec.name)
        return done.block

    async def reset(self) -> None:
        """Drop its own prefix cache."""
        await self._call(Reset())

    async def stats(self) -> EngineStats:
        """Its counters now."""
        return (await self._call(Stats())).stats

    async def stop(self) -> None:
        """End it in order; by a signal when it is busy, because it would first end what it does."""
        if self.running and not self._unanswered:
            with contextlib.suppress(BrokenPipeError):
                self._write(Quit())
            await self._child.wait_async(_QUIT_SECONDS)
        await self._child.stop_async(_QUIT_SECONDS)
        self._close()

    def kill(self) -> None:
        """SIGKILL."""
        self._child.kill()
        self._close()

    async def _call(self, command: Command, on_progress: Callable[[Progress], None] = lambda _: None) -> Done:
        async with self._busy:
            if self._unanswered:
                raise EngineCommandError("an earlier command was given up", engine=self.spec.name)
            try:
                self._write(command)
            except BrokenPipeError:
                raise self._gone() from None
            self._unanswered = True
            while True:
                event = await self._next_event()
                if isinstance(event, Progress):
                    self.latest = event.stats
                    on_progress(event)
                elif isinstance(event, Failed):
                    self._unanswered = False
                    raise EngineCommandError(event.detail, engine=self.spec.name)
                elif isinstance(event, Done):
                    self._unanswered = False
                    self.latest = event.stats
                    return event

    async def _next_event(self) -> EngineEvent:
        line = await self._events.readline()
        if not line:
            raise self._gone()
        try:
            return self._decoder.decode(line)
        except msgspec.DecodeError as error:
            raise EngineCommandError(f"not an event of a demo engine: {error}", engine=self.spec.name) from error

    def _write(self, command: Command) -> None:
        # Short enough for a pipe to take it whole.
        self._child.stdin.write(msgspec.json.encode(command) + b"\n")

    def _gone(self) -> PeerClosedError:
        detail = f"the demo engine ended; end of its log:\n{self._child.log_tail()}"
        return PeerClosedError(detail, engine=self.spec.name)

    def _close(self) -> None:
        if self._transport is not None:
            self._transport.close()
            self._transport = None
        else:
            self._child.stdout.close()
