"""A TCP server for tests whose connections end with it.

``asyncio.start_server`` forgets the tasks that answer: one that is not over when a test ends is destroyed with its
loop, and complains in the middle of a later test. Here every connection is closed and every answer over at the end.
Threading: one event loop.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def tcp_server(answer: Answer) -> AsyncIterator[int]:
    """Port of a server that answers each connection with ``answer`` and closes it after that.

    Clients may leave at any time; other errors of an answer are raised at the end.
    """
    answers: set[asyncio.Task[None]] = set()

    def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers.add(asyncio.get_running_loop().create_task(_whole(answer, reader, writer)))

    async with await asyncio.start_server(accepted, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]
    for task in answers:
        task.cancel()
    for end in await asyncio.gather(*answers, return_exceptions=True):
        if isinstance(end, Exception):
            raise end


async def _whole(answer: Answer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            await answer(reader, writer)
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()
