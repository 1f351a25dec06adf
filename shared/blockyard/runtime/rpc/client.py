"""Client side of a local channel: calls with deadlines, and pushes.

Invariants: every call ends, with its reply, a typed error of the peer, its deadline, or the end of the connection;
a reply that comes after its call was given up is dropped and its descriptors are closed; pushes are handed over in
the order received, before any reply that arrived after them. A client that has ended stays ended: connect a new one.
Threading: one event loop, no other thread.
"""

import asyncio
import copy
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Generic, Self, TypeVar

from blockyard.core.errors import (
    BlockyardError,
    DeadlineExceededError,
    MalformedFrameError,
    PeerClosedError,
    UnsupportedVersionError,
)
from blockyard.runtime.rpc.connection import MAX_QUEUED_BYTES, Connection
from blockyard.runtime.rpc.frame_buffer import close_descriptors
from blockyard.runtime.rpc.unix_socket import connect, peer_pid
from blockyard.wire.codec import PROTOCOL_VERSION, BoundedDecoder
from blockyard.wire.frame import Frame, FrameKind, Problem, encode_frame, error_of
from blockyard.wire.trace_parent import NO_TRACE, TraceParent

ReplyT = TypeVar("ReplyT")
PushT = TypeVar("PushT")

Answer = tuple[ReplyT, list[int]]


