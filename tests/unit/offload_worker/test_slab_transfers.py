"""Copies between arena and slab on a real file: durability, damage, stale grants, a full device."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import numpy as np
import pytest

from blockyard.core.vocabulary import (
    ROOT_KEY,
    BlockId,
    ChainDigest,
    Epoch,
    Generation,
    ItemStatus,
    JobKind,
    Tier,
)
from blockyard.testing.worker_jobs import (
    TEST_IDENTITY,
    TEST_TENANT,
    Move,
    ScriptedControl,
    job_payload,
    named_digest,
    transfer_job,
)
from blockyard.tiers.arena import Arena
from blockyard.tiers.base import MoveOutcome, Mover, SlabRegion, SlotArray
from blockyard.tiers.checksum import copy_and_hash
from blockyard.tiers.g3_slab.committer import CommitPolicy
from blockyard.tiers.g3_slab.slab import Slab
from blockyard.tiers.header import HeaderVerdict, SlotHeader
from blockyard.tiers.plain_mover import PlainMover
from blockyard_offload_worker.copy_thread import CopyThread
from blockyard_offload_worker.job_items import copy_items, free_items
from blockyard_offload_worker.slab_transfers import SlabTransfers

SIZE = 8_192
A, B = named_digest("a"), named_digest("b")


class ScriptedMover:
    """The plain mover with a script for what goes wrong."""

    def __init__(self, inner: PlainMover, arena: Arena) -> None:
        self._inner = inner
        self._arena = arena
        self.outcome: MoveOutcome | None = None
        self.torn_reads = 0
        self.reads = 0
        self.regrant: tuple[int, Generation] | None = None

    @property
    def name(self) -> str:
        return "scripted"

    @property
    def failure(self) -> str:
        return ""

    async def write(self, region: SlabRegion, arena_slots: SlotArray, file_slots: SlotArray) -> list[MoveOutcome]:
        outcomes = await self._inner.write(region, arena_slots, file_slots)
        if self.regrant is not None:
            self._arena.begin_write(*self.regrant)
        return outcomes if self.outcome is None else [self.outcome, *outcomes[1:]]

    async def read(self, region: SlabRegion, arena_slots: SlotArray, file_slots: SlotArray) -> list[MoveOutcome]:
        outcomes = await self._inner.read(region, arena_slots, file_slots)
        self.reads += 1
        if self.reads <= self.torn_reads:
            self._arena.payload(int(arena_slots[0]))[0] ^= 1
        return outcomes if self.outcome is None else [self.outcome, *outcomes[1:]]

    async def close(self) -> None:
        await self._inner.close()


@pytest.fixture
def arena() -> Iterator[Arena]:
    with Arena.create(slots=4, payload_bytes=SIZE) as arena:
        yield arena


@pytest.fixture
async def mover(arena: Arena) -> AsyncIterator[ScriptedMover]:
    mover = ScriptedMover(PlainMover(arena), arena)
    yield mover
    await mover.close()


@pytest.fixture
async def slab(tmp_path: Path) -> AsyncIterator[Slab]:
    slab = await asyncio.to_thread(
        Slab.open, tmp_path, 4, SIZE, worker_epoch=Epoch(1), policy=CommitPolicy(interval_seconds=0.001)
    )
    yield slab
    await slab.close()


@pytest.fixture
def transfers(arena: Arena, mover: Mover, slab: Slab) -> Iterator[SlabTransfers]:
    with CopyThread() as copies:
        yield SlabTransfers(arena, slab, mover, copies, verify=True)


def put(arena: Arena, slot: int, generation: int, digest: ChainDigest) -> None:
    payload = arena.begin_write(slot, Generation(generation))
    checksum = copy_and_hash(payload, job_payload(digest, SIZE))
    arena.publish(
        SlotHeader(
            generation=Generation(generation),
            identity=TEST_IDENTITY,
            digest=digest,
            parent=ROOT_KEY,
            position=0,
            payload_bytes=SIZE,
            checksum=checksum,
            slot=BlockId(slot),
            file_id=arena.arena_id,
            tenant=TEST_TENANT,
        )
    )


async def store(transfers: SlabTransfers, *moves: Move, forbidden: frozenset[int] = frozenset()) -> list[ItemStatus]:
    job = transfer_job(JobKind.G2_G3, moves, payload_bytes=SIZE)
    return await transfers.store(job, copy_items(job.items), ScriptedControl(job, set(forbidden)))


async def load(transfers: SlabTransfers, *moves: Move) -> list[ItemStatus]:
    job = transfer_job(JobKind.G3_G2, moves, payload_bytes=SIZE)
    return await transfers.load(job, copy_items(job.items), ScriptedControl(job))


async def free(transfers: SlabTransfers, *moves: Move, bad: bool = False) -> list[ItemStatus]:
    job = transfer_job(JobKind.FREE, moves, payload_bytes=SIZE, free_tier=Tier.G3, bad=bad)
    return await transfers.free(job, free_items(job.items), ScriptedControl(job))


async def test_a_block_comes_back_from_disk_with_its_bytes(transfers: SlabTransfers) -> None:
    put(transfers.arena, 0, 1, A)
    put(transfers.arena, 1, 1, B)
    assert await store(transfers, Move(A, 0, 1, 2, 5), Move(B, 1, 1, 3, 6)) == [ItemStatus.OK] * 2
    header = transfers.slab.read(3).header
    assert (header.digest, header.parent, header.generation, header.tenant) == (B, A[:16], 6, TEST_TENANT)
    assert await load(transfers, Move(A, 2, 5, 2, 1), Move(B, 3, 6, 3, 1)) == [ItemStatus.OK] * 2
    assert np.array_equal(transfers.arena.payload(2), job_payload(A, SIZE))
    assert transfers.arena.read(3).header.digest == B
    assert transfers.arena.read(3).header.file_id == transfers.arena.arena_id


async def test_a_damaged_source_is_not_stored_and_becomes_bad(transfers: SlabTransfers) -> None:
    put(transfers.arena, 0, 1, A)
    put(transfers.arena, 1, 1, B)
    transfers.arena.payload(0)[7] ^= 1
    assert await store(transfers, Move(A, 0, 1, 2, 1), Move(B, 1, 1, 3, 1)) == [ItemStatus.CORRUPT, ItemStatus.OK]
    assert transfers.arena.read(0).verdict is HeaderVerdict.BAD
    assert transfers.slab.read(2).verdict is HeaderVerdict.EMPTY


async def test_without_permission_nothing_reaches_the_disk(transfers: SlabTransfers) -> None:
    put(transfers.arena, 0, 1, A)
    assert await store(transfers, Move(A, 0, 1, 2, 1), forbidden=frozenset({0})) == [ItemStatus.SKIPPED]
    assert transfers.slab.read(2).verdict is HeaderVerdict.EMPTY


async def test_grants_that_are_not_above_the_header_are_skipped(transfers: SlabTransfers) -> None:
    put(transfers.arena, 0, 1, A)
    await store(transfers, Move(A, 0, 1, 2, 5))
    assert await store(transfers, Move(A, 0, 1, 2, 5)) == [ItemStatus.SKIPPED]
    assert await load(transfers, Move(A, 2, 5, 0, 1)) == [ItemStatus.SKIPPED]
    assert transfers.arena.read(0).verdict is HeaderVerdict.READY


async def test_slots_beyond_the_tiers_are_skipped(transfers: SlabTransfers) -> None:
    put(transfers.arena, 0, 1, A)
    assert await store(transfers, Move(A, 9, 1, 0, 1), Move(A, 0, 1, 9, 1)) == [ItemStatus.SKIPPED] * 2
    assert await load(transfers, Move(A, 9, 1, 1, 1), Move(A, 0, 1, 9, 1)) == [ItemStatus.SKIPPED] * 2
    assert await free(transfers, Move(A, target=9, target_mark=1)) == [ItemStatus.SKIPPED]


async def test_a_full_device_fails_its_block_only_and_later_stores_go_on(
    transfers: SlabTransfers, mover: ScriptedMover
) -> None:
    put(transfers.arena, 0, 1, A)
    put(transfers.arena, 1, 1, B)
    mover.outcome = MoveOutcome.NO_SPACE
    assert await store(transfers, Move(A, 0, 1, 2, 1), Move(B, 1, 1, 3, 1)) == [ItemStatus.NO_SPACE, ItemStatus.OK]
    assert not transfers.slab.read(2).verdict.is_block
    mover.outcome = None
    assert await store(transfers, Move(A, 0, 1, 2, 2)) == [ItemStatus.OK]


async def test_a_source_that_was_granted_again_during_the_move_is_taken_back(
    transfers: SlabTransfers, mover: ScriptedMover
) -> None:
    put(transfers.arena, 0, 1, A)
    mover.regrant = (0, Generation(2))
    assert await store(transfers, Move(A, 0, 1, 2, 1)) == [ItemStatus.STALE]
    assert transfers.slab.read(2).verdict is HeaderVerdict.FREE


async def test_a_flipped_byte_on_disk_is_corrupt_and_its_page_becomes_bad(
    transfers: SlabTransfers, mover: ScriptedMover
) -> None:
    put(transfers.arena, 0, 1, A)
    put(transfers.arena, 1, 1, B)
    await store(transfers, Move(A, 0, 1, 2, 1), Move(B, 1, 1, 3, 1))
    transfers.arena.payload(0)[7] ^= 1
    slots = np.array([0], np.int32), np.array([2], np.int32)
    await mover.write(transfers.slab.region, *slots)
    assert await load(transfers, Move(A, 2, 1, 2, 1), Move(B, 3, 1, 3, 1)) == [ItemStatus.CORRUPT, ItemStatus.OK]
    assert mover.reads == 2
    assert transfers.slab.read(2).verdict is HeaderVerdict.BAD
    assert not transfers.arena.read(2).verdict.is_block
    assert await load(transfers, Move(A, 2, 1, 2, 2)) == [ItemStatus.CORRUPT]


async def test_a_torn_read_is_repeated_and_condemns_nothing(transfers: SlabTransfers, mover: ScriptedMover) -> None:
    put(transfers.arena, 0, 1, A)
    await store(transfers, Move(A, 0, 1, 2, 1))
    mover.torn_reads = 1
    assert await load(transfers, Move(A, 2, 1, 2, 1)) == [ItemStatus.OK]
    assert transfers.slab.read(2).verdict is HeaderVerdict.READY


async def test_a_read_error_fails_its_block_only(transfers: SlabTransfers, mover: ScriptedMover) -> None:
    put(transfers.arena, 0, 1, A)
    put(transfers.arena, 1, 1, B)
    await store(transfers, Move(A, 0, 1, 2, 1), Move(B, 1, 1, 3, 1))
    mover.outcome = MoveOutcome.IO_ERROR
    assert await load(transfers, Move(A, 2, 1, 2, 1), Move(B, 3, 1, 3, 1)) == [ItemStatus.IO_ERROR, ItemStatus.OK]


async def test_another_block_than_asked_for_is_told_from_a_stale_one(transfers: SlabTransfers) -> None:
    put(transfers.arena, 0, 1, A)
    await store(transfers, Move(A, 0, 1, 2, 5))
    wrong = [ItemStatus.IDENTITY_MISMATCH, ItemStatus.STALE]
    assert await load(transfers, Move(B, 2, 5, 2, 1), Move(A, 2, 4, 3, 1)) == wrong
    assert await store(transfers, Move(B, 0, 1, 1, 1), Move(A, 0, 7, 3, 1)) == wrong


async def test_freed_slots_hold_no_block_and_other_generations_stay(transfers: SlabTransfers) -> None:
    put(transfers.arena, 0, 1, A)
    await store(transfers, Move(A, 0, 1, 2, 5), Move(A, 0, 1, 3, 5))
    gone = Move(A, target=2, target_mark=5), Move(A, target=3, target_mark=4)
    assert await free(transfers, *gone) == [ItemStatus.OK, ItemStatus.SKIPPED]
    assert transfers.slab.read(2).verdict is HeaderVerdict.FREE
    assert transfers.slab.read(3).verdict is HeaderVerdict.READY
    assert await free(transfers, Move(A, target=3, target_mark=5), bad=True) == [ItemStatus.OK]
    assert transfers.slab.read(3).verdict is HeaderVerdict.BAD


async def test_without_verification_damage_is_not_noticed(transfers: SlabTransfers) -> None:
    blind = SlabTransfers(transfers.arena, transfers.slab, transfers.mover, transfers.copies, verify=False)
    put(transfers.arena, 0, 1, A)
    transfers.arena.payload(0)[7] ^= 1
    assert await store(blind, Move(A, 0, 1, 2, 1)) == [ItemStatus.OK]
