"""Server side of a local channel: sessions, requests, replies, pushes.

Invariants:
- Handlers start in the order in which the requests of a session arrived, each as a task of its own, so a slow one
  delays nobody; replies pair by call number and may overtake each other.
- At most ``max_in_flight`` requests of a session are in work; more are not read.
- ``current_trace()`` in a handler is the trace context that its request came with; hooks work for no trace.
- A handler is not cancelled when its peer goes; its reply is dropped. ``session.closed`` tells it.
- **Descriptors** in the list given to a handler are the handler's only if it takes them out of the list (``pop``,
  ``clear``); those left in it are closed when the handler ends. Descriptors in a reply stay the handler's.
- A typed error becomes an error reply, and so does a body that is no request. Bytes that are no frame get a problem and
  end that session. Any other exception of a handler is a bug: it leaves the ``async with`` block and ends the service.

Threading: one event loop, no other thread.
"""

import asyncio
import errno
import functools
import logging
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import TracebackType
from typing import Final, Generic, Self, TypeVar

from blockyard.core.errors import BlockyardError, RequestError, UnavailableError
from blockyard.runtime.current_trace import TraceScope, begin_work
from blockyard.runtime.rpc.connection import MAX_QUEUED_BYTES
from blockyard.runtime.rpc.frame_buffer import close_descriptors
from blockyard.runtime.rpc.session import RpcSession
from blockyard.runtime.rpc.unix_socket import listen
from blockyard.wire.codec import BoundedDecoder
from blockyard.wire.frame import Frame
from blockyard.wire.trace_parent import NO_TRACE, TraceParent

RequestT = TypeVar("RequestT")
ReplyT = TypeVar("ReplyT")

Handler = Callable[[RpcSession, RequestT, list[int]], Awaitable[ReplyT | tuple[ReplyT, list[int]]]]
SessionHook = Callable[[RpcSession], None]

_ACCEPT_PAUSE_SECONDS: Final = 0.2
_EXHAUSTED: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_log: Final = logging.getLogger(__name__)


class RpcServer(Generic[RequestT, ReplyT]):
    """Serves one unix socket; use as ``async with RpcServer(...)``, whose body lasts as long as the service."""

    def __init__(
        self,
        path: Path,
        request_type: object,
        handler: Handler[RequestT, ReplyT],
        *,
        on_connect: SessionHook | None = None,
        on_disconnect: SessionHook | None = None,
        max_in_flight: int = 64,
        max_sessions: int = 256,
        max_queued_bytes: int = MAX_QUEUED_BYTES,
    ) -> None:
        """Prepare; nothing is bound before the ``async with``.

        Args:
            path: socket to serve; replaced if stale, removed at the end.
            request_type: struct type or union of tagged struct types.
            handler: coroutine function; the module says what it may do with descriptors and errors.
            on_connect: called before the first request of a session.
            on_disconnect: called once when a session has ended; requests of it may still be in work.
            max_in_flight: requests of one session in work at a time.
            max_sessions: connected peers; further ones are turned away.
            max_queued_bytes: how much a peer may leave unread before it is disconnected.
        """
        self._path = path
        self._decoder: BoundedDecoder[RequestT] = BoundedDecoder(request_type)
        self._handler = handler
        self._on_connect = on_connect
        self._on_disconnect = on_disconnect
        self._max_in_flight = max_in_flight
        self._max_sessions = max_sessions
        self._max_queued_bytes = max_queued_bytes
        self._sessions: dict[int, RpcSession] = {}
        self._accepted = 0
        self._listener: socket.socket | None = None
        self._accept_later: asyncio.TimerHandle | None = None
        self._group = asyncio.TaskGroup()
        self._handlers: set[asyncio.Task[None]] = set()

    @property
    def sessions(self) -> tuple[RpcSession, ...]:
        """Connected peers, oldest first."""
        return tuple(self._sessions.values())

    async def __aenter__(self) -> Self:
        """Bind and accept.

        Raises:
            StartupError: the socket cannot be bound.
        """
        self._listener = listen(self._path)
        await self._group.__aenter__()
        asyncio.get_running_loop().add_reader(self._listener.fileno(), self._accept)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop accepting, end all sessions, cancel the handlers still in work and wait for them."""
        if self._accept_later is not None:
            self._accept_later.cancel()
        if self._listener is not None:
            asyncio.get_running_loop().remove_reader(self._listener.fileno())
            self._listener.close()
            self._listener = None
            self._path.unlink(missing_ok=True)
        for session in self.sessions:
            session.close()
        for task in self._handlers:
            task.cancel()
        await self._group.__aexit__(kind, error, trace)

    # --- sessions -----------------------------------------------------------------------------------------------
    def _accept(self) -> None:
        while self._listener is not None:
            try:
                peer, _ = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _EXHAUSTED:
                    raise
                _log.warning("cannot accept a connection: %s", error.strerror)
                self._pause_accept(self._listener)
                return
            peer.setblocking(False)
            self._start_session(peer)

    def _pause_accept(self, listener: socket.socket) -> None:
        # The peer that waits keeps the listener readable: without a pause the loop would spin.
        loop = asyncio.get_running_loop()
        loop.remove_reader(listener.fileno())
        self._accept_later = loop.call_later(_ACCEPT_PAUSE_SECONDS, loop.add_reader, listener.fileno(), self._accept)

    def _start_session(self, peer: socket.socket) -> None:
        self._accepted += 1
        session = RpcSession(
            peer,
            self._accepted,
            self._requested,
            self._ended,
            max_in_flight=self._max_in_flight,
            max_queued_bytes=self._max_queued_bytes,
        )
        if len(self._sessions) >= self._max_sessions:
            session.close(UnavailableError("too many connections", limit=self._max_sessions))
            return
        self._sessions[session.number] = session
        if self._on_connect is not None:
            self._on_connect(session)

    def _ended(self, session: RpcSession) -> None:
        if self._sessions.pop(session.number, None) is not None and self._on_disconnect is not None:
            # The end is noticed in the context of whoever sent last, or had reading resumed: it is no work of theirs.
            with TraceScope(NO_TRACE):
                self._on_disconnect(session)

    # --- requests -----------------------------------------------------------------------------------------------
    def _requested(self, session: RpcSession, frame: Frame, descriptors: list[int]) -> None:
        try:
            request = self._decoder.decode(frame.body)
        except RequestError as error:
            close_descriptors(descriptors)
            session.refuse(frame.call, error)
            return
        session.started()
        task = self._group.create_task(self._handle(session, frame.call, request, descriptors, frame.trace_parent))
        self._handlers.add(task)
        # Not at the end of the task: one that is cancelled before its first step never gets there.
        task.add_done_callback(functools.partial(self._handled, session, descriptors))

    async def _handle(
        self, session: RpcSession, call: int, request: RequestT, descriptors: list[int], trace: TraceParent
    ) -> None:
        # In any case: the task inherits the context of whoever had this frame read, which may be another request.
        begin_work(trace)
        try:
            result = await self._handler(session, request, descriptors)
        except BlockyardError as error:
            session.refuse(call, error)
        else:
            reply, attached = result if isinstance(result, tuple) else (result, [])
            session.answer(call, reply, attached)

    def _handled(self, session: RpcSession, descriptors: list[int], task: asyncio.Task[None]) -> None:
        self._handlers.discard(task)
        close_descriptors(descriptors)
        session.finished()
