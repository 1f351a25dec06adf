"""Becoming the controller of an engine takes as many attempts as it needs, and says why when it fails."""

import asyncio
import errno
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from blockyard.cli.compose import engine_connection
from blockyard.cli.compose.engine_connection import EngineConnection
from blockyard.core.errors import DeadlineExceededError, PeerClosedError
from blockyard.testing.tcp_server import tcp_server

READY = {"event": "ready", "requests": 7}
BUSY = {"event": "error", "code": "busy", "detail": "the engine has another controller"}
Words = list[Any]


@asynccontextmanager
async def engine(first_words: Callable[[], Words], answers: Callable[[bytes], Words]) -> AsyncIterator[int]:
    """An engine that greets with these words and hangs up when there are none, or no answer; yields its port."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        words = first_words()
        while words:
            writer.write(b"".join(json.dumps(event).encode() + b"\n" for event in words))
            if not (line := await reader.readline()):
                break
            words = answers(line)

    async with tcp_server(serve) as port:
        yield port


async def test_an_engine_that_is_not_there_yet_or_busy_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_connection, "_PAUSE_SECONDS", 0.01)
    greetings: list[Words] = [[], [BUSY], [READY]]
    done = {"event": "done", "cmd": "stats", "stats": {"requests": 3}}
    async with engine(lambda: greetings.pop(0), lambda _: [done]) as port:
        connection = EngineConnection("engine-a", f"127.0.0.1:{port}")
        await connection.connect()
        assert connection.requests == 7
        assert (await connection.stats()).requests == 3
        connection.close()
        with pytest.raises(PeerClosedError, match="engine-a"):
            await connection.stats()


async def test_one_that_stays_busy_is_given_up_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_connection, "_CONNECT_SECONDS", 0.5)
    async with engine(lambda: [BUSY], lambda _: []) as port:
        with pytest.raises(DeadlineExceededError, match="another controller"):
            await EngineConnection("engine-a", f"127.0.0.1:{port}").connect()


@pytest.mark.parametrize("number", [errno.ECONNRESET, errno.ETIMEDOUT, errno.EHOSTUNREACH])
async def test_a_connection_that_leads_nowhere_any_more_is_the_end_of_the_engine(
    monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    async def gone(_: asyncio.StreamReader) -> bytes:
        raise OSError(number, "gone")

    async with engine(lambda: [READY], lambda _: []) as port:
        connection = EngineConnection("engine-a", f"127.0.0.1:{port}")
        await connection.connect()
        monkeypatch.setattr(asyncio.StreamReader, "readline", gone)
        with pytest.raises(PeerClosedError, match="closed the connection"):
            await connection.stats()
        connection.close()
        monkeypatch.undo()


async def test_an_end_in_the_middle_of_a_command_is_an_error() -> None:
    async with engine(lambda: [READY], lambda _: []) as port:
        connection = EngineConnection("engine-a", f"127.0.0.1:{port}")
        await connection.connect()
        with pytest.raises(PeerClosedError, match="closed the connection"):
            await connection.replay(0, 1)
        connection.close()
