"""From received pieces to frames, whatever way the bytes were cut."""

import os
from collections.abc import Iterator

import pytest

from blockyard.core.errors import FrameTooLargeError, MalformedFrameError
from blockyard.runtime.rpc.frame_buffer import FrameBuffer
from blockyard.wire.frame import LENGTH_BYTES, MAX_DESCRIPTORS, FrameKind, encode_frame


@pytest.fixture
def buffer() -> Iterator[FrameBuffer]:
    buffer = FrameBuffer(max_frame_bytes=1_000)
    yield buffer
    buffer.close()


def pipe_end() -> int:
    read, write = os.pipe()
    os.close(write)
    return read


def is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def calls(buffer: FrameBuffer) -> list[int]:
    found = []
    while (taken := buffer.take()) is not None:
        found.append(taken[0].call)
    return found


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 64, 10_000])
def test_frames_come_out_whole_and_in_order_however_the_bytes_are_cut(buffer: FrameBuffer, size: int) -> None:
    data = b"".join(encode_frame(FrameKind.REQUEST, call, "x" * call) for call in range(1, 40))
    found = []
    for start in range(0, len(data), size):
        buffer.append(data[start : start + size])
        found += calls(buffer)
    assert found == list(range(1, 40))
    assert buffer.take() is None


def test_a_too_long_frame_is_refused_when_only_its_length_is_known(buffer: FrameBuffer) -> None:
    buffer.append((1_001).to_bytes(LENGTH_BYTES, "little"))
    with pytest.raises(FrameTooLargeError) as caught:
        buffer.take()
    assert caught.value.fields == {"bytes": 1_001, "limit": 1_000}


def test_an_empty_frame_is_malformed(buffer: FrameBuffer) -> None:
    buffer.append(bytes(LENGTH_BYTES))
    with pytest.raises(MalformedFrameError):
        buffer.take()


def test_a_frame_takes_as_many_descriptors_as_it_announces_in_order(buffer: FrameBuffer) -> None:
    first, second, third = pipe_end(), pipe_end(), pipe_end()
    buffer.append(encode_frame(FrameKind.REQUEST, 1, None, 1) + encode_frame(FrameKind.REQUEST, 2, None), [first])
    buffer.append(encode_frame(FrameKind.REQUEST, 3, None, 2), [second, third])
    taken = [buffer.take() for _ in range(3)]
    assert [descriptors for _, descriptors in filter(None, taken)] == [[first], [], [second, third]]
    for descriptor in (first, second, third):
        os.close(descriptor)


def test_descriptors_wait_for_the_rest_of_their_frame(buffer: FrameBuffer) -> None:
    data, descriptor = encode_frame(FrameKind.REQUEST, 1, None, 1), pipe_end()
    buffer.append(data[:3], [descriptor])
    assert buffer.take() is None
    buffer.append(data[3:])
    taken = buffer.take()
    assert taken is not None
    assert taken[1] == [descriptor]
    os.close(descriptor)


def test_a_frame_that_announces_descriptors_that_did_not_come_is_malformed(buffer: FrameBuffer) -> None:
    buffer.append(encode_frame(FrameKind.REQUEST, 1, None, 1))
    with pytest.raises(MalformedFrameError, match="did not arrive"):
        buffer.take()


def test_descriptors_without_a_frame_are_malformed_and_closed(buffer: FrameBuffer) -> None:
    descriptor = pipe_end()
    buffer.append(encode_frame(FrameKind.REQUEST, 1, None), [descriptor])
    assert buffer.take() is not None
    with pytest.raises(MalformedFrameError, match="without a frame"):
        buffer.take()
    buffer.close()
    assert not is_open(descriptor)


def test_descriptors_do_not_pile_up_behind_an_unfinished_frame(buffer: FrameBuffer) -> None:
    descriptors = [pipe_end() for _ in range(MAX_DESCRIPTORS + 1)]
    buffer.append(encode_frame(FrameKind.REQUEST, 1, "long", 1)[:6], descriptors)
    with pytest.raises(MalformedFrameError, match="too many"):
        buffer.take()
    buffer.close()
    assert not any(map(is_open, descriptors))
