"""Frame of the local channels: what stands around a message on a unix socket.

::

    u32 length (little-endian, of what follows) | msgpack [version, kind, call, body, descriptors, trace]

``call`` pairs a reply with its request and is 0 for a push; ``trace`` is the trace context of a request, see
``wire.trace_parent``, and one byte where there is none. File descriptors travel as SCM_RIGHTS with the first byte
of their frame; a stream socket does not say where ancillary data belongs, so the frame itself counts them and the
receiver takes that many from what has arrived, in order. Errors travel as ``Problem`` and come back as the typed error
of the same code.
Threading: values only.
"""

from enum import IntEnum, unique
from typing import Annotated, Final

import msgspec

from blockyard.core import errors
from blockyard.core.errors import BlockyardError, FrameTooLargeError, MalformedFrameError
from blockyard.wire.codec import MAX_FRAME_BYTES, PROTOCOL_VERSION, BoundedDecoder, encode
from blockyard.wire.trace_parent import NO_TRACE, TraceParent, parse_trace_parent

LENGTH_BYTES: Final = 4
_SMALLEST_INT: Final = -(1 << 63)
_LARGEST_INT: Final = (1 << 64) - 1
MAX_DESCRIPTORS: Final = 65
"""Guards of an engine and the memory of its 64 ranks."""
_NO_TRACE: Final = msgspec.Raw(encode(NO_TRACE))


@unique
class FrameKind(IntEnum):
    """What a frame carries."""

    REQUEST = 0
    REPLY = 1
    ERROR = 2
    PUSH = 3


class Frame(msgspec.Struct, array_like=True, frozen=True):
    """One frame; the body is decoded by the channel that knows its type."""

    version: int
    kind: FrameKind
    call: Annotated[int, msgspec.Meta(ge=0)]
    body: msgspec.Raw
    descriptors: Annotated[int, msgspec.Meta(ge=0, le=MAX_DESCRIPTORS)] = 0
    trace: msgspec.Raw = _NO_TRACE
    """Not decoded with the frame: whatever a peer puts here must not make its frame malformed."""

    @property
    def trace_parent(self) -> TraceParent:
        """Trace context of the request; none where the peer sent nothing that is one."""
        if self.trace == _NO_TRACE:
            return NO_TRACE
        try:
            return parse_trace_parent(_trace_text.decode(self.trace))
        except MalformedFrameError:
            return NO_TRACE


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """A typed error on the wire."""

    code: str
    detail: str = ""
    fields: dict[str, str | int | float] = {}


_frames: Final[BoundedDecoder[Frame]] = BoundedDecoder(Frame)
_trace_text: Final[BoundedDecoder[str]] = BoundedDecoder(str)


def encode_frame(
    kind: FrameKind, call: int, message: object, descriptors: int = 0, trace: TraceParent = NO_TRACE
) -> bytes:
    """Bytes of one frame, length prefix included.

    Raises:
        FrameTooLargeError: the message does not fit into one frame.
    """
    context = msgspec.Raw(encode(trace)) if trace else _NO_TRACE
    body = encode(Frame(PROTOCOL_VERSION, kind, call, msgspec.Raw(encode(message)), descriptors, context))
    if len(body) > MAX_FRAME_BYTES:
        raise FrameTooLargeError("message refused before sending", bytes=len(body), limit=MAX_FRAME_BYTES)
    return len(body).to_bytes(LENGTH_BYTES, "little") + body


def decode_frame(data: bytes) -> Frame:
    """Frame from what follows a length prefix; its version is not looked at.

    Raises:
        MalformedFrameError: the bytes are no frame.
    """
    return _frames.decode(data)


def _error_types() -> dict[str, type[BlockyardError]]:
    found: dict[str, type[BlockyardError]] = {}
    waiting: list[type[BlockyardError]] = [BlockyardError]
    while waiting:
        kind = waiting.pop()
        # A subclass inside of an adapter has no code of its own: its parent is what travels.
        if "code" in vars(kind):
            found[kind.code] = kind
        waiting.extend(kind.__subclasses__())
    return found


_ERROR_TYPES: Final = _error_types()


def problem_of(error: BlockyardError) -> Problem:
    """Wire form of a typed error."""
    return Problem(
        code=error.code, detail=error.detail, fields={name: _fact(fact) for name, fact in error.fields.items()}
    )


def _fact(fact: str | int | float) -> str | int | float:
    """A field as it can travel: telling of an error must not fail on a number that is too large for the encoding."""
    fits = not isinstance(fact, int) or _SMALLEST_INT <= fact <= _LARGEST_INT
    return fact if fits else str(fact)


def error_of(problem: Problem) -> BlockyardError:
    """Typed error of a wire problem; a code unknown here becomes the root type, its code kept as a field."""
    kind = _ERROR_TYPES.get(problem.code)
    error = (kind or errors.BlockyardError)(problem.detail)
    # Set, not passed as keywords: a peer may name a field like a parameter.
    error.fields.update(problem.fields)
    if kind is None:
        error.fields["code"] = problem.code
    return error
