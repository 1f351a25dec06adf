"""Rows moved by NIXL are those that plain copies move, byte by byte; and NIXL keeps nothing of an engine that left."""

import fcntl
import gc
import mmap
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from blockyard.core.errors import TransferError, UnsupportedOperationError
from blockyard.core.kv_groups import NO_PAGE
from blockyard.core.vocabulary import GroupId
from blockyard.tiers.arena import Arena
from blockyard.tiers.checksum import ByteArray
from blockyard.tiers.g1_mapping import G1Mapping, PageColumn
from blockyard.tiers.nixl.ucx_agent import UcxMemory
from blockyard.tiers.nixl.ucx_copies import UcxCopies
from blockyard.wire.worker_channel import GroupLayout, MapEngine, RankInfo, RegionInfo
from blockyard_offload_worker.g1_copier import G1Copier
from blockyard_offload_worker.mapped_copies import MappedCopies
from blockyard_offload_worker.nixl_copies import NixlEngines

BLOCKS, FULL, REPLICATED = 96, GroupId(0), GroupId(1)
PAGE, ODD_PAGE = 4_096, 1_000
PAGES_PER_ROW = 4


def regions(count: int, page_bytes: int, start: int, *, gap: int = 0) -> tuple[RegionInfo, ...]:
    """Layers one after the other, pages of each side by side."""
    stride = page_bytes + gap
    return tuple(
        RegionInfo(offset_bytes=start + layer * BLOCKS * stride, stride_bytes=stride, page_bytes=page_bytes)
        for layer in range(count)
    )


def layout() -> MapEngine:
    """Two ranks that lay their memory out differently; one group of a shard each, one whose bytes both hold."""
    first = (regions(3, PAGE, 0), regions(2, ODD_PAGE, 2_000_000, gap=24))
    second = (regions(3, PAGE, 128, gap=512), regions(2, ODD_PAGE, 2_500_000))
    return MapEngine(
        mapping=1,
        blocks=BLOCKS,
        groups=(
            GroupLayout(group=FULL, pages_per_row=PAGES_PER_ROW),
            GroupLayout(group=REPLICATED, pages_per_row=PAGES_PER_ROW, replicated=True),
        ),
        ranks=tuple(RankInfo(memory_bytes=3_000_000, regions=of_rank) for of_rank in (first, second)),
        executor="nixl",
    )


