"""Connections of a test end with its server, whatever the answers are waiting for."""

import asyncio

import pytest

from blockyard.testing.tcp_server import tcp_server

WAIT_SECONDS = 10.0


async def test_answers_that_wait_for_ever_end_with_the_server() -> None:
    begun = asyncio.Event()
    ended: list[bool] = []

    async def silent(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(writer.is_closing())

    async with tcp_server(silent) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.wait_for(begun.wait(), WAIT_SECONDS)
    assert ended == [False]
    assert await asyncio.wait_for(reader.read(), WAIT_SECONDS) == b""
    writer.close()
    await writer.wait_closed()


async def test_a_client_that_leaves_is_no_error_and_a_broken_answer_is() -> None:
    answered = asyncio.Event()

    async def patient(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        try:
            await reader.readexactly(2)
        finally:
            answered.set()

    async def broken(_reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        answered.set()
        raise LookupError("no answer")

    async def connect_and_leave(port: int) -> None:
        answered.clear()
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"x")
        writer.close()
        await writer.wait_closed()
        await asyncio.wait_for(answered.wait(), WAIT_SECONDS)

    async with tcp_server(patient) as port:
        await connect_and_leave(port)
    with pytest.raises(LookupError):
        async with tcp_server(broken) as port:
            await connect_and_leave(port)
