"""Stores and frees of a slab, driven cycle by cycle."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from blockyard.core.errors import (
    BlockSizeMismatchError,
    BlockStateError,
    NoSpaceError,
    StorageError,
    TransferError,
    UnsupportedOperationError,
)
from blockyard.core.vocabulary import BlockId, Generation, ItemStatus
from blockyard.testing.byte_patterns import pattern
from blockyard.testing.slab_files import FileCall, MemorySlabFile
from blockyard.testing.slab_kit import (
    HeldMover,
    InlineMover,
    SteppedSlab,
    after_restart,
    block_for,
    broken_promises,
    file_bytes,
    format_in_memory,
    let_tasks_run,
    open_stepped,
)
from blockyard.tiers.arena import PAGE_BYTES, Arena
from blockyard.tiers.base import MoveOutcome
from blockyard.tiers.g3_slab.layout import HEADER_OFFSET, SlabGeometry
from blockyard.tiers.header import HeaderState, HeaderVerdict

SLOTS = 16
OK, SKIPPED = ItemStatus.OK, ItemStatus.SKIPPED


@pytest.fixture
def arena() -> Iterator[Arena]:
    with Arena.create(SLOTS, PAGE_BYTES) as arena:
        yield arena


@pytest.fixture
def file() -> MemorySlabFile:
    file = MemorySlabFile(file_bytes(SLOTS))
    format_in_memory(file, SLOTS)
    return file


@pytest.fixture
def stepped(file: MemorySlabFile) -> Iterator[SteppedSlab]:
    stepped = open_stepped(file)
    yield stepped
    asyncio.run(stepped.slab.close())


def page_of(slot: int) -> int:
    return HEADER_OFFSET + slot * PAGE_BYTES


async def finish(stepped: SteppedSlab, change: "asyncio.Task[list[ItemStatus]]") -> list[ItemStatus]:
    while not change.done():
        await let_tasks_run()
        stepped.committer.step()
    return await change


async def store(
    stepped: SteppedSlab, arena: Arena, slots: list[int], generation: int = 1, first_seed: int = 100
) -> list[ItemStatus]:
    items = [
        block_for(stepped.slab, arena, first_seed + index, index, slot, generation) for index, slot in enumerate(slots)
    ]
    change = asyncio.create_task(stepped.slab.store(InlineMover(arena), items))
    return await finish(stepped, change)


async def free(
    stepped: SteppedSlab, slots: list[int], generation: int, state: HeaderState = HeaderState.FREE
) -> list[ItemStatus]:
    change = asyncio.create_task(stepped.slab.free(slots, [generation] * len(slots), state))
    return await finish(stepped, change)


async def test_a_stored_block_is_durable_with_the_second_sync(stepped: SteppedSlab, arena: Arena) -> None:
    item = block_for(stepped.slab, arena, 1, 0, 5, 1)
    change = asyncio.create_task(stepped.slab.store(InlineMover(arena), [item]))
    await let_tasks_run()
    before = stepped.file.syncs
    stepped.committer.step()
    await let_tasks_run()
    assert not change.done()
    assert stepped.slab.read(5).verdict is HeaderVerdict.WRITING
    stepped.committer.step()
    assert await change == [OK]
    assert stepped.file.syncs == before + 2
    assert stepped.slab.read(5).header == item.header
    assert stepped.slab.is_current(5, 1)


async def test_blocks_survive_a_restart(stepped: SteppedSlab, arena: Arena, file: MemorySlabFile) -> None:
    assert await store(stepped, arena, [3, 4, 9]) == [OK] * 3
    again = after_restart(file)
    assert again.scan.ready == 3
    assert not again.was_clean
    assert [again.pages.read(slot).verdict.is_block for slot in (2, 3, 4, 9)] == [False, True, True, True]
    await InlineMover(arena).read(stepped.slab.region, np.array([15], np.int32), np.array([9], np.int32))
    assert np.array_equal(arena.payload(15), pattern(102, PAGE_BYTES))
    assert broken_promises(file) == []


async def test_a_slab_that_was_closed_in_order_is_clean(file: MemorySlabFile) -> None:
    await open_stepped(file).slab.close()
    assert after_restart(file).was_clean


async def test_pages_of_neighbours_go_out_in_one_write(stepped: SteppedSlab, arena: Arena) -> None:
    stepped.file.writes.clear()
    await store(stepped, arena, [7, 2, 3, 4, 11])
    pages = [write for write in stepped.file.writes if write[0] < SlabGeometry(SLOTS, PAGE_BYTES).payload_offset]
    assert pages == [(page_of(2), 3 * PAGE_BYTES), (page_of(7), PAGE_BYTES), (page_of(11), PAGE_BYTES)]


async def test_an_old_grant_touches_nothing(stepped: SteppedSlab, arena: Arena) -> None:
    await store(stepped, arena, [5], generation=4)
    stepped.file.writes.clear()
    assert await store(stepped, arena, [5], generation=4, first_seed=9) == [SKIPPED]
    assert stepped.file.writes == []
    assert stepped.slab.is_current(5, 4)


async def test_one_slot_has_one_change_at_a_time(stepped: SteppedSlab, arena: Arena) -> None:
    mover = HeldMover(arena)
    first = asyncio.create_task(stepped.slab.store(mover, [block_for(stepped.slab, arena, 1, 0, 5, 1)]))
    await let_tasks_run()
    twice = [block_for(stepped.slab, arena, 2, 1, 5, 2), block_for(stepped.slab, arena, 3, 2, 5, 3)]
    assert await stepped.slab.store(mover, twice) == [SKIPPED, SKIPPED]
    assert await stepped.slab.free([5], [1]) == [SKIPPED]
    mover.release()
    assert await finish(stepped, first) == [OK]


async def test_a_freed_slot_is_gone_at_once_and_free_when_durable(stepped: SteppedSlab, arena: Arena) -> None:
    await store(stepped, arena, [5])
    change = asyncio.create_task(stepped.slab.free([5], [1]))
    await let_tasks_run()
    assert not stepped.slab.is_current(5, 1)
    assert not change.done()
    stepped.committer.step()
    assert await change == [OK]
    assert after_restart(stepped.file).pages.read(5).verdict is HeaderVerdict.FREE


async def test_freeing_needs_the_generation_of_the_header(stepped: SteppedSlab, arena: Arena) -> None:
    await store(stepped, arena, [5], generation=3)
    assert await free(stepped, [5], 2) == [SKIPPED]
    assert await free(stepped, [SLOTS], 2) == [SKIPPED]
    assert stepped.slab.is_current(5, 3)
    with pytest.raises(BlockStateError):
        await stepped.slab.free([5], [3], HeaderState.READY)
    with pytest.raises(BlockStateError):
        await stepped.slab.free([5], [3, 4])


async def test_a_slot_whose_page_is_not_ready_is_freed_without_a_write(stepped: SteppedSlab, arena: Arena) -> None:
    await store(stepped, arena, [5])
    await free(stepped, [5], 1)
    stepped.file.writes.clear()
    assert await free(stepped, [5], 1) == [OK]
    assert stepped.file.writes == []


async def test_a_condemned_block_stays_condemned(stepped: SteppedSlab, arena: Arena) -> None:
    await store(stepped, arena, [5])
    assert await free(stepped, [5], 1, HeaderState.BAD) == [OK]
    assert after_restart(stepped.file).pages.read(5).verdict is HeaderVerdict.BAD


async def test_a_ready_slot_gets_new_payload_only_after_its_page_is_free(stepped: SteppedSlab, arena: Arena) -> None:
    await store(stepped, arena, [5])
    item = block_for(stepped.slab, arena, 2, 0, 5, 2)
    stepped.file.writes.clear()
    change = asyncio.create_task(stepped.slab.store(InlineMover(arena), [item]))
    await let_tasks_run()
    assert stepped.file.writes == []
    stepped.committer.step()
    assert stepped.file.writes == [(page_of(5), PAGE_BYTES)]
    assert await finish(stepped, change) == [OK]
    assert stepped.slab.read(5).header == item.header


@pytest.mark.parametrize(
    ("error", "status"),
    [(NoSpaceError("full"), ItemStatus.NO_SPACE), (TransferError("broken"), ItemStatus.IO_ERROR)],
)
async def test_a_payload_that_cannot_be_written_fails_its_item_only(
    stepped: SteppedSlab, arena: Arena, error: TransferError, status: ItemStatus
) -> None:
    place = stepped.slab.region.offset(6)
    stepped.file.fail(FileCall.WRITE, error, place, place + PAGE_BYTES)
    assert await store(stepped, arena, [5, 6, 7]) == [OK, status, OK]
    assert stepped.slab.failure == ""
    stepped.file.heal()
    assert await store(stepped, arena, [6], generation=2) == [OK]


async def test_a_page_that_cannot_be_written_fails_its_run_and_is_freed_before_reuse(
    stepped: SteppedSlab, arena: Arena
) -> None:
    stepped.file.fail(FileCall.WRITE, NoSpaceError("full"), page_of(6), page_of(7))
    assert await store(stepped, arena, [6, 9]) == [ItemStatus.NO_SPACE, OK]
    assert not stepped.slab.read(6).verdict.is_block
    assert await store(stepped, arena, [6], generation=2) == [ItemStatus.NO_SPACE]
    stepped.file.heal()
    stepped.file.writes.clear()
    assert await store(stepped, arena, [6], generation=3) == [OK]
    assert stepped.file.writes[0] == (page_of(6), PAGE_BYTES)


async def test_a_failed_sync_fails_the_slab_for_good_and_reads_go_on(stepped: SteppedSlab, arena: Arena) -> None:
    await store(stepped, arena, [5])
    stepped.file.fail(FileCall.SYNC, TransferError("device lost"))
    assert await store(stepped, arena, [6, 7]) == [ItemStatus.IO_ERROR] * 2
    stepped.file.heal()
    stepped.file.writes.clear()
    assert await store(stepped, arena, [8]) == [ItemStatus.IO_ERROR]
    assert await free(stepped, [5], 1) == [ItemStatus.IO_ERROR]
    assert stepped.file.writes == []
    assert "device lost" in stepped.slab.failure
    assert stepped.slab.info().failed
    assert stepped.slab.is_current(5, 1)


async def test_the_slab_of_a_failed_sync_is_not_marked_clean(file: MemorySlabFile, arena: Arena) -> None:
    stepped = open_stepped(file)
    file.fail(FileCall.SYNC, TransferError("device lost"))
    await store(stepped, arena, [6])
    file.heal()
    await stepped.slab.close()
    assert not after_restart(file).was_clean


async def test_headers_that_are_not_for_this_slab_are_refused_whole(stepped: SteppedSlab, arena: Arena) -> None:
    good = block_for(stepped.slab, arena, 1, 0, 5, 1)
    wrong = [
        replace(good, header=replace(good.header, file_id=bytes(16))),
        replace(good, header=replace(good.header, slot=BlockId(SLOTS))),
        replace(good, header=replace(good.header, state=HeaderState.FREE)),
    ]
    for item in wrong:
        with pytest.raises(BlockStateError):
            await stepped.slab.store(InlineMover(arena), [good, item])
    long = replace(good, header=replace(good.header, payload_bytes=PAGE_BYTES + 1))
    with pytest.raises(BlockSizeMismatchError):
        await stepped.slab.store(InlineMover(arena), [good, long])
    assert stepped.slab.read(5).verdict is HeaderVerdict.EMPTY


async def test_a_store_goes_on_when_its_waiter_leaves(stepped: SteppedSlab, arena: Arena) -> None:
    mover = HeldMover(arena)
    waiter = asyncio.create_task(stepped.slab.store(mover, [block_for(stepped.slab, arena, 1, 0, 5, 1)]))
    await let_tasks_run()
    waiter.cancel()
    await let_tasks_run()
    assert waiter.cancelled()
    assert await stepped.slab.free([5], [1]) == [SKIPPED]
    mover.release()
    for _ in range(2):
        await let_tasks_run()
        stepped.committer.step()
    await let_tasks_run()
    assert stepped.slab.is_current(5, 1)


async def test_a_closed_slab_takes_no_changes(file: MemorySlabFile, arena: Arena) -> None:
    stepped = open_stepped(file)
    await stepped.slab.close()
    await stepped.slab.close()
    assert file.closed
    with pytest.raises(UnsupportedOperationError):
        await stepped.slab.free([1], [1])


async def test_a_store_that_never_ends_does_not_keep_the_slab_open(file: MemorySlabFile, arena: Arena) -> None:
    stepped, mover = open_stepped(file), HeldMover(arena)
    waiting = asyncio.create_task(stepped.slab.store(mover, [block_for(stepped.slab, arena, 1, 1, 1, 1)]))
    await let_tasks_run()
    assert mover.held == 1
    with pytest.raises(StorageError, match="never ended"):
        await stepped.slab.close(timeout_seconds=0.01)
    assert file.closed
    waiting.cancel()
    # Its end is of no interest to anybody any more, and must not disturb the loop.
    mover.release()
    await let_tasks_run()


async def test_a_store_whose_mover_is_closed_fails_its_items(
    stepped: SteppedSlab, arena: Arena, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def closed(*_: object) -> list[MoveOutcome]:
        raise UnsupportedOperationError("the mover is closed")

    mover = InlineMover(arena)
    monkeypatch.setattr(mover, "write", closed)
    item = block_for(stepped.slab, arena, 1, 1, 1, 1)
    assert await stepped.slab.store(mover, [item]) == [ItemStatus.IO_ERROR]
    assert await stepped.slab.store(mover, [replace(item, header=replace(item.header, generation=Generation(2)))]) == [
        ItemStatus.IO_ERROR
    ]


async def test_damaged_pages_are_counted_and_read_as_empty(stepped: SteppedSlab, arena: Arena) -> None:
    await store(stepped, arena, [4, 5])
    stepped.file.write(page_of(5), [np.full(PAGE_BYTES, 9, np.uint8)])
    again = after_restart(stepped.file)
    assert (again.scan.ready, again.scan.damaged) == (1, 1)
    assert again.pages.read(5).verdict is HeaderVerdict.EMPTY