@contextmanager
def mapped(request: MapEngine) -> Iterator[G1Mapping]:
    """Memory of an engine full of bytes that are all different."""
    fds = []
    for size in (request.blocks * 8, *(rank.memory_bytes for rank in request.ranks)):
        fd = os.memfd_create("engine", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(fd, size)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
        fds.append(fd)
    try:
        mapping = G1Mapping(request, fds)
    finally:
        for fd in fds:
            os.close(fd)
    with mapping:
        for rank in range(len(request.ranks)):
            # No name for the view: it would keep the memory mapped.
            mapping.memory(rank)[:] = np.random.default_rng(rank).integers(0, 256, len(mapping.memory(rank)), np.uint8)
        yield mapping


@pytest.fixture(scope="module")
def engines() -> Iterator[NixlEngines]:
    shared = NixlEngines()
    yield shared
    shared.close()


class Registered:
    """Counts the memories that NIXL knows; refuses more than ``most``."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.known = 0
        self.most = 100
        register, forget = UcxCopies.register, UcxCopies.forget

        def counted(copies: UcxCopies, memory: ByteArray) -> UcxMemory:
            if self.known == self.most:
                raise TransferError("no more memory can be registered")
            self.known += 1
            return register(copies, memory)

        def discounted(copies: UcxCopies, memory: UcxMemory) -> None:
            self.known -= 1
            forget(copies, memory)

        monkeypatch.setattr(UcxCopies, "register", counted)
        monkeypatch.setattr(UcxCopies, "forget", discounted)


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> Registered:
    return Registered(monkeypatch)


def gathered(copier: G1Copier, group: GroupId, pages: PageColumn, payload: ByteArray) -> ByteArray:
    pieces = [piece.copy() for piece in copier.gather(group, pages, payload)]
    assert np.array_equal(np.concatenate(pieces), payload)
    return payload.copy()


@pytest.mark.parametrize("group", [FULL, REPLICATED])
def test_rows_gathered_by_nixl_equal_those_of_plain_copies(engines: NixlEngines, group: GroupId) -> None:
    random = np.random.default_rng(3)
    with mapped(layout()) as mapping, Arena.create(4, 262_144) as arena:
        row_bytes = mapping.places(group).row_bytes
        plain, nixl = MappedCopies(mapping), engines.open(mapping, arena)
        for slot in range(4):
            pages = random.choice(BLOCKS, PAGES_PER_ROW, replace=False).astype(np.uint32)
            arena.payload(slot)[:] = 0xEE
            expected = gathered(plain, group, pages, np.zeros(row_bytes, np.uint8))
            assert np.array_equal(gathered(nixl, group, pages, arena.payload(slot, row_bytes)), expected)
            assert np.all(arena.payload(slot)[row_bytes:] == 0xEE)
        nixl.close()


@pytest.mark.parametrize("left_out", [(), (0,), (1, 3), (0, 1, 2, 3)])
@pytest.mark.parametrize("group", [FULL, REPLICATED])
def test_rows_scattered_by_nixl_land_where_plain_copies_put_them_and_nowhere_else(
    engines: NixlEngines, group: GroupId, left_out: tuple[int, ...]
) -> None:
    pages = np.array([95, 0, 17, 18], np.uint32)
    pages[list(left_out)] = NO_PAGE
    with mapped(layout()) as expected, mapped(layout()) as mapping, Arena.create(2, 262_144) as arena:
        row_bytes = mapping.places(group).row_bytes
        payload = arena.payload(1, row_bytes)
        payload[:] = np.random.default_rng(9).integers(0, 256, row_bytes, np.uint8)
        for _ in MappedCopies(expected).scatter(group, pages, payload):
            pass
        nixl = engines.open(mapping, arena)
        handed_over = [piece.copy() for piece in nixl.scatter(group, pages, payload)]
        assert np.array_equal(np.concatenate(handed_over), payload)
        for rank in range(2):
            assert np.array_equal(mapping.memory(rank), expected.memory(rank))
        nixl.close()


def test_many_small_pages_move_in_one_request_per_shard(engines: NixlEngines) -> None:
    small = MapEngine(
        mapping=2,
        blocks=BLOCKS,
        groups=(GroupLayout(group=FULL, pages_per_row=64),),
        ranks=(RankInfo(memory_bytes=BLOCKS * 48 * 520, regions=(regions(48, 512, 0, gap=8),)),),
        executor="nixl",
    )
    with mapped(small) as mapping, Arena.create(2, 64 * 48 * 512) as arena:
        pages = np.random.default_rng(4).permutation(BLOCKS)[:64].astype(np.uint32)
        nixl, row_bytes = engines.open(mapping, arena), mapping.places(FULL).row_bytes
        expected = gathered(MappedCopies(mapping), FULL, pages, np.zeros(row_bytes, np.uint8))
        assert len(list(nixl.gather(FULL, pages, arena.payload(0, row_bytes)))) == 1
        assert np.array_equal(arena.payload(0, row_bytes), expected)
        nixl.close()


def test_a_page_outside_of_the_engine_is_refused_by_nixl_too(engines: NixlEngines) -> None:
    with mapped(layout()) as mapping, Arena.create(2, 262_144) as arena:
        nixl = engines.open(mapping, arena)
        row = arena.payload(0, mapping.places(FULL).row_bytes)
        row[:] = 0
        with pytest.raises(TransferError, match="NIXL refused the request"):
            list(nixl.gather(FULL, np.array([0, 1, 2, 1_000], np.uint32), row))
        assert not row.any()
        nixl.close()


def test_an_engine_that_left_while_idle_is_unmapped_and_others_go_on(engines: NixlEngines) -> None:
    with mapped(layout()) as leaving, mapped(layout()) as staying, Arena.create(2, 262_144) as arena:
        first, second = engines.open(leaving, arena), engines.open(staying, arena)
        first.close()
        first.close()
        before = mapped_bytes("engine")
        leaving.close()
        gc.collect()
        assert mapped_bytes("engine") == before - 2 * 3_002_368 - mmap.PAGESIZE
        pages, row_bytes = np.array([5, 6, 7, 8], np.uint32), staying.places(FULL).row_bytes
        gathered(second, FULL, pages, arena.payload(0, row_bytes))
        second.close()


def test_two_hundred_engines_that_come_and_go_leave_no_memory_and_no_descriptor(engines: NixlEngines) -> None:
    with Arena.create(2, 262_144) as arena:
        come_and_go(engines, arena, 10)
        files, mappings, resident = len(os.listdir("/proc/self/fd")), mapped_bytes("engine"), resident_bytes()
        come_and_go(engines, arena, 200)
        assert len(os.listdir("/proc/self/fd")) == files
        assert mapped_bytes("engine") == mappings
        assert resident_bytes() < resident + 20 * 3_000_000


def test_an_arena_is_known_to_nixl_while_an_engine_uses_it(engines: NixlEngines, registered: Registered) -> None:
    with mapped(layout()) as mapping, Arena.create(2, 262_144) as arena:
        first, second = engines.open(mapping, arena), engines.open(mapping, arena)
        assert registered.known == 1 + 2 * 2
        first.close()
        assert registered.known == 1 + 2
        second.close()
        assert registered.known == 0


def test_an_engine_is_refused_by_name_where_the_sdk_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "blockyard.tiers.nixl.ucx_copies", None)
    with mapped(layout()) as mapping, Arena.create(2, 262_144) as arena:
        with pytest.raises(UnsupportedOperationError, match="nixl_cu12 cannot be imported") as refused:
            NixlEngines().open(mapping, arena)
        assert refused.value.fields["executor"] == "nixl"


def test_an_engine_is_refused_where_nixl_refuses_its_memory_and_nothing_stays_behind(
    engines: NixlEngines, registered: Registered
) -> None:
    registered.most = 2
    with mapped(layout()) as mapping, Arena.create(2, 262_144) as arena:
        with pytest.raises(UnsupportedOperationError, match="no more memory can be registered"):
            engines.open(mapping, arena)
        assert registered.known == 0


def come_and_go(engines: NixlEngines, arena: Arena, rounds: int) -> None:
    pages = np.array([1, 2, 3, 4], np.uint32)
    for _ in range(rounds):
        with mapped(layout()) as mapping:
            nixl = engines.open(mapping, arena)
            gathered(nixl, FULL, pages, arena.payload(0, mapping.places(FULL).row_bytes))
            nixl.close()


def mapped_bytes(name: str) -> int:
    """Bytes of this process's mappings of memory files with this name."""
    total = 0
    for line in Path("/proc/self/maps").read_text().splitlines():
        if f"/memfd:{name} " in line:
            start, _, end = line.split()[0].partition("-")
            total += int(end, 16) - int(start, 16)
    return total


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE
