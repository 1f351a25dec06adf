"""One connected unix socket as a stream of frames, for both sides of a channel.

Invariants:
- Frames are delivered in the order received, each exactly once, by a synchronous callback.
- After ``close`` (by either side, by an error, or by a peer that does not read) the callback for the end runs once and
  no further frame is delivered. All descriptors still held are closed.
- Nothing here waits: ``send`` writes at once or queues, up to ``max_queued_bytes``; beyond that it raises.
- Descriptors given to ``send`` stay the caller's; what must be kept for later is duplicated.

Threading: one event loop, no other thread.
"""

import array
import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from blockyard.core.errors import BlockyardError, MalformedFrameError, PeerClosedError, UnavailableError
from blockyard.runtime.rpc.frame_buffer import FrameBuffer, close_descriptors
from blockyard.runtime.rpc.peer_process import end_peer
from blockyard.wire.frame import MAX_DESCRIPTORS, Frame

READ_BYTES: Final = 65_536
MAX_QUEUED_BYTES: Final = 64 * 1024 * 1024
_INT_BYTES: Final = array.array("i").itemsize
_ANCILLARY_BYTES: Final = socket.CMSG_SPACE(MAX_DESCRIPTORS * _INT_BYTES)

FrameCallback = Callable[[Frame, list[int]], None]
EndCallback = Callable[[BlockyardError], None]


class Connection:
    """Frames in, frames out, on one socket."""

    def __init__(
        self,
        peer: socket.socket,
        on_frame: FrameCallback,
        on_end: EndCallback,
        *,
        on_drained: Callable[[], None] | None = None,
        last_words: Callable[[BlockyardError], bytes] | None = None,
        max_queued_bytes: int = MAX_QUEUED_BYTES,
    ) -> None:
        """Take over a connected non-blocking socket and start reading.

        Args:
            peer: the socket; closed by this object.
            on_frame: called per frame; owns the descriptors passed to it. A ``BlockyardError`` it raises ends the
                connection with that error.
            on_end: called once, with the reason, when the connection has ended.
            last_words: frame to send before the connection is closed because of what the peer sent.
            on_drained: called when nothing waits for the peer any more.
            max_queued_bytes: how much may wait for a peer that does not read.
        """
        self._loop = asyncio.get_running_loop()
        self._socket = peer
        self._descriptor = peer.fileno()
        self._on_frame = on_frame
        self._on_end = on_end
        self._on_drained = on_drained
        self._last_words = last_words
        self._max_queued_bytes = max_queued_bytes
        self._received = FrameBuffer()
        self._scratch = memoryview(bytearray(READ_BYTES))
        self._queue: deque[tuple[memoryview, tuple[int, ...]]] = deque()
        self._queued_bytes = 0
        self._paused = False
        self._end: BlockyardError | None = None
        self._loop.add_reader(self._descriptor, self._readable)

    @property
    def ended(self) -> BlockyardError | None:
        """Why the connection ended; None while it lives."""
        return self._end

    @property
    def queued_bytes(self) -> int:
        """Bytes that wait for the peer to read."""
        return self._queued_bytes

    # --- sending ------------------------------------------------------------------------------------------------
    def send(self, data: bytes, descriptors: Sequence[int] = ()) -> None:
        """Send one encoded frame, now or as soon as the peer reads; the frame announces the descriptors.

        Raises:
            PeerClosedError: the connection has ended.
            UnavailableError: too much waits already because the peer does not read; nothing was queued.
        """
        if self._end is not None:
            raise PeerClosedError("the connection has ended", reason=str(self._end.detail))
        if self._queue and self._queued_bytes + len(data) > self._max_queued_bytes:
            raise UnavailableError("the peer does not read", queued_bytes=self._queued_bytes)
        rest = memoryview(data)
        if not self._queue:
            sent = self._write(rest, descriptors)
            if sent == len(rest) or self._end is not None:
                return
            if sent:
                rest, descriptors = rest[sent:], ()
        kept = _duplicates(descriptors)
        if not self._queue:
            self._loop.add_writer(self._descriptor, self._writable)
        self._queue.append((rest, kept))
        self._queued_bytes += len(rest)

    def _write(self, data: memoryview, descriptors: Sequence[int]) -> int:
        ancillary = (
            [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors).tobytes())] if descriptors else []
        )
        try:
            return self._socket.sendmsg([data], ancillary, socket.MSG_NOSIGNAL)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError as error:
            self.close(PeerClosedError("the peer closed the connection", reason=error.strerror or str(error)))
            return 0

    def _writable(self) -> None:
        while self._queue:
            data, descriptors = self._queue[0]
            sent = self._write(data, descriptors)
            if self._end is not None or not sent:
                return
            self._queued_bytes -= sent
            close_descriptors(descriptors)
            if sent == len(data):
                self._queue.popleft()
            else:
                self._queue[0] = (data[sent:], ())
        self._loop.remove_writer(self._descriptor)
        if self._on_drained is not None:
            self._on_drained()

    # --- receiving ----------------------------------------------------------------------------------------------
    def pause(self) -> None:
        """Deliver no further frame and read no further byte until ``resume``."""
        if not self._paused and self._end is None:
            self._paused = True
            self._loop.remove_reader(self._descriptor)

    def resume(self) -> None:
        """Go on after ``pause``; frames that had arrived are delivered before this returns."""
        if self._paused and self._end is None:
            self._paused = False
            self._loop.add_reader(self._descriptor, self._readable)
            self._deliver()

    def _readable(self) -> None:
        try:
            size, ancillary, flags, _ = self._socket.recvmsg_into(
                [self._scratch], _ANCILLARY_BYTES, socket.MSG_CMSG_CLOEXEC
            )
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self.close(PeerClosedError("the peer closed the connection", reason=error.strerror or str(error)))
            return
        self._received.append(self._scratch[:size], _descriptors_of(ancillary))
        if flags & socket.MSG_CTRUNC:
            self.refuse(MalformedFrameError("too many descriptors in one message", limit=MAX_DESCRIPTORS))
        elif size == 0:
            self.close(PeerClosedError("the peer closed the connection"))
        else:
            self._deliver()

    def _deliver(self) -> None:
        try:
            while not self._paused and self._end is None:
                taken = self._received.take()
                if taken is None:
                    return
                self._on_frame(*taken)
        except BlockyardError as error:
            self.refuse(error)

    # --- end ----------------------------------------------------------------------------------------------------
    def end_peer(self) -> None:
        """Kill the process at the other side; raises like ``peer_process.end_peer``."""
        if self._end is not None:
            raise UnavailableError("the connection has ended", reason=str(self._end.detail))
        end_peer(self._socket)

    def refuse(self, error: BlockyardError) -> None:
        """Close, telling the peer why if it reads."""
        # Only if nothing waits: behind other data it could be cut in the middle.
        if self._last_words is not None and self._end is None and not self._queue:
            self._write(memoryview(self._last_words(error)), ())
        self.close(error)

    def close(self, reason: BlockyardError | None = None) -> None:
        """End the connection and report ``reason``; what is queued is dropped. Idempotent."""
        if self._end is not None:
            return
        self._end = reason or PeerClosedError("closed on this side")
        self._loop.remove_reader(self._descriptor)
        self._loop.remove_writer(self._descriptor)
        self._socket.close()
        for _, descriptors in self._queue:
            close_descriptors(descriptors)
        self._queue.clear()
        self._queued_bytes = 0
        self._received.close()
        self._on_end(self._end)


def _duplicates(descriptors: Sequence[int]) -> tuple[int, ...]:
    kept: list[int] = []
    try:
        for descriptor in descriptors:
            kept.append(os.dup(descriptor))
    except OSError as error:
        close_descriptors(kept)
        raise UnavailableError("cannot keep a descriptor", reason=error.strerror or str(error)) from error
    return tuple(kept)


def _descriptors_of(ancillary: Sequence[tuple[int, int, bytes]]) -> list[int]:
    found: list[int] = []
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            values = array.array("i")
            values.frombytes(data[: len(data) - len(data) % _INT_BYTES])
            found.extend(values)
    return found
