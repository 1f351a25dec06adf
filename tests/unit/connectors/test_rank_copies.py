"""Copies of a rank between its pages and slots of the arena: layout, grants, ends and what becomes of bad rows."""

import threading
from collections.abc import Iterator
from dataclasses import replace
from random import Random

import numpy as np
import pytest

from blockyard.connectors.rank_copies import CopyKind, EndedCopy, RankCopies, RankLayout, RowCopy
from blockyard.core.errors import LayoutMismatchError
from blockyard.core.kv_groups import NO_PAGE, GroupKind, KvGroup, Region
from blockyard.core.vocabulary import BlockId, EngineBlockId, Generation, GroupId, ItemStatus
from blockyard.testing.byte_patterns import header_of, pattern
from blockyard.testing.sim_device import SimDevice
from blockyard.tiers.arena import Arena
from blockyard.tiers.device.events import EventPool
from blockyard.tiers.device.fences import Fences
from blockyard.tiers.device.host import HostDevice, HostPages, ThreadStream, host_pages
from blockyard.tiers.header import HeaderVerdict

BLOCKS, PAGE, PER_ROW, RANKS, SLOT_BYTES = 8, 48, 2, 2, 520
FULL = KvGroup(engine_block_tokens=4)
WINDOW = KvGroup(group=GroupId(1), kind=GroupKind.SLIDING_WINDOW, engine_block_tokens=4, window_tokens=8)
LATENT = KvGroup(group=GroupId(2), engine_block_tokens=4, replicated=True)
GROUPS = (FULL, WINDOW, LATENT)
REGIONS = (2, 1, 1)


class Rank:
    """One rank with pages of all groups, on inline streams."""

    def __init__(self, rank: int, arena: Arena) -> None:
        self.memory = pattern(100 + rank, BLOCKS * PAGE * sum(REGIONS)).copy()
        regions = [Region(index * BLOCKS * PAGE, PAGE, PAGE) for index in range(sum(REGIONS))]
        views = [host_pages(self.memory, region, BLOCKS) for region in regions]
        self.pages: tuple[tuple[HostPages, ...], ...] = (tuple(views[:2]), (views[2],), (views[3],))
        self.layout = RankLayout(rank, RANKS, PER_ROW * 4, GROUPS, self.pages)
        self.device = HostDevice(inline=True)
        self.events = EventPool(self.device.new_event, Fences())
        self.copies = RankCopies(self.device, Fences(), self.events, self.layout, arena)

    def store(self, *rows: RowCopy) -> EndedCopy:
        step = self.copies.step_ended()
        self.copies.submit_store(step, rows)
        step.release()
        (ended,) = self.copies.poll()
        return ended

    def load(self, *rows: RowCopy) -> EndedCopy:
        self.copies.submit_load(rows)
        (ended,) = self.copies.poll()
        return ended


@pytest.fixture
def arena() -> Iterator[Arena]:
    with Arena.create(4, SLOT_BYTES) as arena:
        yield arena


@pytest.fixture
def ranks(arena: Arena) -> list[Rank]:
    return [Rank(0, arena), Rank(1, arena)]


def row(slot: int, *pages: int, generation: int = 1, group: KvGroup = FULL) -> RowCopy:
    return RowCopy(tuple(map(EngineBlockId, pages)), BlockId(slot), Generation(generation), group.group)


def seal(arena: Arena, slot: int, generation: int = 1) -> None:
    """What the node does once all shards are committed."""
    payload = arena.payload(slot)
    arena.publish(header_of(9, payload, file_id=arena.arena_id, slot=slot, generation=generation))


def test_shards_lie_side_by_side_with_zeros_behind_them(arena: Arena, ranks: list[Rank]) -> None:
    arena.payload(2)[:] = 255
    for rank in ranks:
        assert rank.store(row(2, 5, 3)).statuses == (ItemStatus.OK,)
    pages = [
        region[block].tobytes() for rank in ranks for block in (5, 3) for region in rank.pages[0]
    ]  # the order that core.kv_groups states
    expected = b"".join(pages)
    assert arena.payload(2).tobytes() == expected.ljust(SLOT_BYTES, b"\0")
    reading = arena.read(2)
    assert (reading.verdict, reading.generation) == (HeaderVerdict.WRITING, 1)


