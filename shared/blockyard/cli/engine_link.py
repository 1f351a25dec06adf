"""Driving a demo engine: commands as JSON lines to it, events as JSON lines from it, over whatever connects the two.

Invariants: one command at a time; every command ends in one ``done`` or ``error`` event or in :class:`PeerClosedError`;
an engine whose answer was not awaited to its end takes no further command.
Threading: one event loop.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final

import msgspec

from blockyard.cli.engine_events import BlockReport, Done, EngineEvent, EngineStats, Failed, Progress, Ready
from blockyard.cli.failures import EngineCommandError
from blockyard.connectors.mock.commands import Command, Probe, Replay, Reset, Stats
from blockyard.core.errors import PeerClosedError

LINE_LIMIT_BYTES: Final = 1 << 20


class EngineLink(ABC):
    """A demo engine at the other end of something that carries lines."""

    def __init__(self, name: str) -> None:
        """Not connected yet."""
        self.name = name
        self.latest = EngineStats()
        """Counters as last reported; kept after its end."""
        self.requests = 0
        """Requests in its trace; known once it is ready."""
        self._unanswered = False
        """A command was sent and its answer not seen."""
        self._busy = asyncio.Lock()
        self._decoder: msgspec.json.Decoder[EngineEvent] = msgspec.json.Decoder(EngineEvent)

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
            raise EngineCommandError("a probe was answered without a block", engine=self.name)
        return done.block

    async def reset(self) -> None:
        """Drop its own prefix cache."""
        await self._call(Reset())

    async def stats(self) -> EngineStats:
        """Its counters now."""
        return (await self._call(Stats())).stats

    # --- the connection -----------------------------------------------------------------------------------------------
    @abstractmethod
    async def _read_line(self) -> bytes:
        """The next line with its end; at the end of all lines empty, or what there is of the last one.

        Raises:
            ValueError: the line is longer than ``LINE_LIMIT_BYTES``.
        """

    @abstractmethod
    def _write_line(self, line: bytes) -> None:
        """Send a line.

        Raises:
            ConnectionError: the other end is gone.
        """

    @abstractmethod
    def _gone(self) -> PeerClosedError:
        """What to raise when the engine has ended."""

    async def _greeting(self) -> None:
        """Wait for its first words."""
        event = await self._next_event()
        if not isinstance(event, Ready):
            detail = event.detail if isinstance(event, Failed) else "the demo engine did not start"
            raise EngineCommandError(detail, engine=self.name)
        self.requests = event.requests

    async def _call(self, command: Command, on_progress: Callable[[Progress], None] = lambda _: None) -> Done:
        async with self._busy:
            if self._unanswered:
                raise EngineCommandError("an earlier command was given up", engine=self.name)
            self._send(command)
            self._unanswered = True
            while True:
                event = await self._next_event()
                if isinstance(event, Progress):
                    self.latest = event.stats
                    on_progress(event)
                elif isinstance(event, Failed):
                    self._unanswered = False
                    raise EngineCommandError(event.detail, engine=self.name)
                elif isinstance(event, Done):
                    self._unanswered = False
                    self.latest = event.stats
                    return event

    def _send(self, command: Command) -> None:
        try:
            self._write_line(msgspec.json.encode(command) + b"\n")
        except ConnectionError:
            raise self._gone() from None

    async def _next_event(self) -> EngineEvent:
        try:
            line = await self._read_line()
            if not line.endswith(b"\n"):
                raise self._gone()
            return self._decoder.decode(line)
        # Too long a line, none of JSON, or of another kind.
        except (ValueError, RecursionError) as error:
            raise EngineCommandError(f"not an event of a demo engine: {error}", engine=self.name) from error
