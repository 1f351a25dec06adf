"""The local channel of engines and workers against a bare unix socket."""

import asyncio
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from bench.measure import Contest, Measure
from blockyard.runtime.rpc.client import RpcClient
from blockyard.runtime.rpc.server import RpcServer
from blockyard.runtime.rpc.session import RpcSession
from blockyard.wire import connector_channel as channel

CALLS: Final = 500
KEYS: Final = 64


def run(case: str) -> Iterator[Measure]:
    """Round trips per second of a 64-key lookup, one outstanding, against an echo on blocking sockets."""
    request = channel.Lookup(run=channel.Run(digests=bytes(32 * KEYS)))
    with tempfile.TemporaryDirectory(prefix="blockyard-bench-") as folder, _echo(32 * KEYS) as peer:
        path = Path(folder) / "c.sock"
        with asyncio.Runner() as runner:

            def ours() -> float:
                return runner.run(_calls(path, request))

            def theirs() -> float:
                data = bytes(32 * KEYS)
                for _ in range(CALLS):
                    peer.sendall(data)
                    _receive(peer, len(data))
                return CALLS

            yield Contest(
                measure="round_trip", unit="calls", ours=ours, theirs=theirs, against="an echo on blocking sockets"
            ).run(case)


async def _calls(path: Path, request: channel.Lookup) -> float:
    async def answer(session: RpcSession, asked: channel.Request, fds: list[int]) -> channel.Reply:
        return channel.LookupReply(availability=bytes(KEYS))

    server: RpcServer[channel.Request, channel.Reply] = RpcServer(path, channel.Request, answer)
    async with server:
        client: RpcClient[channel.Reply, channel.Push]
        async with await RpcClient.connect(path, channel.Reply) as client:
            for _ in range(CALLS):
                await client.call(request, timeout_seconds=5.0)
    return CALLS


@contextmanager
def _echo(size: int) -> Iterator[socket.socket]:
    ours, theirs = socket.socketpair()

    def serve() -> None:
        while data := _receive(theirs, size):
            theirs.sendall(data)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield ours
    finally:
        ours.close()
        thread.join()
        theirs.close()


def _receive(peer: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size and (part := peer.recv(size - len(data))):
        data += part
    return data
