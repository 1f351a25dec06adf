"""Conversation with the controller of a demo engine: JSON lines in (see ``commands``), JSON lines out.

Answers: ``{"event": "ready", ...}`` at the start, ``{"event": "done", "cmd": ..., ...}`` or ``{"event": "error", ...}``
for every line; ``progress`` in between.
Threading: one event loop; pipes are read in a thread of its own so that they never block the loop.
"""

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable
from typing import Any, BinaryIO, final

import msgspec

from blockyard.connectors.mock.commands import Command, Probe, Quit, Replay, Reset, Stats
from blockyard.connectors.mock.engine import BlockOutcome, EngineCounts, MockEngine
from blockyard.connectors.mock.trace_replay import TraceReplay
from blockyard.core.errors import BlockyardError

Lines = asyncio.Queue[bytes | None]
"""Lines of a controller; None is their end."""


async def _nothing() -> None:
    pass


@final
class CommandLoop:
    """Answers the commands of one controller, until ``quit`` or the end of its lines."""

    def __init__(
        self,
        engine: MockEngine,
        replay: TraceReplay,
        write: Callable[[bytes], object],
        *,
        before_work: Callable[[], Awaitable[None]] = _nothing,
    ) -> None:
        """Drive ``engine`` and ``write`` what is to be said, line by line.

        ``before_work`` is awaited before each command that makes the engine do something.
        """
        self._engine = engine
        self._replay = replay
        self._write = write
        self._before_work = before_work
        self._decoder: msgspec.json.Decoder[Command] = msgspec.json.Decoder(Command)

    async def run(self, lines: Lines) -> None:
        """Answer commands in order."""
        self._say({"event": "ready", "requests": self._replay.requests})
        while (line := await lines.get()) is not None:
            try:
                command = self._decoder.decode(line)
            except msgspec.ValidationError as error:
                self._say({"event": "error", "detail": str(error)})
                continue
            except (msgspec.DecodeError, RecursionError) as error:
                self._say({"event": "error", "detail": f"not JSON: {error}"})
                continue
            if isinstance(command, Quit):
                self._say({"event": "done", "cmd": "quit"})
                return
            try:
                answer = await self._answer(command)
            except BlockyardError as error:
                self._say({"event": "error", "code": error.code, "detail": error.finding})
                continue
            self._say({"event": "done", **answer, "stats": flat_counts(self._engine.counts)})

    async def _answer(self, command: Replay | Probe | Reset | Stats) -> dict[str, Any]:
        if isinstance(command, Stats):
            return {"cmd": "stats"}
        await self._before_work()
        if isinstance(command, Replay):
            await self._replay.run(command, self._say_progress)
            return {"cmd": "replay"}
        if isinstance(command, Probe):
            return {"cmd": "probe", "block": _flat_outcome(await self._replay.probe(command.key))}
        await self._engine.reset()
        return {"cmd": "reset"}

    def _say_progress(self, served: int, of: int) -> None:
        self._say({"event": "progress", "served": served, "of": of, "stats": flat_counts(self._engine.counts)})

    def _say(self, message: dict[str, Any]) -> None:
        self._write(msgspec.json.encode(message) + b"\n")


def flat_counts(counts: EngineCounts) -> dict[str, Any]:
    """Counters as they are written; tiers by name."""
    by_tier = {"verified": counts.verified, "foreign": counts.foreign}
    flat = {name: getattr(counts, name) for name in counts.__dataclass_fields__ if name not in by_tier}
    return flat | {name: {tier.name: n for tier, n in value.items()} for name, value in by_tier.items()}


def lines_of(commands: BinaryIO) -> Lines:
    """Lines of a pipe, read by a thread.

    ``commands`` is unbuffered where it can block: a thread that waits in a buffered one cannot be left at the end.
    """
    loop = asyncio.get_running_loop()
    lines: Lines = asyncio.Queue()

    def read() -> None:
        # The loop may be gone before the input: after ``quit`` nobody waits for more.
        with contextlib.suppress(RuntimeError):
            for line in commands:
                loop.call_soon_threadsafe(lines.put_nowait, line)
            loop.call_soon_threadsafe(lines.put_nowait, None)

    # A daemon: after ``quit`` it may still wait for a line that never comes.
    threading.Thread(target=read, name="commands", daemon=True).start()
    return lines


def _flat_outcome(outcome: BlockOutcome) -> dict[str, Any]:
    return {
        "key": outcome.key.hex(),
        "availability": None if outcome.availability is None else outcome.availability.name,
        "status": None if outcome.status is None else outcome.status.name,
        "source": None if outcome.source is None else outcome.source.name,
        "wrong_bytes": outcome.wrong_bytes,
    }
