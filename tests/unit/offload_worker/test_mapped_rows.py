"""Rows of several pages, regions, ranks and groups between engine memory and the arena, byte by byte."""

from collections.abc import Iterator, Sequence

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blockyard.core.errors import LayoutMismatchError, RequestError
from blockyard.core.kv_groups import NO_PAGE, Region
from blockyard.core.vocabulary import GroupId, ItemStatus, JobKind
from blockyard.testing.rank_engine import RankEngine
from blockyard.testing.worker_jobs import Move, ScriptedControl, named_digest, transfer_job
from blockyard.tiers.arena import Arena
from blockyard.tiers.checksum import COPY_CHUNK_BYTES, ByteArray, payload_checksum
from blockyard.tiers.g1_mapping import PageColumn
from blockyard.tiers.header import HeaderVerdict
from blockyard.wire.worker_channel import GroupLayout, Job
from blockyard_offload_worker.engine_copies import EngineCopies, MappedEngine
from blockyard_offload_worker.mapped_copies import MappedCopies

BLOCKS, PAGE, PER_ROW, SLOT_BYTES = 16, 1_000, 4, 40_000
FULL, WINDOW, LATENT = range(3)
GROUPS = (
    GroupLayout(group=FULL, pages_per_row=PER_ROW),
    GroupLayout(group=WINDOW, pages_per_row=2),
    GroupLayout(group=LATENT, pages_per_row=PER_ROW, replicated=True),
)
NOWHERE = int(NO_PAGE)
A, B = 1, 2


def regions_of(shift: int) -> tuple[tuple[Region, ...], ...]:
    """Three layers of their own memory, two that share one place per block, one with another page size."""
    own = tuple(Region(shift + layer * BLOCKS * PAGE, PAGE, PAGE) for layer in range(3))
    base = shift + 3 * BLOCKS * PAGE
    shared = tuple(Region(base + layer * PAGE, 2 * PAGE, PAGE) for layer in range(2))
    latent = (*own[:1], Region(base, 2 * PAGE, 700))
    return own, shared, latent


@pytest.fixture
def arena() -> Iterator[Arena]:
    with Arena.create(slots=4, payload_bytes=SLOT_BYTES) as arena:
        yield arena


@pytest.fixture
def engine() -> Iterator[RankEngine]:
    with RankEngine(BLOCKS, GROUPS, (regions_of(0), regions_of(64))) as engine:
        yield engine


def row_job(
    kind: JobKind, group: int, name: int, pages: Sequence[int], slot: int, generation: int, guards: Sequence[int] = ()
) -> Job:
    job = transfer_job(kind, [Move(named_digest(str(name)))], payload_bytes=SLOT_BYTES)
    at_engine = np.array(pages, "<u4").tobytes(), np.array(guards or [0] * len(pages), "<u8").tobytes()
    at_slot = np.array([slot], "<u4").tobytes(), np.array([generation], "<u8").tobytes()
    (source, target) = (at_engine, at_slot) if kind is JobKind.G1_G2 else (at_slot, at_engine)
    items = msgspec.structs.replace(
        job.items, src_index=source[0], src_generation=source[1], dst_index=target[0], dst_generation=target[1]
    )
    return msgspec.structs.replace(job, group=group, items=items)


def run(engine: RankEngine, arena: Arena, job: Job) -> ItemStatus:
    copies = EngineCopies(job, ScriptedControl(job), arena, MappedEngine(engine.mapping, MappedCopies(engine.mapping)))
    return _only(copies.store() if job.kind is JobKind.G1_G2 else copies.load(verify=True))


def store(engine: RankEngine, arena: Arena, group: int, name: int, pages: Sequence[int], slot: int = 0) -> ItemStatus:
    return run(engine, arena, row_job(JobKind.G1_G2, group, name, pages, slot, 1))


def load(engine: RankEngine, arena: Arena, group: int, name: int, pages: Sequence[int], slot: int = 0) -> ItemStatus:
    return run(engine, arena, row_job(JobKind.G2_G1, group, name, pages, slot, 1))


@pytest.mark.parametrize(
    ("group", "pages", "into"),
    [(FULL, (3, 9, 0, 15), (5, 4, 11, 12)), (WINDOW, (7, 6), (1, 14)), (LATENT, (3, 9, 0, 15), (5, 4, 11, 12))],
)
def test_rows_have_the_bytes_of_their_pages_in_the_order_of_the_contract_and_come_back(
    engine: RankEngine, arena: Arena, group: int, pages: tuple[int, ...], into: tuple[int, ...]
) -> None:
    arena.payload(0)[:] = 0xEE
    engine.compute(group, pages, A)
    assert store(engine, arena, group, A, pages) is ItemStatus.OK
    expected = engine.expected_row(group, A)
    payload = arena.payload(0)
    assert payload[: len(expected)].tobytes() == expected
    assert not payload[len(expected) :].any()
    assert arena.read(0).header.checksum == payload_checksum(payload.data)
    assert engine.wrong_pages(group, into, A) > 0
    assert load(engine, arena, group, A, into) is ItemStatus.OK
    assert engine.wrong_pages(group, into, A) == 0
    assert engine.wrong_pages(group, pages, A) == 0


