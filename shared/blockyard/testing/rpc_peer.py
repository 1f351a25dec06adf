"""Messages and peers for tests of the local channels, proper and raw.

Threading: one event loop.
"""

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Final, TypeAlias

import msgspec

from blockyard.core.errors import MalformedFrameError, UnsupportedOperationError
from blockyard.runtime.rpc.client import RpcClient
from blockyard.runtime.rpc.server import RpcServer
from blockyard.runtime.rpc.session import RpcSession
from blockyard.wire.frame import LENGTH_BYTES, Frame, FrameKind, Problem, decode_frame, encode_frame

WAIT_SECONDS: Final = 5.0


class Ask(msgspec.Struct, frozen=True, tag="ask"):
    """A request."""

    number: int
    data: bytes = b""


class Stop(msgspec.Struct, frozen=True, tag="stop"):
    """Another request."""


class Told(msgspec.Struct, frozen=True, tag="told"):
    """A reply."""

    number: int
    data: bytes = b""


class News(msgspec.Struct, frozen=True, tag="news"):
    """A push."""

    number: int
    data: bytes = b""


class RawPeer:
    """Speaks bytes: for everything that no proper client or server would send."""

    def __init__(self, peer: socket.socket) -> None:
        """Speak through a connected non-blocking socket; it stays the caller's."""
        self.socket = peer
        self._bytes = b""

    async def send(self, data: bytes) -> None:
        """Send bytes as they are."""
        await asyncio.get_running_loop().sock_sendall(self.socket, data)

    def send_with_descriptors(self, data: bytes, descriptors: Sequence[int]) -> None:
        """Send bytes and descriptors in one message."""
        socket.send_fds(self.socket, [data], list(descriptors))

    async def receive(self) -> Frame | None:
        """Next frame; None at the end of the connection."""
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(WAIT_SECONDS):
            while True:
                size = int.from_bytes(self._bytes[:LENGTH_BYTES], "little")
                if len(self._bytes) >= LENGTH_BYTES + size > LENGTH_BYTES:
                    frame = decode_frame(self._bytes[LENGTH_BYTES : LENGTH_BYTES + size])
                    self._bytes = self._bytes[LENGTH_BYTES + size :]
                    return frame
                try:
                    received = await loop.sock_recv(self.socket, 65_536)
                except ConnectionResetError:
                    return None
                if not received:
                    return None
                self._bytes += received

    async def problem(self) -> Problem:
        """Next frame, which must be an error.

        Raises:
            MalformedFrameError: it is none.
        """
        frame = await self.receive()
        if frame is None or frame.kind is not FrameKind.ERROR:
            raise MalformedFrameError("not an error frame", frame=str(frame))
        return msgspec.msgpack.decode(frame.body, type=Problem)


Request: TypeAlias = Ask | Stop
Answer: TypeAlias = Told | tuple[Told, list[int]]
Server = RpcServer[Request, Told]


async def echo(_: RpcSession, request: Request, __: list[int]) -> Told:
    """Tell what was asked.

    Raises:
        UnsupportedOperationError: it was no question.
    """
    if not isinstance(request, Ask):
        raise UnsupportedOperationError("only a question can be echoed", request=repr(request))
    return Told(request.number, request.data)


@contextlib.asynccontextmanager
async def client_of(path: Path, pushes: list[News] | None = None) -> AsyncIterator[RpcClient[Told, News]]:
    """A proper connection to a server; pushes go into ``pushes``."""
    receive: Callable[[News], None] | None = pushes.append if pushes is not None else None
    client: RpcClient[Told, News] = await RpcClient.connect(path, Told, News, receive)
    async with client:
        yield client


@contextlib.asynccontextmanager
async def raw_peer(path: Path) -> AsyncIterator[RawPeer]:
    """A raw connection to a server."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer:
        peer.setblocking(False)
        peer.connect(os.fspath(path))
        yield RawPeer(peer)


def ask(call: int, number: int = 0, data: bytes = b"") -> bytes:
    """Bytes of a request."""
    return encode_frame(FrameKind.REQUEST, call, Ask(number, data))


def told(call: int, number: int = 0) -> bytes:
    """Bytes of a reply."""
    return encode_frame(FrameKind.REPLY, call, Told(number))


def open_descriptors() -> set[str]:
    """Descriptors of this process, to see that none is leaked."""
    return {name for name in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{name}")}


def pipe_with(data: bytes) -> int:
    """Descriptor from which ``data`` can be read."""
    read, write = os.pipe()
    os.write(write, data)
    os.close(write)
    return read


async def until(holds: Callable[[], bool]) -> None:
    """Let the event loop turn until something holds."""
    async with asyncio.timeout(WAIT_SECONDS):
        while not holds():
            await asyncio.sleep(0)


async def turns(count: int) -> None:
    """Let the event loop turn so often."""
    for _ in range(count):
        await asyncio.sleep(0)
