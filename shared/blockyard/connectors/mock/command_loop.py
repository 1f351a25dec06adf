"""Commands of the demo engine: JSON lines in, JSON lines out.

``{"cmd": "replay", "first": 0, "count": 100, "pace": 0, "concurrency": 4}``: serve these requests; ``pace`` is the
factor by which trace time is compressed, 0 = as fast as possible. ``{"cmd": "probe", "key": "<32 hex>"}``: drop the own
cache, serve the first request that contains this block, and report what became of it. ``reset``, ``stats``, ``quit``.
Answers: ``{"event": "done", "cmd": ..., ...}`` or ``{"event": "error", ...}``; progress in between.
Threading: one event loop; the input is read in a thread of its own so that it never blocks the loop.
"""

import asyncio
import contextlib
import threading
from typing import Annotated, Any, BinaryIO, final

import msgspec

from blockyard.connectors.mock.engine import BlockOutcome, MockEngine
from blockyard.connectors.mock.trace import TraceRequest, load_trace
from blockyard.core.errors import BlockyardError, RequestError


class Replay(msgspec.Struct, frozen=True, tag_field="cmd", tag="replay"):
    """Serve ``count`` requests from ``first`` on."""

    first: Annotated[int, msgspec.Meta(ge=0)] = 0
    count: Annotated[int, msgspec.Meta(ge=0)] = 1_000_000
    pace: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    concurrency: Annotated[int, msgspec.Meta(ge=1)] = 4


class Probe(msgspec.Struct, frozen=True, tag_field="cmd", tag="probe"):
    """Serve the first request that contains the block ``key`` (hex)."""

    key: str


class Reset(msgspec.Struct, frozen=True, tag_field="cmd", tag="reset"):
    """Drop the own prefix cache."""


class Stats(msgspec.Struct, frozen=True, tag_field="cmd", tag="stats"):
    """Report the counters."""


class Quit(msgspec.Struct, frozen=True, tag_field="cmd", tag="quit"):
    """End."""


Command = Replay | Probe | Reset | Stats | Quit


@final
class CommandLoop:
    """Reads commands until ``quit`` or end of input."""

    def __init__(self, engine: MockEngine, commands: BinaryIO, events: BinaryIO) -> None:
        """Drive ``engine`` with lines of ``commands``, and write lines to ``events``.

        ``commands`` is unbuffered where it can block: a thread that waits in a buffered one cannot be left at the end.
        """
        self._engine = engine
        self._commands = commands
        self._events = events
        self._trace = load_trace()
        self._decoder: msgspec.json.Decoder[Command] = msgspec.json.Decoder(Command)

    async def run(self) -> None:
        """Answer commands in order."""
        lines = _lines_of(self._commands)
        self._say({"event": "ready", "requests": len(self._trace)})
        while True:
            line = await lines.get()
            if line is None:
                return
            try:
                command = self._decoder.decode(line)
            except msgspec.ValidationError as error:
                self._say({"event": "error", "detail": str(error)})
                continue
            except msgspec.DecodeError as error:
                self._say({"event": "error", "detail": f"not JSON: {error}"})
                continue
            if isinstance(command, Quit):
                self._say({"event": "done", "cmd": "quit"})
                return
            try:
                answer = await self._answer(command)
            except BlockyardError as error:
                self._say({"event": "error", "code": error.code, "detail": str(error)})
                continue
            self._say({"event": "done", **answer, "stats": self._stats()})

    async def _answer(self, command: Replay | Probe | Reset | Stats) -> dict[str, Any]:
        if isinstance(command, Replay):
            await self._replay(command)
            return {"cmd": "replay"}
        if isinstance(command, Probe):
            return {"cmd": "probe", "block": await self._probe(command.key)}
        if isinstance(command, Reset):
            await self._engine.reset()
            return {"cmd": "reset"}
        return {"cmd": "stats"}

    async def _replay(self, command: Replay) -> None:
        requests = self._trace[command.first : command.first + command.count]
        loop = asyncio.get_running_loop()
        start, reported = loop.time(), loop.time()
        slots = asyncio.Semaphore(command.concurrency)

        async def serve(request: TraceRequest) -> None:
            try:
                await self._engine.serve(request)
            finally:
                slots.release()

        try:
            async with asyncio.TaskGroup() as group:
                for index, request in enumerate(requests):
                    if command.pace:
                        due = start + (request.arrival_seconds - requests[0].arrival_seconds) / command.pace
                        await asyncio.sleep(max(0.0, due - loop.time()))
                    await slots.acquire()
                    group.create_task(serve(request))
                    if loop.time() - reported >= 1.0:
                        reported = loop.time()
                        self._say({"event": "progress", "served": index, "of": len(requests), "stats": self._stats()})
        except BaseExceptionGroup as failed:
            refused, defects = failed.split(BlockyardError)
            if refused is None or defects is not None:
                raise
            raise _first_of(refused) from None

    async def _probe(self, key_hex: str) -> dict[str, Any]:
        for request in self._trace:
            if any(key.hex() == key_hex for key in self._engine.run_of(request)):
                await self._engine.reset()
                outcomes = await self._engine.serve(request)
                return _outcome(next(outcome for outcome in outcomes if outcome.key.hex() == key_hex))
        raise RequestError("no request of the trace contains this block", key=key_hex)

    def _stats(self) -> dict[str, Any]:
        counts = self._engine.counts
        by_tier = {"verified": counts.verified, "foreign": counts.foreign}
        flat = {name: getattr(counts, name) for name in counts.__dataclass_fields__ if name not in by_tier}
        return flat | {name: {tier.name: n for tier, n in value.items()} for name, value in by_tier.items()}

    def _say(self, message: dict[str, Any]) -> None:
        self._events.write(msgspec.json.encode(message) + b"\n")
        self._events.flush()


def _first_of(group: BaseExceptionGroup[BlockyardError]) -> BlockyardError:
    """One of the errors of requests that failed together."""
    first = group.exceptions[0]
    return _first_of(first) if isinstance(first, BaseExceptionGroup) else first


def _outcome(outcome: BlockOutcome) -> dict[str, Any]:
    return {
        "key": outcome.key.hex(),
        "availability": None if outcome.availability is None else outcome.availability.name,
        "status": None if outcome.status is None else outcome.status.name,
        "source": None if outcome.source is None else outcome.source.name,
        "wrong_bytes": outcome.wrong_bytes,
    }


def _lines_of(commands: BinaryIO) -> "asyncio.Queue[bytes | None]":
    loop = asyncio.get_running_loop()
    lines: asyncio.Queue[bytes | None] = asyncio.Queue()

    def read() -> None:
        # The loop may be gone before the input: after ``quit`` nobody waits for more.
        with contextlib.suppress(RuntimeError):
            for line in commands:
                loop.call_soon_threadsafe(lines.put_nowait, line)
            loop.call_soon_threadsafe(lines.put_nowait, None)

    # A daemon: after ``quit`` it may still wait for a line that never comes.
    threading.Thread(target=read, name="commands", daemon=True).start()
    return lines
