"""Frames and problems: what travels around a message on a channel."""

import msgspec
import pytest

from blockyard.core import errors
from blockyard.core.errors import (
    BlockyardError,
    FrameTooLargeError,
    MalformedFrameError,
    OutOfBlocksError,
    RequestError,
)
from blockyard.wire import frame
from blockyard.wire.codec import MAX_FRAME_BYTES, PROTOCOL_VERSION, encode
from blockyard.wire.frame import (
    LENGTH_BYTES,
    MAX_DESCRIPTORS,
    FrameKind,
    Problem,
    decode_frame,
    encode_frame,
    error_of,
    problem_of,
)
from blockyard.wire.trace_parent import NO_TRACE, new_trace


def body_of(frame: bytes) -> bytes:
    return frame[LENGTH_BYTES:]


def test_a_frame_carries_kind_call_descriptors_and_body() -> None:
    data = encode_frame(FrameKind.REQUEST, 7, {"a": 1}, descriptors=2)
    assert int.from_bytes(data[:LENGTH_BYTES], "little") == len(data) - LENGTH_BYTES
    frame = decode_frame(body_of(data))
    assert (frame.version, frame.kind, frame.call, frame.descriptors) == (PROTOCOL_VERSION, FrameKind.REQUEST, 7, 2)
    assert msgspec.msgpack.decode(frame.body) == {"a": 1}


def test_a_frame_without_descriptors_may_leave_the_count_out() -> None:
    assert decode_frame(encode([PROTOCOL_VERSION, 1, 3, None])).descriptors == 0


def test_a_frame_with_more_fields_than_known_is_read() -> None:
    assert decode_frame(encode([PROTOCOL_VERSION, 1, 3, None, 0, "of a later version"])).call == 3


def test_a_frame_of_another_version_is_read_so_that_it_can_be_refused_by_name() -> None:
    assert decode_frame(encode([PROTOCOL_VERSION + 1, 0, 1, None])).version == PROTOCOL_VERSION + 1


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc1",
        b"GET / HTTP/1.1\r\n",
        encode("text"),
        encode({"version": 1}),
        encode([]),
        encode([1, 0]),
        encode([1, 9, 1, None]),
        encode([1, "0", 1, None]),
        encode([1, 0, -1, None]),
        encode([1, 0, 1, None, MAX_DESCRIPTORS + 1]),
        encode([1, 0, 1, None, -1]),
        encode([1, 0, 1, None])[:-1],
        encode([1, 0, 1, None]) + b"\x00",
        b"\x91" * 100_000,
    ],
    ids=[
        "nothing", "no msgpack", "http", "text", "map", "empty array", "too short", "unknown kind", "kind as text",
        "negative call", "too many descriptors", "negative descriptors", "cut", "trailing byte", "deeply nested",
    ],
)  # fmt: skip
def test_bytes_that_are_no_frame_are_refused(data: bytes) -> None:
    with pytest.raises(MalformedFrameError):
        decode_frame(data)


def test_a_message_that_does_not_fit_is_refused_before_sending() -> None:
    with pytest.raises(FrameTooLargeError) as caught:
        encode_frame(FrameKind.PUSH, 0, bytes(MAX_FRAME_BYTES))
    assert caught.value.fields["limit"] == MAX_FRAME_BYTES


# --- problems -----------------------------------------------------------------------------------------------------
def all_errors(root: type[BlockyardError] = BlockyardError) -> list[type[BlockyardError]]:
    return [root, *(found for kind in root.__subclasses__() for found in all_errors(kind))]


@pytest.mark.parametrize("kind", [kind for kind in all_errors() if kind.__module__ == errors.__name__])
def test_every_error_comes_back_as_itself(kind: type[BlockyardError]) -> None:
    sent = kind("what happened", tier="g2", asked=4, share=0.5)
    received = error_of(msgspec.msgpack.decode(encode(problem_of(sent)), type=Problem))
    assert type(received) is kind
    assert (received.detail, received.fields) == (sent.detail, sent.fields)


def test_codes_are_unique() -> None:
    kinds = [kind for kind in all_errors() if "code" in vars(kind)]
    assert len({kind.code for kind in kinds}) == len(kinds)


def test_an_error_without_a_code_of_its_own_travels_as_its_parent() -> None:
    class InsideAnAdapter(errors.StorageError):
        pass

    assert problem_of(InsideAnAdapter("full")).code == errors.StorageError.code
    assert frame._error_types()[errors.StorageError.code] is errors.StorageError


def test_a_code_of_a_later_version_becomes_the_root_error_and_is_kept() -> None:
    error = error_of(Problem(code="invented-later", detail="new", fields={"a": 1}))
    assert type(error) is BlockyardError
    assert error.fields == {"a": 1, "code": "invented-later"}


def test_fields_named_like_parameters_do_no_harm() -> None:
    error = error_of(Problem(code=OutOfBlocksError.code, detail="x", fields={"detail": "y", "self": 1, "code": "z"}))
    assert type(error) is OutOfBlocksError
    assert error.detail == "x"
    assert error.fields == {"detail": "y", "self": 1, "code": "z"}


def test_telling_of_an_error_survives_numbers_that_cannot_be_encoded() -> None:
    problem = problem_of(RequestError("too much", need=1 << 79, least=-(1 << 79), found=1 << 63))
    told = decode_frame(encode_frame(FrameKind.ERROR, 1, problem)[LENGTH_BYTES:])
    assert msgspec.msgpack.decode(told.body)["fields"] == {
        "need": str(1 << 79),
        "least": str(-(1 << 79)),
        "found": 1 << 63,
    }


# --- trace context ------------------------------------------------------------------------------------------------
TRACE = new_trace()


def test_a_frame_carries_a_trace_context() -> None:
    assert decode_frame(body_of(encode_frame(FrameKind.REQUEST, 7, None, trace=TRACE))).trace_parent == TRACE


def test_without_a_trace_a_frame_is_one_byte_longer_than_before_there_were_any() -> None:
    assert body_of(encode_frame(FrameKind.REQUEST, 7, None)) == (
        b"\x96" + encode([PROTOCOL_VERSION, 0, 7, None, 0])[1:] + encode("")
    )


def test_a_peer_that_knows_no_traces_is_understood() -> None:
    assert decode_frame(encode([PROTOCOL_VERSION, 0, 3, None, 0])).trace_parent == NO_TRACE


@pytest.mark.parametrize(
    "sent",
    [7, None, True, b"bytes", {"a": 1}, [TRACE], "x" * 100_000, TRACE.upper(), TRACE[:-1], "00" + "0" * 53],
    ids=["number", "nil", "bool", "bytes", "map", "array", "long", "upper case", "short", "no dashes"],
)
def test_what_is_no_trace_context_does_the_frame_no_harm(sent: object) -> None:
    received = decode_frame(encode([PROTOCOL_VERSION, 0, 3, None, 0, sent]))
    assert (received.call, received.trace_parent) == (3, NO_TRACE)


def test_text_that_is_no_utf8_is_no_trace_context() -> None:
    sound = encode([PROTOCOL_VERSION, 0, 3, None, 0, "x" * 3])
    assert decode_frame(sound.replace(b"xxx", b"\xff\xfe\xfd")).trace_parent == NO_TRACE
