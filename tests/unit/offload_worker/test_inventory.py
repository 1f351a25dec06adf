"""Listing the slots of a tier, and freeing slots of the arena."""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from blockyard.core.vocabulary import ROOT_KEY, BlockId, Generation, GroupId, ItemStatus, JobKind, Tier
from blockyard.testing.worker_jobs import TEST_IDENTITY, TEST_TENANT, Move, ScriptedControl, named_digest, transfer_job
from blockyard.tiers.arena import PAGE_BYTES, Arena
from blockyard.tiers.header import (
    HEADER_BYTES,
    INVENTORY_BYTES,
    HeaderReading,
    HeaderState,
    HeaderVerdict,
    InventoryRecord,
    SlotHeader,
    parse_inventory,
)
from blockyard_offload_worker.inventory import PAGE_SLOTS, SlotListing, SlotTable, list_slots
from blockyard_offload_worker.job_items import free_items
from blockyard_offload_worker.releases import free_in_arena

SIZE = 4_096
NOTHING: frozenset[int] = frozenset()


@pytest.fixture
def arena() -> Iterator[Arena]:
    with Arena.create(slots=600, payload_bytes=SIZE) as arena:
        yield arena


def put(arena: Arena, slot: int, generation: int = 1) -> None:
    arena.begin_write(slot, Generation(generation))
    arena.publish(
        SlotHeader(
            generation=Generation(generation),
            identity=TEST_IDENTITY,
            digest=named_digest(str(slot)),
            parent=ROOT_KEY,
            position=0,
            payload_bytes=SIZE,
            checksum=bytes(16),
            slot=BlockId(slot),
            file_id=arena.arena_id,
            tenant=TEST_TENANT,
            group=GroupId(5),
        )
    )


@dataclass
class EmptySlots:
    """A table in which nothing was ever written; remembers which slots were looked at."""

    slots: int
    seen: list[int] = field(default_factory=list)

    def read(self, slot: int) -> HeaderReading:
        self.seen.append(slot)
        return HeaderReading(HeaderVerdict.EMPTY, Generation(0), bytes(HEADER_BYTES))


def listed(arena: SlotTable, cursor: int = 0, limit: int = 1_000, busy: frozenset[int] = NOTHING) -> SlotListing:
    work = list_slots(arena, cursor, limit, busy)
    while True:
        try:
            next(work)
        except StopIteration as end:
            page: SlotListing = end.value
            return page


def records(page: SlotListing) -> list[InventoryRecord]:
    return list(parse_inventory(page.records))


def freed(arena: Arena, *moves: Move, bad: bool = False) -> list[ItemStatus]:
    job = transfer_job(JobKind.FREE, moves, payload_bytes=SIZE, free_tier=Tier.G2, bad=bad)
    work = free_in_arena(job, free_items(job.items), ScriptedControl(job), arena)
    try:
        while True:
            next(work)
    except StopIteration as end:
        statuses: list[ItemStatus] = end.value
        return statuses


def test_every_block_is_listed_with_its_names(arena: Arena) -> None:
    put(arena, 3, generation=9)
    page = listed(arena)
    (record,) = records(page)
    assert (record.block, record.generation, record.state) == (3, 9, HeaderState.READY)
    assert (record.identity, record.digest, record.tenant) == (TEST_IDENTITY, named_digest("3"), TEST_TENANT)
    assert (record.key, record.group, record.shard, record.shards) == (named_digest("3")[:16], 5, 0, 1)
    assert (page.cursor, page.end) == (600, True)


def test_pages_follow_each_other_without_gap_or_repetition(arena: Arena) -> None:
    for slot in range(0, 600, 2):
        put(arena, slot)
    seen: list[int] = []
    cursor, end = 0, False
    while not end:
        page = listed(arena, cursor, limit=70)
        assert len(page.records) <= 70 * INVENTORY_BYTES
        seen += [record.block for record in records(page)]
        cursor, end = page.cursor, page.end
    assert seen == list(range(0, 600, 2))


def test_a_page_of_empty_slots_is_a_moments_work_too() -> None:
    """However many there are: the block-manager waits for a page only so long."""
    table = EmptySlots(2 * PAGE_SLOTS + 7)
    cursors: list[int] = []
    cursor, end = 0, False
    while not end:
        looked_at = len(table.seen)
        page = listed(table, cursor)
        assert (page.records, len(table.seen) - looked_at) == (b"", page.cursor - cursor)
        cursor, end = page.cursor, page.end
        cursors.append(cursor)
    assert cursors == [PAGE_SLOTS, 2 * PAGE_SLOTS, table.slots]
    assert table.seen == list(range(table.slots))


def test_slots_of_running_jobs_are_left_out(arena: Arena) -> None:
    put(arena, 0)
    put(arena, 1)
    assert [record.block for record in records(listed(arena, busy=frozenset({0})))] == [1]


def test_slots_without_a_block_are_listed_for_their_generation(arena: Arena) -> None:
    arena.begin_write(4, Generation(6))
    put(arena, 5)
    freed(arena, Move(named_digest("5"), target=5, target_mark=1))
    put(arena, 6)
    os.pwrite(arena.fd, b"?", PAGE_BYTES + 6 * HEADER_BYTES + 70)
    assert [(record.block, record.generation, record.state) for record in records(listed(arena))] == [
        (4, 6, HeaderState.WRITING),
        (5, 1, HeaderState.FREE),
        (6, 1, HeaderState.BAD),
    ]


def test_only_the_meant_generation_is_freed(arena: Arena) -> None:
    put(arena, 1, generation=4)
    put(arena, 2, generation=4)
    moves = [Move(named_digest(""), target=slot, target_mark=mark) for slot, mark in ((1, 4), (2, 3), (600, 1))]
    assert freed(arena, *moves) == [ItemStatus.OK, ItemStatus.SKIPPED, ItemStatus.SKIPPED]
    assert arena.read(1).verdict is HeaderVerdict.FREE
    assert arena.read(2).verdict is HeaderVerdict.READY
    assert freed(arena, Move(named_digest(""), target=2, target_mark=4), bad=True) == [ItemStatus.OK]
    assert arena.read(2).verdict is HeaderVerdict.BAD