def test_a_replicated_row_is_read_from_the_first_rank_and_written_to_all(engine: RankEngine, arena: Arena) -> None:
    pages, into = (0, 1, 2, 3), (4, 5, 6, 7)
    engine.compute(LATENT, pages, A)
    for block in pages:
        engine.page(LATENT, 1, 0, block)[:] = 0  # the other rank differs, which it never should
    assert store(engine, arena, LATENT, A, pages) is ItemStatus.OK
    assert load(engine, arena, LATENT, A, into) is ItemStatus.OK
    assert engine.wrong_pages(LATENT, into, A) == 0


def test_groups_keep_apart_what_has_the_same_name(engine: RankEngine, arena: Arena) -> None:
    engine.compute(FULL, (0, 1, 2, 3), A)
    assert store(engine, arena, FULL, A, (0, 1, 2, 3)) is ItemStatus.OK
    assert load(engine, arena, LATENT, A, (4, 5, 6, 7)) is ItemStatus.IDENTITY_MISMATCH
    assert load(engine, arena, WINDOW, A, (4, 5)) is ItemStatus.IDENTITY_MISMATCH


def test_parts_without_a_page_are_left_out_of_a_load_and_the_rest_arrives(engine: RankEngine, arena: Arena) -> None:
    pages, into = (0, 1, 2, 3), (NOWHERE, 8, NOWHERE, 9)
    engine.compute(FULL, pages, A)
    assert store(engine, arena, FULL, A, pages) is ItemStatus.OK
    before = [engine.mapping.memory(rank).copy() for rank in range(2)]
    assert load(engine, arena, FULL, A, into) is ItemStatus.OK
    assert engine.wrong_pages(FULL, into, A) == 0
    for rank in range(2):
        for block in (8, 9):
            for region in range(3):
                engine.page(FULL, rank, region, block)[:] = 0
        changed = np.flatnonzero(engine.mapping.memory(rank) != before[rank])
        assert not changed.size  # nothing but those pages was written
    arena.payload(0)[0] ^= 1  # in a part that is left out: the row is damaged all the same
    assert load(engine, arena, FULL, A, into) is ItemStatus.CORRUPT


def test_a_row_without_one_of_its_pages_cannot_be_stored(engine: RankEngine, arena: Arena) -> None:
    assert store(engine, arena, FULL, A, (0, 1, NOWHERE, 3)) is ItemStatus.SKIPPED
    assert arena.read(0).verdict is HeaderVerdict.EMPTY


@pytest.mark.parametrize("kind", [JobKind.G1_G2, JobKind.G2_G1])
def test_a_page_beyond_the_engine_is_never_touched(engine: RankEngine, arena: Arena, kind: JobKind) -> None:
    assert run(engine, arena, row_job(kind, FULL, A, (0, 1, 2, BLOCKS), 0, 1)) is ItemStatus.SKIPPED


@pytest.mark.parametrize("moved", range(PER_ROW))
def test_every_page_of_a_row_has_a_guard(engine: RankEngine, arena: Arena, moved: int) -> None:
    pages = (3, 9, 0, 15)
    engine.compute(FULL, pages, A)
    assert store(engine, arena, FULL, A, pages, slot=1) is ItemStatus.OK
    engine.raise_guard(pages[moved])
    assert store(engine, arena, FULL, A, pages) is ItemStatus.SOURCE_CHANGED
    assert arena.read(0).verdict is HeaderVerdict.EMPTY
    before = engine.mapping.memory(0).copy()
    assert load(engine, arena, FULL, A, pages, slot=1) is ItemStatus.SKIPPED
    assert np.array_equal(engine.mapping.memory(0), before)


class _ReusedInMidCopy:
    """A copier during whose work the engine gives one block to somebody else."""

    def __init__(self, engine: RankEngine, block: int) -> None:
        self._engine, self._block = engine, block
        self._real = MappedCopies(engine.mapping)

    def gather(self, group: GroupId, pages: PageColumn, payload: ByteArray) -> Iterator[ByteArray]:
        yield from self._disturbed(self._real.gather(group, pages, payload))

    def scatter(self, group: GroupId, pages: PageColumn, payload: ByteArray) -> Iterator[ByteArray]:
        yield from self._disturbed(self._real.scatter(group, pages, payload))

    def close(self) -> None:
        self._real.close()

    def _disturbed(self, pieces: Iterator[ByteArray]) -> Iterator[ByteArray]:
        for index, piece in enumerate(pieces):
            if index == 1:
                self._engine.raise_guard(self._block)
            yield piece


