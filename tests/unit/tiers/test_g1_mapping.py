"""Mapped engine memory and its guards."""

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np
import pytest

from blockyard.core.errors import LayoutMismatchError, UnsealedMemoryError
from blockyard.core.vocabulary import GroupId
from blockyard.tiers.g1_mapping import G1Mapping
from blockyard.wire.worker_channel import GroupLayout, MapEngine, RankInfo, RegionInfo

KV_BYTES, GUARD_BYTES = 9 * 6_000 + 5_000, 80
REGION = RegionInfo(offset_bytes=0, stride_bytes=6_000, page_bytes=5_000)
RANK = RankInfo(memory_bytes=KV_BYTES, regions=((REGION,),))
REQUEST = MapEngine(mapping=1, blocks=10, groups=(GroupLayout(group=0, pages_per_row=1),), ranks=(RANK,))


def memory_file(size: int, seals: int = fcntl.F_SEAL_SHRINK) -> int:
    fd = os.memfd_create("memory of a test", os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, size)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    return fd


@pytest.fixture
def fds() -> Iterator[list[int]]:
    """Guards and one rank."""
    fds = [memory_file(GUARD_BYTES), memory_file(KV_BYTES)]
    yield fds
    for fd in fds:
        os.close(fd)


def with_region(**changes: int) -> MapEngine:
    region = msgspec.structs.replace(REGION, **changes)
    return msgspec.structs.replace(REQUEST, ranks=(msgspec.structs.replace(RANK, regions=((region,),)),))


def test_both_sides_see_writes(fds: list[int]) -> None:
    with G1Mapping(REQUEST, fds) as mapping:
        mapping.memory(0)[54_000:59_000] = 7
        assert os.pread(fds[1], 5_000, 9 * 6_000) == b"\7" * 5_000
        os.pwrite(fds[1], b"\5", 6_000)
        assert mapping.memory(0)[6_000] == 5


def test_a_guard_is_what_the_engine_wrote_last(fds: list[int]) -> None:
    with G1Mapping(REQUEST, fds) as mapping:
        assert mapping.guard(3) == 0
        os.pwrite(fds[0], (1 << 63 | 5).to_bytes(8, "little"), 24)
        assert mapping.guard(3) == 1 << 63 | 5
        pages = np.array([2, 3], np.uint32)
        assert mapping.guards_are(pages, np.array([0, 1 << 63 | 5], np.uint64))
        assert not mapping.guards_are(pages, np.array([0, 5], np.uint64))


def test_the_mapping_stays_when_the_descriptors_go(fds: list[int]) -> None:
    copies = [os.dup(fd) for fd in fds]
    mapping = G1Mapping(REQUEST, copies)
    for fd in copies:
        os.close(fd)
    mapping.memory(0)[:] = 1
    mapping.close()
    mapping.close()


def test_a_row_has_the_pages_of_all_regions_and_shards(fds: list[int]) -> None:
    half = msgspec.structs.replace(REGION, page_bytes=2_000)
    groups = (GroupLayout(group=0, pages_per_row=4), GroupLayout(group=1, pages_per_row=2, replicated=True))
    rank = msgspec.structs.replace(RANK, regions=((REGION, half), (REGION,)))
    request = msgspec.structs.replace(REQUEST, groups=groups, ranks=(rank, rank))
    with G1Mapping(request, [*fds, fds[1]]) as mapping:
        full, latent = mapping.places(GroupId(0)), mapping.places(GroupId(1))
        assert (full.page_bytes, full.row_bytes, full.shards) == (7_000, 7_000 * 4 * 2, ((0,), (1,)))
        assert (latent.page_bytes, latent.row_bytes, latent.shards) == (5_000, 5_000 * 2, ((0, 1),))
        assert mapping.ranks == 2
        with pytest.raises(LayoutMismatchError, match="no such group"):
            mapping.places(GroupId(2))


