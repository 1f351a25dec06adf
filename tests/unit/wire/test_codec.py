"""Decoding of messages: bounded, typed, tolerant of what a later version adds."""

import msgspec
import pytest

from blockyard.core.errors import FrameTooLargeError, MalformedFrameError
from blockyard.wire import connector_channel, worker_channel
from blockyard.wire.codec import BoundedDecoder, encode


class Point(msgspec.Struct, frozen=True, tag="point"):
    x: int


class Line(msgspec.Struct, frozen=True, tag="line"):
    length: int


@pytest.fixture
def decoder() -> BoundedDecoder[Point | Line]:
    return BoundedDecoder(Point | Line, max_bytes=64)


@pytest.mark.parametrize("wrap", [bytes, bytearray, memoryview, msgspec.Raw])
def test_a_message_comes_back_as_its_type(decoder: BoundedDecoder[Point | Line], wrap: type) -> None:
    assert decoder.decode(wrap(encode(Line(length=3)))) == Line(length=3)


def test_unknown_fields_are_tolerated(decoder: BoundedDecoder[Point | Line]) -> None:
    assert decoder.decode(encode({"type": "point", "x": 1, "y": "of a later version"})) == Point(x=1)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc1",
        encode(None),
        encode({"type": "circle", "x": 1}),
        encode({"x": 1}),
        encode({"type": "point"}),
        encode({"type": "point", "x": "1"}),
        encode({"type": "point", "x": 1})[:-1],
        b"\x91" * 60,
    ],
    ids=["nothing", "no msgpack", "none", "unknown tag", "no tag", "field missing", "wrong type", "cut", "nested"],
)
def test_anything_else_is_malformed(decoder: BoundedDecoder[Point | Line], data: bytes) -> None:
    with pytest.raises(MalformedFrameError):
        decoder.decode(data)


def test_too_long_input_is_refused_before_it_is_looked_at(decoder: BoundedDecoder[Point | Line]) -> None:
    with pytest.raises(FrameTooLargeError) as caught:
        decoder.decode(b"\xc1" * 65)
    assert caught.value.fields == {"bytes": 65, "limit": 64}


def test_length_counts_bytes_not_items(decoder: BoundedDecoder[Point | Line]) -> None:
    with pytest.raises(FrameTooLargeError):
        decoder.decode(memoryview(bytes(80)).cast("Q"))


@pytest.mark.parametrize("field", ["type", "x"])
def test_a_refusal_does_not_repeat_all_that_was_sent(field: str) -> None:
    decoder: BoundedDecoder[Point | Line] = BoundedDecoder(Point | Line)
    with pytest.raises(MalformedFrameError) as caught:
        decoder.decode(encode({"type": "point", "x": 1} | {field: "A" * 1_000_000}))
    assert len(str(caught.value)) < 1_000


@pytest.mark.parametrize("channel", [connector_channel, worker_channel], ids=["connector", "worker"])
def test_every_message_of_a_channel_has_a_tag_of_its_own_in_its_direction(channel: object) -> None:
    for direction in ("Request", "Reply", "Push"):
        union = getattr(channel, direction)
        kinds = getattr(union, "__args__", (union,))
        tags = [kind.__struct_config__.tag for kind in kinds]
        assert len(set(tags)) == len(tags)
        assert None not in tags
