"""One connected peer of a server: what handlers and hooks see of it, and how much it may ask at a time.

Invariants: pushes arrive in the order of the ``push`` calls; a session that has ended stays ended. While too many of
its requests are in work, or too much is left unread by the peer, nothing more is read from it: the peer is held back
by its own socket buffer.
Threading: one event loop, no other thread.
"""

import asyncio
import contextlib
import socket
from collections.abc import Callable, Sequence
from typing import Final

from blockyard.core.errors import (
    BlockyardError,
    FrameTooLargeError,
    MalformedFrameError,
    PeerClosedError,
    UnavailableError,
    UnsupportedVersionError,
)
from blockyard.runtime.rpc.connection import Connection
from blockyard.runtime.rpc.frame_buffer import close_descriptors
from blockyard.runtime.rpc.unix_socket import peer_pid
from blockyard.wire.codec import PROTOCOL_VERSION
from blockyard.wire.frame import Frame, FrameKind, encode_frame, problem_of

UNREAD_BYTES: Final = 1 << 20
"""Unread bytes above which a peer gets no further request read."""


class RpcSession:
    """One connected peer. Compared by identity."""

    def __init__(
        self,
        peer: socket.socket,
        number: int,
        on_request: Callable[["RpcSession", Frame, list[int]], None],
        on_end: Callable[["RpcSession"], None],
        *,
        max_in_flight: int,
        max_queued_bytes: int,
    ) -> None:
        """Made by the server for each peer; ``number`` is unique within it."""
        self.number = number
        self.peer_pid = peer_pid(peer)
        self.closed = asyncio.Event()
        self._on_request = on_request
        self._on_end = on_end
        self._in_flight = 0
        self._max_in_flight = max_in_flight
        self._connection = Connection(
            peer,
            self._received,
            self._ended,
            on_drained=self._regulate,
            last_words=lambda error: encode_frame(FrameKind.ERROR, 0, problem_of(error)),
            max_queued_bytes=max_queued_bytes,
        )

    @property
    def in_flight(self) -> int:
        """Requests of this peer that are in work."""
        return self._in_flight

    def push(self, message: object) -> None:
        """Send a message that no request asked for; pushes arrive in the order of these calls.

        A peer that leaves too much unread is disconnected: it would miss pushes and not know.

        Raises:
            PeerClosedError: the session has ended, or ends now for this reason.
            FrameTooLargeError: the message does not fit into one frame.
        """
        self._send(encode_frame(FrameKind.PUSH, 0, message))

    def close(self, reason: BlockyardError | None = None) -> None:
        """End the session, telling the peer ``reason`` if it reads. Idempotent."""
        if reason is None:
            self._connection.close()
        else:
            self._connection.refuse(reason)

    # --- for the server -----------------------------------------------------------------------------------------
    def started(self) -> None:
        """Count a request that is in work from now on."""
        self._in_flight += 1
        self._regulate()

    def finished(self) -> None:
        """Count a request that is no longer in work."""
        self._in_flight -= 1
        self._regulate()

    def answer(self, call: int, reply: object, descriptors: Sequence[int] = ()) -> None:
        """Send the reply of a call; dropped where the peer is gone."""
        try:
            data = encode_frame(FrameKind.REPLY, call, reply, len(descriptors))
        except FrameTooLargeError as error:
            self.refuse(call, error)
            return
        with contextlib.suppress(PeerClosedError):
            self._send(data, descriptors)
            self._regulate()

    def refuse(self, call: int, error: BlockyardError) -> None:
        """Send a typed error as the reply of a call; dropped where the peer is gone."""
        with contextlib.suppress(PeerClosedError):
            self._send(encode_frame(FrameKind.ERROR, call, problem_of(error)))
            self._regulate()

    # --- inside -------------------------------------------------------------------------------------------------
    def _send(self, data: bytes, descriptors: Sequence[int] = ()) -> None:
        try:
            self._connection.send(data, descriptors)
        except PeerClosedError:
            raise
        except UnavailableError as error:
            self._connection.close(error)
            raise PeerClosedError("disconnected: the peer does not read") from error

    def _received(self, frame: Frame, descriptors: list[int]) -> None:
        if frame.version != PROTOCOL_VERSION:
            problem: BlockyardError = UnsupportedVersionError(theirs=frame.version, ours=PROTOCOL_VERSION)
        elif frame.kind is not FrameKind.REQUEST or frame.call == 0:
            problem = MalformedFrameError("only numbered requests are accepted here", kind=frame.kind.name)
        else:
            self._on_request(self, frame, descriptors)
            return
        close_descriptors(descriptors)
        raise problem

    def _regulate(self) -> None:
        if self._in_flight >= self._max_in_flight or self._connection.queued_bytes > UNREAD_BYTES:
            self._connection.pause()
        else:
            self._connection.resume()

    def _ended(self, _: BlockyardError) -> None:
        self.closed.set()
        self._on_end(self)