class RpcClient(Generic[ReplyT, PushT]):
    """A connection to a server; made by ``connect``."""

    def __init__(
        self,
        peer: socket.socket,
        reply_type: object,
        push_type: object | None,
        on_push: Callable[[PushT], None] | None,
        *,
        max_queued_bytes: int = MAX_QUEUED_BYTES,
    ) -> None:
        """Take over a connected non-blocking socket; use ``connect`` instead."""
        self.peer_pid = peer_pid(peer)
        self.closed = asyncio.Event()
        self._replies: BoundedDecoder[ReplyT] = BoundedDecoder(reply_type)
        self._problems: BoundedDecoder[Problem] = BoundedDecoder(Problem)
        self._pushes: BoundedDecoder[PushT] | None = None if push_type is None else BoundedDecoder(push_type)
        self._on_push = on_push
        self._calls: dict[int, asyncio.Future[Answer[ReplyT]]] = {}
        self._last_call = 0
        self.frames_received = 0
        """Frames that came so far: whether the server said anything at all since some moment."""
        self._told: BlockyardError | None = None
        self._connection = Connection(peer, self._received, self._ended, max_queued_bytes=max_queued_bytes)

    @classmethod
    async def connect(
        cls,
        path: Path,
        reply_type: object,
        push_type: object | None = None,
        on_push: Callable[[PushT], None] | None = None,
        *,
        timeout_seconds: float = 2.0,
    ) -> Self:
        """Connect to the server at ``path``.

        Args:
            path: socket of the server.
            reply_type: struct type or union of tagged struct types.
            push_type: likewise, for pushes; None where the server sends none.
            on_push: called per push, in order; must neither block nor raise.
            timeout_seconds: how long to wait for a server whose backlog is full.

        Raises:
            UnavailableError: nobody listens there.
            DeadlineExceededError: the server did not accept in time.
            ConfigurationError: the path is longer than a socket's may be.
        """
        return cls(await connect(path, timeout_seconds), reply_type, push_type, on_push)

    @property
    def ended(self) -> BlockyardError | None:
        """Why the connection ended; None while it lives."""
        return self._connection.ended

    @property
    def waiting(self) -> int:
        """Calls that have not ended yet."""
        return len(self._calls)

    @property
    def unsent_bytes(self) -> int:
        """Bytes that wait here because the server does not read."""
        return self._connection.queued_bytes

    async def call(
        self,
        request: object,
        *,
        timeout_seconds: float,
        fds: Sequence[int] = (),
        trace: TraceParent = NO_TRACE,
    ) -> ReplyT:
        """Send a request and wait for its reply; descriptors that come with the reply are closed.

        Args:
            request: message of the server's request type.
            timeout_seconds: after which the call is given up; the server may still carry it out.
            fds: descriptors that travel along; they stay the caller's.
            trace: context of the trace that the call belongs to.

        Raises:
            BlockyardError: the typed error of the server.
            DeadlineExceededError: no reply in time.
            PeerClosedError: the connection ended first.
            UnavailableError: the server leaves too much unread; nothing was sent.
            FrameTooLargeError: the request does not fit into one frame; nothing was sent.
        """
        reply, received = await self.call_with_fds(request, timeout_seconds=timeout_seconds, fds=fds, trace=trace)
        close_descriptors(received)
        return reply

    async def call_with_fds(
        self,
        request: object,
        *,
        timeout_seconds: float,
        fds: Sequence[int] = (),
        trace: TraceParent = NO_TRACE,
    ) -> tuple[ReplyT, list[int]]:
        """As ``call``; the descriptors that came with the reply become the caller's."""
        if self._connection.ended is not None:
            raise PeerClosedError("the connection has ended", reason=self._connection.ended.detail)
        self._last_call += 1
        call = self._last_call
        data = encode_frame(FrameKind.REQUEST, call, request, len(fds), trace)
        waiting: asyncio.Future[Answer[ReplyT]] = asyncio.get_running_loop().create_future()
        self._calls[call] = waiting
        answer: Answer[ReplyT] | None = None
        try:
            self._connection.send(data, fds)
            async with asyncio.timeout(timeout_seconds):
                answer = await waiting
        except TimeoutError:
            raise DeadlineExceededError("no reply in time", timeout_seconds=timeout_seconds) from None
        finally:
            self._calls.pop(call, None)
            if answer is None:
                _give_up(waiting)
        return answer

    def close(self) -> None:
        """End the connection; calls in progress fail with ``PeerClosedError``. Idempotent."""
        self._connection.close()

    def end_peer(self) -> None:
        """Kill the server's process, whatever it does; its death ends the connection.

        Raises:
            UnavailableError: it is gone, or this process has no descriptor left for now.
            UnsupportedOperationError: it cannot be seen from here, is no process of this user, or is this one.
        """
        self._connection.end_peer()

    async def __aenter__(self) -> Self:
        """Use as a context; closes at the end."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()

    # --- inside -------------------------------------------------------------------------------------------------
    def _received(self, frame: Frame, descriptors: list[int]) -> None:
        self.frames_received += 1
        try:
            if frame.version != PROTOCOL_VERSION:
                raise UnsupportedVersionError(theirs=frame.version, ours=PROTOCOL_VERSION)
            if frame.kind is FrameKind.REPLY:
                self._replied(frame, descriptors)
            elif frame.kind is FrameKind.ERROR:
                self._refused(frame)
            elif frame.kind is FrameKind.PUSH and self._pushes is not None:
                push = self._pushes.decode(frame.body)
                if self._on_push is not None:
                    self._on_push(push)
            else:
                raise MalformedFrameError("a server does not send this", kind=frame.kind.name)
        finally:
            close_descriptors(descriptors)

    def _replied(self, frame: Frame, descriptors: list[int]) -> None:
        waiting = self._calls.pop(frame.call, None)
        if waiting is None or waiting.done():
            return
        try:
            reply = self._replies.decode(frame.body)
        except MalformedFrameError as error:
            # The frame is sound, so the stream is: only this call fails.
            waiting.set_exception(error)
        else:
            waiting.set_result((reply, descriptors[:]))
            descriptors.clear()

    def _refused(self, frame: Frame) -> None:
        error = error_of(self._problems.decode(frame.body))
        if frame.call == 0:
            self._told = error
            raise error
        waiting = self._calls.pop(frame.call, None)
        if waiting is not None and not waiting.done():
            waiting.set_exception(error)

    def _ended(self, reason: BlockyardError) -> None:
        calls, self._calls = self._calls, {}
        typed = reason is self._told or isinstance(reason, PeerClosedError)
        for waiting in calls.values():
            if not waiting.done():
                # One error object per call: raising adds to its traceback.
                waiting.set_exception(copy.copy(reason) if typed else PeerClosedError(reason=reason.detail))
        self.closed.set()


def _give_up(waiting: "asyncio.Future[Answer[ReplyT]]") -> None:
    """Close what a reply brought that came in the very moment in which its call ended otherwise."""
    if waiting.done() and not waiting.cancelled() and waiting.exception() is None:
        close_descriptors(waiting.result()[1])
