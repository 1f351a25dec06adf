"""The arena: sealed memory that several processes map, written under grants."""

import fcntl
import mmap
import os
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from blockyard.core.errors import (
    BlockStateError,
    ConfigurationError,
    ForeignFileError,
    LayoutMismatchError,
    StaleGenerationError,
)
from blockyard.core.vocabulary import Generation
from blockyard.testing.byte_patterns import header_of, pattern
from blockyard.tiers.arena import PAGE_BYTES, Arena
from blockyard.tiers.header import HeaderState, HeaderVerdict, SlotHeader

PAYLOAD = 5000


@pytest.fixture
def arena() -> Iterator[Arena]:
    with Arena.create(20, PAYLOAD) as arena:
        yield arena


def write(arena: Arena, slot: int, generation: int, seed: int = 1) -> SlotHeader:
    payload = arena.begin_write(slot, Generation(generation))
    payload[:] = pattern(seed, PAYLOAD)
    header = header_of(seed, payload, file_id=arena.arena_id, slot=slot, generation=generation)
    arena.publish(header)
    return header


def test_a_published_block_is_read_with_its_header(arena: Arena) -> None:
    header = write(arena, 3, 1)
    reading = arena.read(3)
    assert reading.verdict is HeaderVerdict.READY
    assert reading.header == header
    assert np.array_equal(arena.payload(3), pattern(1, PAYLOAD))
    assert arena.read(2).verdict is HeaderVerdict.EMPTY


def test_a_slot_that_is_being_written_is_no_block(arena: Arena) -> None:
    write(arena, 3, 1)
    arena.begin_write(3, Generation(2))
    assert arena.read(3).verdict is HeaderVerdict.WRITING
    assert arena.generation(3) == 2
    assert not arena.is_current(3, 1)


@pytest.mark.parametrize("generation", [0, 4, 5])
def test_an_old_grant_cannot_write(arena: Arena, generation: int) -> None:
    header = write(arena, 3, 5)
    with pytest.raises(StaleGenerationError):
        arena.begin_write(3, Generation(generation))
    assert arena.read(3).header == header


def test_a_writer_that_lost_its_grant_cannot_publish(arena: Arena) -> None:
    payload = arena.begin_write(3, Generation(1))
    late = header_of(1, payload, file_id=arena.arena_id, slot=3, generation=1)
    arena.begin_write(3, Generation(2))
    with pytest.raises(StaleGenerationError):
        arena.publish(late)
    assert arena.read(3).verdict is HeaderVerdict.WRITING


def test_a_header_that_is_not_for_this_arena_is_not_published(arena: Arena) -> None:
    payload = arena.begin_write(3, Generation(1))
    header = header_of(1, payload, file_id=arena.arena_id, slot=3, generation=1)
    for wrong in (
        replace(header, file_id=bytes(16)),
        replace(header, state=HeaderState.FREE),
        replace(header, payload_bytes=PAYLOAD + 1),
    ):
        with pytest.raises(BlockStateError):
            arena.publish(wrong)
    assert arena.read(3).verdict is HeaderVerdict.WRITING


def test_marking_takes_the_block_away_and_keeps_the_generation(arena: Arena) -> None:
    write(arena, 3, 4)
    with pytest.raises(StaleGenerationError):
        arena.mark(3, Generation(3), HeaderState.FREE)
    with pytest.raises(BlockStateError):
        arena.mark(3, Generation(4), HeaderState.READY)
    arena.mark(3, Generation(4), HeaderState.BAD)
    assert (arena.read(3).verdict, arena.generation(3)) == (HeaderVerdict.BAD, 4)
    arena.mark(3, Generation(4), HeaderState.FREE)
    assert arena.read(3).verdict is HeaderVerdict.FREE


def test_an_adopted_arena_shows_the_same_blocks_both_ways(arena: Arena) -> None:
    header = write(arena, 3, 1)
    with Arena.adopt(os.dup(arena.fd), arena.info()) as other:
        assert other.read(3).header == header
        assert np.array_equal(other.payload(3), arena.payload(3))
        second = write(other, 19, 1, seed=9)
    assert arena.read(19).header == second


def test_an_arena_outlives_the_one_who_made_it() -> None:
    first = Arena.create(2, PAYLOAD)
    fd = os.dup(first.fd)
    header = write(first, 1, 1)
    first.close()
    with Arena.adopt(fd) as second:
        assert second.read(1).header == header


def test_nobody_can_resize_an_arena(arena: Arena) -> None:
    for size in (0, arena.info().bytes + PAGE_BYTES):
        with pytest.raises(PermissionError):
            os.ftruncate(arena.fd, size)


def test_payloads_are_page_aligned_and_apart(arena: Arena) -> None:
    assert arena.payload_address % mmap.PAGESIZE == 0
    assert arena.stride_bytes == 2 * PAGE_BYTES
    arena.payload(4)[:] = 1
    assert not arena.payload(3).any()
    assert not arena.payload(5).any()
    assert arena.strides(4, 2).sum() == PAYLOAD


def test_another_arena_than_announced_is_refused(arena: Arena) -> None:
    with Arena.create(20, PAYLOAD) as other, pytest.raises(LayoutMismatchError):
        Arena.adopt(arena.fd, other.info())


def foreign(size: int, content: bytes, *, seal: bool = True) -> int:
    fd = os.memfd_create("not an arena", os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, size)
    os.pwrite(fd, content, 0)
    if seal:
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
    return fd


@pytest.mark.parametrize("damage", ["content", "size", "seals", "short"])
def test_what_is_no_arena_is_refused(arena: Arena, damage: str) -> None:
    whole = os.pread(arena.fd, PAGE_BYTES, 0)
    size = arena.info().bytes
    fd = {
        "content": lambda: foreign(size, bytes([whole[0], whole[1] ^ 1]) + whole[2:]),
        "size": lambda: foreign(size - PAGE_BYTES, whole),
        "seals": lambda: foreign(size, whole, seal=False),
        "short": lambda: foreign(100, whole[:100]),
    }[damage]()
    try:
        with pytest.raises(ForeignFileError):
            Arena.adopt(fd)
    finally:
        os.close(fd)


def test_an_arena_that_cannot_be_mapped_is_refused(arena: Arena) -> None:
    fd = os.open(f"/proc/self/fd/{arena.fd}", os.O_RDONLY)
    try:
        with pytest.raises(ForeignFileError, match="cannot be mapped"):
            Arena.adopt(fd)
    finally:
        os.close(fd)


def test_a_pipe_is_no_arena() -> None:
    ends = os.pipe()
    try:
        with pytest.raises(ForeignFileError):
            Arena.adopt(ends[0])
    finally:
        for fd in ends:
            os.close(fd)


@pytest.mark.parametrize(
    ("slots", "payload"), [(0, 4096), (1, 0), (1 << 31, 4096), (1 << 30, 1 << 30), (1, (1 << 32) - 4095)]
)
def test_impossible_sizes_are_refused(slots: int, payload: int) -> None:
    with pytest.raises(ConfigurationError):
        Arena.create(slots, payload)


def test_an_arena_that_nobody_closed_warns() -> None:
    holder = [Arena.create(1, 1)]
    with pytest.warns(ResourceWarning, match="unclosed arena"):
        holder.clear()