def test_a_row_comes_back_into_other_pages_of_every_rank(arena: Arena, ranks: list[Rank]) -> None:
    for group in (FULL, WINDOW):
        slot = group.group
        saved = [[region[[5, 3]].copy() for region in rank.pages[group.group]] for rank in ranks]
        for rank in ranks:
            rank.store(row(slot, 5, 3, group=group))
        seal(arena, slot)
        for rank in ranks:
            ended = rank.load(row(slot, 0, 7, group=group))
            assert (ended.kind, ended.statuses) == (CopyKind.LOAD, (ItemStatus.OK,))
        loaded = [[region[[0, 7]] for region in rank.pages[group.group]] for rank in ranks]
        assert all(
            np.array_equal(was, found)
            for before, after in zip(saved, loaded, strict=True)
            for was, found in zip(before, after, strict=True)
        )


def test_a_group_that_all_ranks_hold_is_written_by_the_first_and_read_by_all(arena: Arena, ranks: list[Rank]) -> None:
    latent = row(1, 2, 4, group=LATENT)
    assert ranks[1].store(latent).statuses == (ItemStatus.OK,)
    assert arena.read(1).verdict is HeaderVerdict.EMPTY
    assert ranks[0].store(latent).statuses == (ItemStatus.OK,)
    expected = ranks[0].pages[2][0][[2, 4]].tobytes()
    assert arena.payload(1).tobytes() == expected.ljust(SLOT_BYTES, b"\0")
    seal(arena, 1)
    for rank in ranks:
        assert rank.load(row(1, 0, 1, group=LATENT)).statuses == (ItemStatus.OK,)
        assert rank.pages[2][0][[0, 1]].tobytes() == expected


def test_a_load_leaves_pages_alone_that_the_engine_has_no_use_for(arena: Arena, ranks: list[Rank]) -> None:
    for rank in ranks:
        rank.store(row(0, 5, 3))
    seal(arena, 0)
    before = ranks[1].memory.copy()
    assert ranks[1].load(row(0, NO_PAGE, 6)).statuses == (ItemStatus.OK,)
    for region in ranks[1].pages[0]:
        assert np.array_equal(region[6], region[3])
        region[6] = before.reshape(-1, BLOCKS, PAGE)[0 if region is ranks[1].pages[0][0] else 1, 6]
    assert np.array_equal(ranks[1].memory, before)


def test_rows_that_cannot_be_stored_are_left_out_and_the_others_are_stored(arena: Arena, ranks: list[Rank]) -> None:
    arena.begin_write(0, Generation(7))
    unknown = replace(row(1, 1, 2), group=GroupId(9))
    ended = ranks[0].store(
        row(0, 1, 2, generation=6), row(1, NO_PAGE, 2), row(1, 1), row(1, 1, BLOCKS), unknown, row(2, 1, 2)
    )
    skipped = ItemStatus.SKIPPED
    assert ended.statuses == (ItemStatus.STALE, *[skipped] * 4, ItemStatus.OK)
    assert arena.read(1).verdict is HeaderVerdict.EMPTY
    assert not arena.payload(0).any()


def test_a_slot_that_was_published_under_the_same_grant_is_not_written_again(arena: Arena, ranks: list[Rank]) -> None:
    ranks[0].store(row(0, 5, 3))
    seal(arena, 0)
    assert ranks[1].store(row(0, 5, 3)).statuses == (ItemStatus.STALE,)
    assert not arena.payload(0)[200:].any()


def test_a_slot_of_another_generation_is_not_loaded(arena: Arena, ranks: list[Rank]) -> None:
    ranks[0].store(row(0, 5, 3))
    before = ranks[0].memory.copy()
    assert ranks[0].load(row(0, 1, 2)).statuses == (ItemStatus.STALE,)  # no record yet
    seal(arena, 0)
    assert ranks[0].load(row(0, 1, 2, generation=2)).statuses == (ItemStatus.STALE,)
    assert np.array_equal(ranks[0].memory, before)


def test_rows_that_cannot_be_loaded_are_left_out_and_the_others_are_loaded(arena: Arena, ranks: list[Rank]) -> None:
    ranks[0].store(row(0, 5, 3))
    seal(arena, 0)
    unknown = replace(row(0, 1, 2), group=GroupId(9))
    ended = ranks[0].load(row(0, 1), row(0, 1, BLOCKS), row(0, 1, -1), unknown, row(0, 1, 2))
    assert ended.statuses == (*[ItemStatus.SKIPPED] * 4, ItemStatus.OK)
    assert np.array_equal(ranks[0].pages[0][1][2], ranks[0].pages[0][1][3])


def test_a_load_whose_slot_changes_under_way_fails(arena: Arena, ranks: list[Rank]) -> None:
    ranks[0].store(row(0, 5, 3))
    seal(arena, 0)
    ranks[0].copies.submit_load([row(0, 1, 2)])
    arena.begin_write(0, Generation(2))
    (ended,) = ranks[0].copies.poll()
    assert ended.statuses == (ItemStatus.STALE,)


