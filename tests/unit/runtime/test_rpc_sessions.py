"""Sessions of a server: descriptors, life, pushes, and how much a peer may ask and leave unread."""

import asyncio
import functools
import os
from pathlib import Path

import pytest

from blockyard.core.errors import (
    MalformedFrameError,
    OutOfBlocksError,
    PeerClosedError,
    UnavailableError,
)
from blockyard.runtime.rpc.client import RpcClient
from blockyard.runtime.rpc.session import RpcSession
from blockyard.testing.rpc_peer import (
    WAIT_SECONDS,
    Answer,
    Ask,
    News,
    Request,
    Server,
    Stop,
    Told,
    ask,
    client_of,
    echo,
    open_descriptors,
    pipe_with,
    raw_peer,
    turns,
    until,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "c.sock"


# --- descriptors --------------------------------------------------------------------------------------------------
async def test_descriptors_travel_both_ways(path: Path) -> None:
    kept: list[int] = []

    async def swap(_: RpcSession, __: Request, descriptors: list[int]) -> Answer:
        kept.extend(descriptors)
        descriptors.clear()
        return Told(len(kept)), [kept[1], kept[0]]

    async with Server(path, Request, swap), client_of(path) as client:
        sent = [pipe_with(b"first"), pipe_with(b"second")]
        reply, received = await client.call_with_fds(Ask(1), timeout_seconds=1, fds=sent)
        assert reply == Told(2)
        assert [os.read(descriptor, 10) for descriptor in received] == [b"second", b"first"]
        assert not any(os.get_inheritable(descriptor) for descriptor in received)
        for descriptor in (*sent, *received, *kept):
            os.close(descriptor)


async def test_descriptors_that_nobody_takes_are_closed(path: Path) -> None:
    async def with_one(_: RpcSession, request: Request, descriptors: list[int]) -> Answer:
        assert len(descriptors) == 1
        if isinstance(request, Stop):
            raise OutOfBlocksError
        return Told(1), descriptors

    async with Server(path, Request, with_one), client_of(path) as client:
        sent = pipe_with(b"")
        await client.call(Ask(0), timeout_seconds=1, fds=[sent])
        before = open_descriptors()
        await client.call(Ask(1), timeout_seconds=1, fds=[sent])
        with pytest.raises(OutOfBlocksError):
            await client.call(Stop(), timeout_seconds=1, fds=[sent])
        with pytest.raises(MalformedFrameError):
            await client.call({"type": "unknown"}, timeout_seconds=1, fds=[sent])
        assert open_descriptors() == before
        os.close(sent)


async def test_more_descriptors_than_a_frame_may_have_end_the_session_without_a_leak(path: Path) -> None:
    async with Server(path, Request, echo), raw_peer(path) as peer:
        await peer.send(ask(1))
        await peer.receive()
        before = open_descriptors()
        sent = [pipe_with(b"") for _ in range(40)]
        peer.send_with_descriptors(ask(2), sent)
        assert (await peer.problem()).code == MalformedFrameError.code
        for descriptor in sent:
            os.close(descriptor)
        assert len(open_descriptors()) < len(before)


async def test_descriptors_stay_with_their_frame_among_many(path: Path) -> None:
    async def read_all(_: RpcSession, request: Request, descriptors: list[int]) -> Told:
        return Told(len(descriptors), b"".join(os.read(descriptor, 10) for descriptor in descriptors))

    async with Server(path, Request, read_all), client_of(path) as client:
        sent = [[pipe_with(b"%d;" % number) for _ in range(number % 3)] for number in range(30)]
        replies = await asyncio.gather(
            *(client.call(Ask(number), timeout_seconds=WAIT_SECONDS, fds=fds) for number, fds in enumerate(sent))
        )
        assert [reply.data for reply in replies] == [b"%d;" % number * (number % 3) for number in range(30)]
        for descriptor in (descriptor for fds in sent for descriptor in fds):
            os.close(descriptor)


# --- sessions -----------------------------------------------------------------------------------------------------
async def test_hooks_frame_the_life_of_a_session(path: Path) -> None:
    seen: list[str] = []

    async def note(session: RpcSession, _: Request, __: list[int]) -> Told:
        seen.append("request")
        return Told(session.peer_pid)

    server: Server = Server(
        path, Request, note, on_connect=lambda _: seen.append("in"), on_disconnect=lambda _: seen.append("out")
    )
    async with server:
        async with client_of(path) as client:
            assert await client.call(Ask(1), timeout_seconds=1) == Told(os.getpid())
            (session,) = server.sessions
        async with asyncio.timeout(WAIT_SECONDS):
            await session.closed.wait()
        assert server.sessions == ()
        assert seen == ["in", "request", "out"]
        with pytest.raises(PeerClosedError):
            session.push(News(1))


async def test_a_handler_goes_on_when_its_peer_vanishes(path: Path) -> None:
    gate, ended = asyncio.Event(), asyncio.Event()

    async def slow(session: RpcSession, _: Request, __: list[int]) -> Told:
        await gate.wait()
        assert session.closed.is_set()
        ended.set()
        return Told(1)

    async with Server(path, Request, slow) as server:
        async with raw_peer(path) as peer:
            await peer.send(ask(1))
            await until(lambda: any(session.in_flight for session in server.sessions))
        await until(lambda: not server.sessions)
        gate.set()
        async with asyncio.timeout(WAIT_SECONDS):
            await ended.wait()


@pytest.mark.parametrize("has_begun", [True, False], ids=["handler waits", "handler not begun"])
async def test_the_end_of_the_server_ends_sessions_and_handlers(path: Path, has_begun: bool) -> None:
    begun: list[Request] = []
    cancelled = asyncio.Event()

    async def endless(_: RpcSession, request: Request, __: list[int]) -> Told:
        begun.append(request)
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        return Told(1)

    before = open_descriptors()
    sent = pipe_with(b"")
    async with Server(path, Request, endless) as server:
        client: RpcClient[Told, News] = await RpcClient.connect(path, Told)
        call = asyncio.create_task(client.call(Ask(1), timeout_seconds=WAIT_SECONDS, fds=[sent]))
        await until(lambda: any(session.in_flight for session in server.sessions))
        if has_begun:
            await until(lambda: bool(begun))
    assert bool(begun) == cancelled.is_set() == has_begun
    with pytest.raises(PeerClosedError):
        await call
    os.close(sent)
    await turns(1)
    assert open_descriptors() == before


async def test_a_session_may_be_ended_with_a_reason(path: Path) -> None:
    async with Server(path, Request, echo) as server, client_of(path) as client:
        await client.call(Ask(1), timeout_seconds=1)
        server.sessions[0].close(OutOfBlocksError("go away"))
        async with asyncio.timeout(WAIT_SECONDS):
            await client.closed.wait()
        assert isinstance(client.ended, OutOfBlocksError)


async def test_more_peers_than_allowed_are_turned_away_with_a_reason(path: Path) -> None:
    async with Server(path, Request, echo, max_sessions=1), client_of(path) as first:
        await first.call(Ask(1), timeout_seconds=1)
        async with raw_peer(path) as second:
            assert (await second.problem()).code == UnavailableError.code
            assert await second.receive() is None
        assert await first.call(Ask(2), timeout_seconds=1) == Told(2)


# --- pushes and back-pressure -------------------------------------------------------------------------------------
async def test_pushes_arrive_in_order_and_before_the_reply_that_follows_them(path: Path) -> None:
    async def push(session: RpcSession, _: Request, __: list[int]) -> Told:
        for number in range(500):
            session.push(News(number, bytes(1_000)))
        return Told(len(pushes))

    pushes: list[News] = []
    async with Server(path, Request, push), client_of(path, pushes) as client:
        await client.call(Ask(1), timeout_seconds=WAIT_SECONDS)
        assert [news.number for news in pushes] == list(range(500))


async def test_no_more_requests_are_read_than_may_be_in_work(path: Path) -> None:
    started: list[int] = []
    gate = asyncio.Semaphore(0)

    async def gated(_: RpcSession, request: Request, __: list[int]) -> Told:
        assert isinstance(request, Ask)
        started.append(request.number)
        await gate.acquire()
        return Told(request.number)

    def begun(count: int) -> bool:
        return len(started) == count

    async with Server(path, Request, gated, max_in_flight=2), raw_peer(path) as peer:
        await peer.send(b"".join(ask(number, number) for number in range(1, 6)))
        await until(lambda: len(started) == 2)
        await turns(50)
        assert started == [1, 2]
        for expected in range(3, 6):
            gate.release()
            await until(functools.partial(begun, expected))
        for _ in range(2):
            gate.release()
        assert [frame.call for _ in range(5) if (frame := await peer.receive())] == [1, 2, 3, 4, 5]


async def test_a_peer_that_does_not_read_is_held_back_then_served(path: Path) -> None:
    answered: list[int] = []

    async def large(_: RpcSession, request: Request, __: list[int]) -> Told:
        assert isinstance(request, Ask)
        answered.append(request.number)
        return Told(request.number, bytes(1 << 20))

    async with Server(path, Request, large, max_in_flight=1), raw_peer(path) as peer:
        await peer.send(b"".join(ask(number, number) for number in range(1, 31)))
        await until(lambda: bool(answered))
        await turns(200)
        held_at = len(answered)
        assert held_at < 10
        await turns(200)
        assert len(answered) == held_at
        received = [frame.call for _ in range(30) if (frame := await peer.receive())]
        assert received == list(range(1, 31))


def push_much(session: RpcSession) -> None:
    for number in range(1_000):
        session.push(News(number, bytes(100_000)))


async def test_a_peer_that_leaves_pushes_unread_is_disconnected(path: Path) -> None:
    sessions: list[RpcSession] = []
    server: Server = Server(path, Request, echo, on_connect=sessions.append, max_queued_bytes=1 << 20)
    async with server, raw_peer(path):
        await until(lambda: bool(sessions))
        with pytest.raises(PeerClosedError, match="does not read"):
            push_much(sessions[0])
        assert sessions[0].closed.is_set()
