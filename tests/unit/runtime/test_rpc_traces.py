"""Trace contexts on a local channel: each handler works for the trace of its own request, and for no other."""

import asyncio
from pathlib import Path

import pytest

from blockyard.runtime.current_trace import TraceScope, current_trace
from blockyard.runtime.rpc.session import UNREAD_BYTES, RpcSession
from blockyard.testing.rpc_peer import WAIT_SECONDS, Ask, Request, Server, Told, ask, client_of, raw_peer
from blockyard.wire.codec import PROTOCOL_VERSION, encode
from blockyard.wire.frame import LENGTH_BYTES, FrameKind, encode_frame
from blockyard.wire.trace_parent import NO_TRACE, TraceParent, new_trace


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "c.sock"


class Noted:
    """A handler that notes for which trace it works, also after it waited."""

    def __init__(self) -> None:
        self.seen: dict[int, TraceParent] = {}
        self.reply_bytes = 0

    async def __call__(self, session: RpcSession, request: Request, fds: list[int]) -> Told:
        assert isinstance(request, Ask)
        self.seen[request.number] = current_trace()
        await asyncio.sleep(0)
        assert current_trace() == self.seen[request.number]
        return Told(request.number, bytes(self.reply_bytes))


async def test_a_handler_works_for_the_trace_of_its_request(path: Path) -> None:
    noted, trace = Noted(), new_trace()
    async with Server(path, Request, noted), client_of(path) as client:
        await client.call(Ask(1), timeout_seconds=WAIT_SECONDS, trace=trace)
        await client.call(Ask(2), timeout_seconds=WAIT_SECONDS)
        await client.call_with_fds(Ask(3), timeout_seconds=WAIT_SECONDS, trace=trace)
    assert noted.seen == {1: trace, 2: NO_TRACE, 3: trace}
    assert current_trace() == NO_TRACE


async def test_requests_read_after_a_reply_was_drained_do_not_inherit_its_trace(path: Path) -> None:
    """A reply that the peer reads late is written, and reading resumed, in the context of its handler."""
    noted = Noted()
    async with Server(path, Request, noted), client_of(path) as client:
        noted.reply_bytes = 4 * UNREAD_BYTES
        await client.call(Ask(1), timeout_seconds=WAIT_SECONDS, trace=new_trace())
        noted.reply_bytes = 0
        await client.call(Ask(2), timeout_seconds=WAIT_SECONDS)
    assert noted.seen[1] != NO_TRACE
    assert noted.seen[2] == NO_TRACE


class Ended:
    """A hook that notes for which trace it is told of the end of a session."""

    def __init__(self) -> None:
        self.seen: list[TraceParent] = []
        self.told = asyncio.Event()

    def __call__(self, session: RpcSession) -> None:
        self.seen.append(current_trace())
        self.told.set()


async def test_an_end_read_after_a_reply_was_drained_is_no_work_for_its_trace(path: Path) -> None:
    noted, ended = Noted(), Ended()
    noted.reply_bytes = 4 * UNREAD_BYTES
    async with Server(path, Request, noted, on_disconnect=ended):
        async with client_of(path) as client:
            await client.call(Ask(1), timeout_seconds=WAIT_SECONDS, trace=new_trace())
        await asyncio.wait_for(ended.told.wait(), WAIT_SECONDS)
    assert ended.seen == [NO_TRACE]


async def test_the_end_of_a_session_whose_peer_does_not_read_is_no_work_for_who_sends(path: Path) -> None:
    async def flood(session: RpcSession, request: Request, fds: list[int]) -> Told:
        while not session.closed.is_set():
            session.push(Told(1, bytes(UNREAD_BYTES)))
        return Told(1)

    ended = Ended()
    async with Server(path, Request, flood, on_disconnect=ended, max_queued_bytes=4 * UNREAD_BYTES):
        async with raw_peer(path) as peer:
            await peer.send(encode_frame(FrameKind.REQUEST, 1, Ask(1), trace=new_trace()))
            await asyncio.wait_for(ended.told.wait(), WAIT_SECONDS)
    assert ended.seen == [NO_TRACE]


async def test_a_frame_with_a_broken_trace_is_answered_as_one_without(path: Path) -> None:
    noted = Noted()
    body = encode([PROTOCOL_VERSION, 0, 1, {"type": "ask", "number": 5}, 0, {"not": "a trace"}])
    async with Server(path, Request, noted), raw_peer(path) as peer:
        await peer.send(len(body).to_bytes(LENGTH_BYTES, "little") + body + ask(2, 6))
        assert [(await peer.receive()) is not None for _ in range(2)] == [True, True]
    assert noted.seen == {5: NO_TRACE, 6: NO_TRACE}


def test_a_scope_ends_where_it_began() -> None:
    outer, inner = new_trace(), new_trace()
    with TraceScope(outer):
        with TraceScope(inner):
            assert current_trace() == inner
        assert current_trace() == outer
    assert current_trace() == NO_TRACE