def test_events_are_used_again_from_copy_to_copy(arena: Arena, ranks: list[Rank]) -> None:
    for generation in range(1, 20):
        ranks[0].store(row(0, 5, 3, generation=generation))
        assert ranks[0].copies.pending == 0
    assert ranks[0].events.made == ranks[0].events.free == 2


def test_an_end_is_reported_once_and_only_when_the_copy_is_done(arena: Arena, ranks: list[Rank]) -> None:
    device = SimDevice(Random(1))
    events = EventPool(device.new_event, Fences())
    copies = RankCopies(device, Fences(), events, ranks[0].layout, arena)
    step = copies.step_ended()
    copy = copies.submit_store(step, [row(0, 5, 3)])
    step.release()
    assert copies.poll() == ()
    assert not arena.payload(0).any()
    device.synchronize()
    (ended,) = copies.poll()
    assert ended == EndedCopy(copy, CopyKind.STORE, (ItemStatus.OK,))
    assert copies.poll() == ()


@pytest.mark.parametrize("seed", range(20))
def test_a_load_waits_for_stores_that_read_its_pages(arena: Arena, ranks: list[Rank], seed: int) -> None:
    rank = ranks[0]
    rank.store(row(1, 0, 1))
    seal(arena, 1)
    expected = b"".join(region[block].tobytes() for block in (5, 3) for region in rank.pages[0])
    device = SimDevice(Random(seed))
    copies = RankCopies(device, Fences(), EventPool(device.new_event, Fences()), rank.layout, arena)
    step = copies.step_ended()
    copies.submit_store(step, [row(0, 5, 3)])
    step.release()
    copies.submit_load([row(1, 5, 3)])
    device.synchronize()
    assert arena.payload(0)[: len(expected)].tobytes() == expected
    assert rank.pages[0][0][5].tobytes() == rank.pages[0][0][0].tobytes()


def test_close_waits_for_copies_and_names_their_ends(arena: Arena, ranks: list[Rank]) -> None:
    device = SimDevice(Random(1))
    events = EventPool(device.new_event, Fences())
    with RankCopies(device, Fences(), events, ranks[0].layout, arena) as copies:
        step = copies.step_ended()
        copy = copies.submit_store(step, [row(0, 5, 3)])
        step.release()
        assert [ended.copy for ended in copies.close()] == [copy]
        assert arena.payload(0)[:PAGE].tobytes() == ranks[0].pages[0][0][5].tobytes()
    assert events.free == events.made


def test_on_the_host_a_rewrite_blocks_its_caller_until_the_store_has_read_the_page(
    arena: Arena, ranks: list[Rank], monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = threading.Event()
    with HostDevice() as device:
        streams = [ThreadStream("stores"), ThreadStream("loads")]
        monkeypatch.setattr(device, "new_stream", iter(streams).__next__)
        copies = RankCopies(device, Fences(), EventPool(device.new_event, Fences()), ranks[0].layout, arena)
        streams[0].submit(lambda: _pass(gate))
        step = copies.step_ended()
        copies.submit_store(step, [row(0, 5, 3)])
        step.release()
        assert copies.poll() == ()
        copies.before_rewrite([EngineBlockId(1), EngineBlockId(2)])  # nobody reads these: returns at once
        page, seen = ranks[0].pages[0][0][3], list[bytes]()
        expected = page.tobytes()

        def rewrite() -> None:
            copies.before_rewrite([EngineBlockId(3)])
            page[:] = 0
            seen.append(arena.payload(0)[2 * PAGE : 3 * PAGE].tobytes())

        compute = threading.Thread(target=rewrite)
        compute.start()
        gate.set()
        compute.join(10)
        assert seen == [expected]
        assert len(copies.poll()) == 1
        for stream in streams:
            stream.close()


def _pass(gate: threading.Event) -> None:
    assert gate.wait(10)


def test_rows_that_do_not_fit_a_slot_are_refused_by_name(ranks: list[Rank]) -> None:
    with Arena.create(1, 100) as small, pytest.raises(LayoutMismatchError, match=r"row_bytes=384, slot=100"):
        RankCopies(ranks[0].device, Fences(), ranks[0].events, ranks[0].layout, small)


def test_every_group_needs_pages(arena: Arena, ranks: list[Rank]) -> None:
    layout = replace(ranks[0].layout, pages=ranks[0].pages[:1])
    with pytest.raises(LayoutMismatchError, match="pages for every group"):
        RankCopies(ranks[0].device, Fences(), ranks[0].events, layout, arena)