def test_a_block_reused_in_mid_copy_never_becomes_a_stored_row(engine: RankEngine, arena: Arena) -> None:
    pages = (3, 9, 0, 15)
    job = row_job(JobKind.G1_G2, FULL, A, pages, 0, 1)
    mapped = MappedEngine(engine.mapping, _ReusedInMidCopy(engine, 0))
    work = EngineCopies(job, ScriptedControl(job), arena, mapped).store()
    assert _only(work) is ItemStatus.SOURCE_CHANGED
    assert arena.read(0).verdict is HeaderVerdict.WRITING


def test_a_block_reused_in_mid_copy_is_no_loaded_row(engine: RankEngine, arena: Arena) -> None:
    engine.compute(FULL, (3, 9, 0, 15), A)
    assert store(engine, arena, FULL, A, (3, 9, 0, 15)) is ItemStatus.OK
    job = row_job(JobKind.G2_G1, FULL, A, (4, 5, NOWHERE, 7), 0, 1)
    mapped = MappedEngine(engine.mapping, _ReusedInMidCopy(engine, 7))
    assert _only(EngineCopies(job, ScriptedControl(job), arena, mapped).load(verify=True)) is ItemStatus.SKIPPED
    assert arena.read(0).verdict is HeaderVerdict.READY


def test_a_job_with_another_number_of_pages_is_refused(engine: RankEngine, arena: Arena) -> None:
    with pytest.raises(RequestError, match="as many pages"):
        store(engine, arena, FULL, A, (0, 1, 2))
    with pytest.raises(LayoutMismatchError, match="no such group"):
        store(engine, arena, 3, A, (0, 1, 2, 3))


def test_damage_is_told_from_a_slot_that_was_granted_again(engine: RankEngine, arena: Arena) -> None:
    engine.compute(WINDOW, (0, 1), A)
    assert store(engine, arena, WINDOW, A, (0, 1)) is ItemStatus.OK
    assert run(engine, arena, row_job(JobKind.G2_G1, WINDOW, A, (4, 5), 0, 2)) is ItemStatus.STALE
    arena.payload(0)[SLOT_BYTES - 1] ^= 1  # behind the row: what lower tiers move is damaged
    assert load(engine, arena, WINDOW, A, (4, 5)) is ItemStatus.CORRUPT
    assert arena.read(0).verdict is HeaderVerdict.BAD


def _only(work: Iterator[None]) -> ItemStatus:
    while True:
        try:
            next(work)
        except StopIteration as end:
            (status,) = end.value
            assert isinstance(status, ItemStatus)
            return status


@st.composite
def layouts(draw: st.DrawFn) -> tuple[int, GroupLayout, list[list[list[Region]]]]:
    """Any places of regions: neighbours at any distance, interleaved, reversed, larger than one copy."""
    blocks, count = draw(st.integers(1, 6)), draw(st.integers(1, 5))
    sizes = draw(
        st.one_of(
            st.integers(1, 600).map(lambda size: [size] * count),
            st.lists(st.integers(1, 600), min_size=count, max_size=count),
            st.just([COPY_CHUNK_BYTES + 3]),
        )
    )
    ranks = []
    for _ in range(draw(st.integers(1, 3))):
        if draw(st.booleans()):
            stride, offsets, at = sum(sizes) + draw(st.integers(0, 9)), [], draw(st.integers(0, 9))
            for size in sizes:
                offsets.append(at)
                at += size
            regions = [Region(offset, stride, size) for offset, size in zip(offsets, sizes, strict=True)]
        else:
            regions, at = [], draw(st.integers(0, 9))
            for size in sizes:
                stride = size + draw(st.integers(0, 9))
                regions.append(Region(at, stride, size))
                at += stride * blocks
        ranks.append([regions])
    if draw(st.booleans()):
        places = [rank[0][::-1] for rank in ranks]
        ranks = [[place] for place in places]
    per_row = draw(st.integers(1, 3))
    return blocks, GroupLayout(group=0, pages_per_row=per_row, replicated=draw(st.booleans())), ranks


@given(layouts(), st.data())
def test_any_layout_gives_back_what_it_took(
    layout: tuple[int, GroupLayout, list[list[list[Region]]]], data: st.DataObject
) -> None:
    blocks, group, ranks = layout
    pages = data.draw(st.lists(st.integers(0, blocks - 1), min_size=1, max_size=group.pages_per_row, unique=True))
    group = msgspec.structs.replace(group, pages_per_row=len(pages))
    with RankEngine(blocks, (group,), ranks) as engine:
        copier = MappedCopies(engine.mapping)
        column = np.array(pages, np.uint32)
        engine.compute(0, pages, A)
        row = np.zeros(engine.mapping.places(GroupId(0)).row_bytes, np.uint8)
        gathered = b"".join(piece.tobytes() for piece in copier.gather(GroupId(0), column, row))
        assert gathered == row.tobytes() == engine.expected_row(0, A)
        engine.compute(0, pages, B)
        scattered = b"".join(piece.tobytes() for piece in copier.scatter(GroupId(0), column, row))
        assert scattered == gathered
        assert engine.wrong_pages(0, pages, A) == 0
