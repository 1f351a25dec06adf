"""From received bytes and descriptors to frames: the receiving half of a channel, without a socket.

Invariants: a frame longer than the limit is refused when its length is known, before its bytes are kept; a descriptor
is owned by this buffer from ``append`` until a frame takes it or ``close`` closes it; frames come out in the order of
their bytes. A stream that ends a frame and still holds descriptors that no frame announced is malformed.
Threading: one owner.
"""

import os
from collections import deque
from collections.abc import Iterable

from blockyard.core.errors import FrameTooLargeError, MalformedFrameError
from blockyard.wire.codec import MAX_FRAME_BYTES
from blockyard.wire.frame import LENGTH_BYTES, MAX_DESCRIPTORS, Frame, decode_frame


def close_descriptors(descriptors: Iterable[int]) -> None:
    """Close received descriptors that nobody took."""
    for descriptor in descriptors:
        os.close(descriptor)


class FrameBuffer:
    """Bytes and descriptors that arrived and are not yet taken as frames."""

    def __init__(self, max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
        """Start empty; refuse frames longer than ``max_frame_bytes``."""
        self._bytes = bytearray()
        self._descriptors: deque[int] = deque()
        self._max_frame_bytes = max_frame_bytes

    def append(self, data: bytes | bytearray | memoryview, descriptors: Iterable[int] = ()) -> None:
        """Take over what one read of the socket brought."""
        self._bytes += data
        self._descriptors.extend(descriptors)

    def take(self) -> tuple[Frame, list[int]] | None:
        """Next complete frame with its descriptors (now the caller's), or None where more bytes are needed.

        Raises:
            FrameTooLargeError: the next frame announces more bytes than allowed.
            MalformedFrameError: the next bytes are no frame, or descriptors and frames do not match.
        """
        held = len(self._bytes)
        if held < LENGTH_BYTES:
            if not held and self._descriptors:
                raise MalformedFrameError("descriptors arrived without a frame", descriptors=len(self._descriptors))
            return None
        size = int.from_bytes(self._bytes[:LENGTH_BYTES], "little")
        if size > self._max_frame_bytes:
            raise FrameTooLargeError("frame refused before reading it", bytes=size, limit=self._max_frame_bytes)
        end = LENGTH_BYTES + size
        if held < end:
            if len(self._descriptors) > MAX_DESCRIPTORS:
                raise MalformedFrameError("too many descriptors", descriptors=len(self._descriptors))
            return None
        frame = decode_frame(bytes(self._bytes[LENGTH_BYTES:end]))
        if frame.descriptors > len(self._descriptors):
            raise MalformedFrameError(
                "a frame announces descriptors that did not arrive",
                announced=frame.descriptors,
                arrived=len(self._descriptors),
            )
        del self._bytes[:end]
        return frame, [self._descriptors.popleft() for _ in range(frame.descriptors)]

    def close(self) -> None:
        """Forget all bytes and close all descriptors that no frame took."""
        self._bytes.clear()
        close_descriptors(self._descriptors)
        self._descriptors.clear()