@pytest.mark.parametrize(
    "changes",
    [
        {"offset_bytes": 1},
        {"offset_bytes": -1},
        {"page_bytes": 5_001},
        {"page_bytes": 0},
        {"stride_bytes": 6_001},
        {"stride_bytes": 4_999},
        {"stride_bytes": -6_000},
        {"offset_bytes": 1 << 62},
    ],
)
def test_a_region_that_reaches_beyond_its_memory_is_refused(fds: list[int], changes: dict[str, int]) -> None:
    with pytest.raises(LayoutMismatchError, match="reaches beyond"):
        G1Mapping(with_region(**changes), fds)


def test_a_stride_beyond_the_memory_of_one_block_is_refused(fds: list[int]) -> None:
    only = msgspec.structs.replace(with_region(stride_bytes=(1 << 64) - 1), blocks=1)
    with pytest.raises(LayoutMismatchError, match="reaches beyond"):
        G1Mapping(only, fds)


@pytest.mark.parametrize("blocks", [0, 11, 0xFFFF_FFFF])
def test_blocks_that_do_not_fit_are_refused(fds: list[int], blocks: int) -> None:
    with pytest.raises(LayoutMismatchError):
        G1Mapping(msgspec.structs.replace(REQUEST, blocks=blocks), fds)


@pytest.mark.parametrize(
    "request_",
    [
        msgspec.structs.replace(REQUEST, groups=()),
        msgspec.structs.replace(REQUEST, ranks=()),
        msgspec.structs.replace(REQUEST, ranks=(RANK, RANK)),
        msgspec.structs.replace(REQUEST, groups=(GroupLayout(group=1, pages_per_row=1),)),
        msgspec.structs.replace(REQUEST, groups=(GroupLayout(group=0, pages_per_row=0),)),
        msgspec.structs.replace(REQUEST, ranks=(msgspec.structs.replace(RANK, regions=()),)),
        msgspec.structs.replace(REQUEST, ranks=(msgspec.structs.replace(RANK, regions=((),)),)),
        msgspec.structs.replace(REQUEST, ranks=(msgspec.structs.replace(RANK, memory_bytes=KV_BYTES + 1),)),
    ],
)
def test_layouts_that_cannot_be_are_refused(fds: list[int], request_: MapEngine) -> None:
    with pytest.raises(LayoutMismatchError):
        G1Mapping(request_, fds)


def test_ranks_whose_pages_differ_are_refused(fds: list[int]) -> None:
    other = msgspec.structs.replace(RANK, regions=((msgspec.structs.replace(REGION, page_bytes=4_999),),))
    with pytest.raises(LayoutMismatchError, match="every rank"):
        G1Mapping(msgspec.structs.replace(REQUEST, ranks=(RANK, other)), [*fds, fds[1]])


@pytest.mark.parametrize("loose", [0, 1])
def test_memory_that_can_shrink_is_refused(fds: list[int], loose: int) -> None:
    """After a cut, the next access to it would kill the worker with SIGBUS."""
    fd = memory_file((GUARD_BYTES, KV_BYTES)[loose], fcntl.F_SEAL_GROW)
    named = [fd if index == loose else found for index, found in enumerate(fds)]
    try:
        with pytest.raises(UnsealedMemoryError, match="F_SEAL_SHRINK"):
            G1Mapping(REQUEST, named)
    finally:
        os.close(fd)


def test_a_plain_file_or_a_pipe_cannot_be_sealed_and_is_refused(fds: list[int], tmp_path: Path) -> None:
    ends = os.pipe()
    try:
        with (tmp_path / "memory").open("w+b") as file:
            file.truncate(1 << 20)
            for fd in (file.fileno(), ends[0]):
                with pytest.raises((UnsealedMemoryError, LayoutMismatchError)):
                    G1Mapping(REQUEST, [fds[0], fd])
    finally:
        for end in ends:
            os.close(end)


def test_memory_that_must_not_be_written_is_refused(fds: list[int]) -> None:
    sealed = memory_file(KV_BYTES, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_WRITE)
    try:
        with pytest.raises(LayoutMismatchError, match="cannot map"):
            G1Mapping(REQUEST, [fds[0], sealed])
    finally:
        os.close(sealed)
