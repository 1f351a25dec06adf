"""Client of a local channel, against a server that does what no proper server would."""

import asyncio
import contextlib
import errno
import os
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from blockyard.core.errors import (
    DeadlineExceededError,
    FencedError,
    FrameTooLargeError,
    MalformedFrameError,
    OutOfBlocksError,
    PeerClosedError,
    UnavailableError,
)
from blockyard.runtime.rpc.client import RpcClient
from blockyard.runtime.rpc.connection import Connection
from blockyard.runtime.rpc.unix_socket import connect, listen
from blockyard.testing.rpc_peer import (
    WAIT_SECONDS,
    Ask,
    News,
    RawPeer,
    Told,
    open_descriptors,
    pipe_with,
    told,
    turns,
    until,
)
from blockyard.wire.codec import MAX_FRAME_BYTES, PROTOCOL_VERSION, encode
from blockyard.wire.frame import LENGTH_BYTES, Frame, FrameKind, encode_frame, problem_of

Client = RpcClient[Told, News]


@contextlib.asynccontextmanager
async def pair(pushes: list[News] | None = None) -> AsyncIterator[tuple[Client, RawPeer]]:
    """A client and the raw server it talks to."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.setblocking(False)
    with theirs:
        async with Client(ours, Told, News, pushes.append if pushes is not None else None) as client:
            yield client, RawPeer(theirs)


def calling(client: Client, number: int = 0, seconds: float = WAIT_SECONDS) -> "asyncio.Task[Told]":
    return asyncio.create_task(client.call(Ask(number), timeout_seconds=seconds))


async def next_call(peer: RawPeer) -> int:
    frame = await peer.receive()
    assert frame is not None
    assert frame.kind is FrameKind.REQUEST
    return frame.call


# --- calls --------------------------------------------------------------------------------------------------------
async def test_replies_pair_by_number_in_any_order_and_any_pieces() -> None:
    async with pair() as (client, peer):
        calls = [calling(client, number) for number in range(3)]
        numbers = [await next_call(peer) for _ in calls]
        data = b"".join(told(number, number * 10) for number in reversed(numbers))
        for start in range(0, len(data), 5):
            await peer.send(data[start : start + 5])
            await turns(1)
        assert [await call for call in calls] == [Told(number * 10) for number in numbers]


async def test_a_late_call_ends_with_its_deadline_and_its_reply_is_dropped() -> None:
    async with pair() as (client, peer):
        with pytest.raises(DeadlineExceededError):
            await client.call(Ask(1), timeout_seconds=0.01)
        assert client.waiting == 0
        late = await next_call(peer)
        second = calling(client, 2)
        await peer.send(told(late, 1) + told(await next_call(peer), 2))
        assert await second == Told(2)


async def test_a_cancelled_call_is_cancelled_and_the_client_goes_on() -> None:
    async with pair() as (client, peer):
        first = calling(client, 1)
        cancelled = await next_call(peer)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        second = calling(client, 2)
        await peer.send(told(cancelled, 1) + told(await next_call(peer), 2))
        assert await second == Told(2)


async def test_a_reply_in_the_moment_of_the_cancellation_leaks_nothing() -> None:
    async with pair() as (client, peer):
        call = calling(client)
        number = await next_call(peer)
        before = open_descriptors()
        sent = pipe_with(b"")
        peer.send_with_descriptors(encode_frame(FrameKind.REPLY, number, Told(1), 1), [sent])
        os.close(sent)
        # The reply is received in the same turn of the loop in which the cancellation is delivered.
        asyncio.get_running_loop().call_soon(lambda: asyncio.get_running_loop().call_soon(call.cancel))
        with contextlib.suppress(asyncio.CancelledError):
            await call
        await until(lambda: open_descriptors() == before)


async def test_descriptors_of_a_reply_that_comes_too_late_are_closed() -> None:
    async with pair() as (client, peer):
        with pytest.raises(DeadlineExceededError):
            await client.call(Ask(1), timeout_seconds=0.01)
        number = await next_call(peer)
        before = open_descriptors()
        sent = pipe_with(b"")
        peer.send_with_descriptors(encode_frame(FrameKind.REPLY, number, Told(1), 1), [sent])
        os.close(sent)
        call = calling(client)
        await peer.send(told(await next_call(peer)))
        await call
        assert open_descriptors() == before


async def test_a_request_too_large_is_refused_and_nothing_is_sent() -> None:
    async with pair() as (client, peer):
        with pytest.raises(FrameTooLargeError):
            await client.call(Ask(1, bytes(MAX_FRAME_BYTES)), timeout_seconds=1)
        call = calling(client, 2)
        await peer.send(told(await next_call(peer), 2))
        assert await call == Told(2)


# --- errors -------------------------------------------------------------------------------------------------------
async def test_an_error_reply_raises_in_its_call_only() -> None:
    async with pair() as (client, peer):
        first, second = calling(client, 1), calling(client, 2)
        refused, answered = await next_call(peer), await next_call(peer)
        await peer.send(
            encode_frame(FrameKind.ERROR, refused, problem_of(OutOfBlocksError("none", tier="g2"))) + told(answered, 2)
        )
        with pytest.raises(OutOfBlocksError, match="none"):
            await first
        assert await second == Told(2)


async def test_a_reply_that_cannot_be_read_fails_its_call_only() -> None:
    async with pair() as (client, peer):
        first, second = calling(client, 1), calling(client, 2)
        strange, sound = await next_call(peer), await next_call(peer)
        await peer.send(encode_frame(FrameKind.REPLY, strange, {"type": "later"}) + told(sound, 2))
        with pytest.raises(MalformedFrameError):
            await first
        assert await second == Told(2)


async def test_a_vanishing_server_fails_all_calls_and_all_later_ones() -> None:
    async with pair() as (client, peer):
        calls = [calling(client, number) for number in range(3)]
        await next_call(peer)
        peer.socket.close()
        for call in calls:
            with pytest.raises(PeerClosedError):
                await call
        assert client.closed.is_set()
        with pytest.raises(PeerClosedError):
            await client.call(Ask(1), timeout_seconds=1)


async def test_a_server_that_says_why_it_ends_is_believed() -> None:
    async with pair() as (client, peer):
        calls = [calling(client, number) for number in range(2)]
        await next_call(peer)
        await peer.send(encode_frame(FrameKind.ERROR, 0, problem_of(FencedError("newer life"))))
        for call in calls:
            with pytest.raises(FencedError, match="newer life"):
                await call
        assert isinstance(client.ended, FencedError)


@pytest.mark.parametrize(
    "data",
    [
        (MAX_FRAME_BYTES + 1).to_bytes(LENGTH_BYTES, "little"),
        bytes(LENGTH_BYTES),
        encode_frame(FrameKind.REQUEST, 1, Ask(1)),
        encode_frame(FrameKind.PUSH, 0, {"type": "later"}),
        (lambda body: len(body).to_bytes(LENGTH_BYTES, "little") + body)(encode([PROTOCOL_VERSION + 1, 1, 1, None])),
    ],
    ids=["too large", "empty", "request", "unknown push", "version"],
)
async def test_a_server_that_sends_something_else_is_left(data: bytes) -> None:
    async with pair() as (client, peer):
        call = calling(client)
        await next_call(peer)
        await peer.send(data)
        with pytest.raises(PeerClosedError):
            await call
        assert client.ended is not None
        assert await peer.receive() is None


async def test_closing_fails_calls_in_progress() -> None:
    async with pair() as (client, peer):
        call = calling(client)
        await next_call(peer)
        client.close()
        client.close()
        with pytest.raises(PeerClosedError):
            await call


async def test_a_server_that_does_not_read_gets_no_more_than_the_limit() -> None:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with theirs:
        client = Client(ours, Told, None, None, max_queued_bytes=1 << 20)
        async with client:
            calls = [
                asyncio.create_task(client.call(Ask(number, bytes(100_000)), timeout_seconds=0.2))
                for number in range(100)
            ]
            results = await asyncio.gather(*calls, return_exceptions=True)
            assert client.ended is None
    kinds = [type(result) for result in results]
    sent = kinds.count(DeadlineExceededError)
    assert kinds == [DeadlineExceededError] * sent + [UnavailableError] * (100 - sent)
    assert 10 <= sent < 30


# --- pushes -------------------------------------------------------------------------------------------------------
async def test_pushes_come_in_order_and_before_a_later_reply() -> None:
    pushes: list[News] = []
    async with pair(pushes) as (client, peer):
        call = calling(client)
        number = await next_call(peer)
        data = b"".join(encode_frame(FrameKind.PUSH, 0, News(index)) for index in range(100))
        await peer.send(data + told(number))
        await call
        assert [news.number for news in pushes] == list(range(100))


async def test_descriptors_of_a_push_are_closed() -> None:
    pushes: list[News] = []
    async with pair(pushes) as (_, peer):
        before = open_descriptors()
        sent = pipe_with(b"")
        peer.send_with_descriptors(encode_frame(FrameKind.PUSH, 0, News(1), 1), [sent])
        os.close(sent)
        await until(lambda: bool(pushes))
        assert open_descriptors() == before


# --- connecting ---------------------------------------------------------------------------------------------------
async def test_connecting_where_nobody_listens_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError):
        await Client.connect(tmp_path / "none.sock", Told)


async def test_connecting_to_a_dead_socket_is_unavailable(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(os.fspath(tmp_path / "dead.sock"))
    with pytest.raises(UnavailableError):
        await Client.connect(tmp_path / "dead.sock", Told)


async def test_a_server_that_accepts_nobody_costs_the_timeout_only(tmp_path: Path) -> None:
    waiting: list[socket.socket] = []

    async def fill() -> None:
        while True:
            waiting.append(await connect(tmp_path / "full.sock", 0.05))

    listener = listen(tmp_path / "full.sock")
    try:
        with pytest.raises(DeadlineExceededError):
            await fill()
    finally:
        for peer in (*waiting, listener):
            peer.close()


# --- what lies below both sides -----------------------------------------------------------------------------------
async def test_a_descriptor_may_be_closed_as_soon_as_it_was_sent_even_if_it_waits() -> None:
    frames: list[tuple[Frame, list[int]]] = []
    with connection_pair(frames) as (sender, receive):
        before = open_descriptors()
        for number in range(20):
            sender.send(encode_frame(FrameKind.PUSH, number, bytes(100_000)))
        assert sender.queued_bytes > 0
        sent = pipe_with(b"still there")
        sender.send(encode_frame(FrameKind.PUSH, 20, None, 1), [sent])
        os.close(sent)
        sender.send(encode_frame(FrameKind.PUSH, 21, None))
        receive()
        await until(lambda: len(frames) == 22)
        assert [frame.call for frame, _ in frames] == list(range(22))
        (received,) = frames[20][1]
        assert os.read(received, 20) == b"still there"
        os.close(received)
        assert open_descriptors() == before


async def test_a_frame_sent_in_pieces_brings_its_descriptors_once() -> None:
    frames: list[tuple[Frame, list[int]]] = []
    with connection_pair(frames) as (sender, receive):
        before = open_descriptors()
        sent = pipe_with(b"")
        sender.send(encode_frame(FrameKind.PUSH, 0, bytes(2_000_000), 1), [sent])
        os.close(sent)
        assert 0 < sender.queued_bytes < 2_000_000
        sender.send(encode_frame(FrameKind.PUSH, 1, None))
        receive()
        await until(lambda: len(frames) == 2)
        assert [len(descriptors) for _, descriptors in frames] == [1, 0]
        os.close(frames[0][1][0])
        assert open_descriptors() == before


@contextlib.contextmanager
def connection_pair(frames: list[tuple[Frame, list[int]]]) -> Iterator[tuple[Connection, Callable[[], None]]]:
    """A sending connection, and a call that makes the other side read from then on."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.setblocking(False)
    sender = Connection(ours, lambda _, __: None, lambda _: None)
    receiver = Connection(theirs, lambda frame, descriptors: frames.append((frame, descriptors)), lambda _: None)
    receiver.pause()
    yield sender, receiver.resume
    sender.close()
    receiver.close()


async def test_descriptors_that_still_wait_are_closed_with_the_connection() -> None:
    before = open_descriptors()
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    ends: list[object] = []
    sender = Connection(ours, lambda _, __: None, ends.append)
    for _ in range(20):
        sender.send(encode_frame(FrameKind.PUSH, 0, bytes(100_000)))
    sent = pipe_with(b"")
    sender.send(encode_frame(FrameKind.PUSH, 0, None, 1), [sent])
    os.close(sent)
    sender.close()
    sender.close()
    theirs.close()
    assert len(ends) == 1
    assert open_descriptors() == before


async def test_a_process_without_descriptors_hears_that_the_server_is_unavailable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Callers try again after an unavailable server; an error of the system would end them."""

    def exhausted(*arguments: object) -> socket.socket:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(socket, "socket", exhausted)
    with pytest.raises(UnavailableError, match="Too many open files"):
        await connect(tmp_path / "c.sock", 1.0)
