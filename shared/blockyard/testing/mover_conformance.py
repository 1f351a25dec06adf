"""What every mover must do, as a test class: inherit it, say how to open the mover, and all of this runs on it.

The tests look at the file with the operating system's own calls, never through the mover under test.
Threading: one event loop per test.
"""

import asyncio
import contextlib
import os
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import numpy as np
import pytest

from blockyard.core.errors import BlockSizeMismatchError, BlockStateError, UnsupportedOperationError
from blockyard.testing.byte_patterns import pattern
from blockyard.tiers.arena import PAGE_BYTES, Arena
from blockyard.tiers.base import MoveOutcome, Mover, SlabRegion, SlotArray
from blockyard.tiers.g3_slab.slab_file import PosixSlabFile

BLOCK_BYTES = 2 * PAGE_BYTES
ARENA_SLOTS = 300
FILE_SLOTS = 320
_PAYLOAD_OFFSET = 3 * PAGE_BYTES


def slots(*indexes: int) -> SlotArray:
    """Slot indexes as a mover takes them."""
    return np.array(indexes, np.int32)


class MoverConformance(ABC):
    """Inherit and implement ``open_mover``."""

    @abstractmethod
    async def open_mover(self, arena: Arena) -> Mover:
        """Open the mover under test for ``arena``."""

    @pytest.fixture
    def arena(self) -> Iterator[Arena]:
        """An arena in which every slot has bytes of its own."""
        with Arena.create(ARENA_SLOTS, BLOCK_BYTES) as arena:
            for slot in range(ARENA_SLOTS):
                arena.payload(slot)[:] = pattern(slot, BLOCK_BYTES)
            yield arena

    @pytest.fixture(params=["direct", "buffered"])
    def file(self, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[PosixSlabFile]:
        """A preallocated file, with and without the page cache."""
        file = _open_file(tmp_path / "slab", os.O_RDWR | os.O_CREAT, direct=False)
        try:
            if request.param == "direct" and (obstacle := file.bypass_cache()):
                pytest.skip(obstacle)
            yield file
        finally:
            file.close()

    @pytest.fixture
    def region(self, file: PosixSlabFile) -> SlabRegion:
        """The payloads of the file."""
        return SlabRegion(file, _PAYLOAD_OFFSET, BLOCK_BYTES, FILE_SLOTS)

    @pytest.fixture
    async def mover(self, arena: Arena) -> AsyncIterator[Mover]:
        """The mover under test, closed afterwards."""
        mover = await self.open_mover(arena)
        yield mover
        await mover.close()

    async def test_written_blocks_lie_in_their_slots(
        self, mover: Mover, file: PosixSlabFile, region: SlabRegion
    ) -> None:
        """Every block lies where its file slot is, and nowhere else."""
        outcomes = await mover.write(region, slots(5, 6, 7, 2), slots(10, 11, 12, 40))
        assert outcomes == [MoveOutcome.DONE] * 4
        for arena_slot, file_slot in ((5, 10), (6, 11), (7, 12), (2, 40)):
            assert _in_file(file, file_slot) == pattern(arena_slot, BLOCK_BYTES).tobytes()
        assert _in_file(file, 9) == _in_file(file, 13) == bytes(BLOCK_BYTES)

    async def test_blocks_come_back_into_other_slots(self, mover: Mover, arena: Arena, region: SlabRegion) -> None:
        """A read puts each block into the arena slot beside it and touches no other."""
        await mover.write(region, slots(1, 2, 3), slots(30, 20, 10))
        assert await mover.read(region, slots(100, 102, 104), slots(10, 20, 30)) == [MoveOutcome.DONE] * 3
        for arena_slot, seed in ((100, 3), (101, 101), (102, 2), (103, 103), (104, 1)):
            assert np.array_equal(arena.payload(arena_slot), pattern(seed, BLOCK_BYTES))

    async def test_more_blocks_than_one_request_carries(self, mover: Mover, arena: Arena, region: SlabRegion) -> None:
        """A large move in scattered order is carried out whole."""
        order = np.random.default_rng(1).permutation(ARENA_SLOTS).astype(np.int32)
        every = np.arange(ARENA_SLOTS, dtype=np.int32)
        assert set(await mover.write(region, every, order)) == {MoveOutcome.DONE}
        arena.strides(0, ARENA_SLOTS)[:] = 0
        assert set(await mover.read(region, every, order)) == {MoveOutcome.DONE}
        assert all(np.array_equal(arena.payload(slot), pattern(slot, BLOCK_BYTES)) for slot in range(ARENA_SLOTS))

    async def test_moves_at_the_same_time_all_end(self, mover: Mover, arena: Arena, region: SlabRegion) -> None:
        """Twenty writes and then twenty reads at once, each of a few blocks."""
        groups = [np.arange(first, first + 5, dtype=np.int32) for first in range(0, 100, 5)]
        written = await asyncio.gather(*(mover.write(region, group, group) for group in groups))
        arena.strides(0, 100)[:] = 0
        read = await asyncio.gather(*(mover.read(region, group, group) for group in groups))
        assert {outcome for outcomes in written + read for outcome in outcomes} == {MoveOutcome.DONE}
        assert all(np.array_equal(arena.payload(slot), pattern(slot, BLOCK_BYTES)) for slot in range(100))

    async def test_nothing_to_move_is_done_at_once(self, mover: Mover, region: SlabRegion) -> None:
        """An empty move has no outcomes."""
        assert await mover.write(region, slots(), slots()) == []

    async def test_a_failed_block_does_not_fail_its_neighbours(
        self, mover: Mover, arena: Arena, file: PosixSlabFile, region: SlabRegion
    ) -> None:
        """Blocks behind the end of a cut file fail, those before it arrive, in one and the same move."""
        await mover.write(region, slots(1, 2, 3, 4), slots(1, 2, 3, 4))
        os.ftruncate(file.fileno(), region.offset(3))
        outcomes = await mover.read(region, slots(201, 203, 202, 204), slots(1, 3, 2, 4))
        assert outcomes == [MoveOutcome.DONE, MoveOutcome.IO_ERROR, MoveOutcome.DONE, MoveOutcome.IO_ERROR]
        assert np.array_equal(arena.payload(201), pattern(1, BLOCK_BYTES))
        assert np.array_equal(arena.payload(202), pattern(2, BLOCK_BYTES))

    async def test_works_on_after_an_error(self, mover: Mover, file: PosixSlabFile, region: SlabRegion) -> None:
        """A file that refuses writes fails every block; the next file is served as if nothing had happened."""
        sealed = _open_file(file.path, os.O_RDONLY, direct=file.direct)
        try:
            refused = SlabRegion(sealed, _PAYLOAD_OFFSET, BLOCK_BYTES, FILE_SLOTS)
            assert await mover.write(refused, slots(1, 2), slots(1, 2)) == [MoveOutcome.IO_ERROR] * 2
            assert await mover.write(region, slots(1, 2), slots(1, 2)) == [MoveOutcome.DONE] * 2
            assert _in_file(file, 2) == pattern(2, BLOCK_BYTES).tobytes()
        finally:
            # The mover may have registered the descriptor, so it is closed first.
            await mover.close()
            sealed.close()

    async def test_impossible_moves_are_refused(self, mover: Mover, file: PosixSlabFile, region: SlabRegion) -> None:
        """Wrong indexes and wrong strides are refused before a byte moves."""
        with pytest.raises(BlockSizeMismatchError):
            await mover.write(region, slots(1, 2), slots(1))
        with pytest.raises(BlockStateError):
            await mover.write(region, slots(ARENA_SLOTS), slots(1))
        with pytest.raises(BlockStateError):
            await mover.read(region, slots(1), slots(-1))
        with pytest.raises(BlockSizeMismatchError):
            await mover.write(SlabRegion(file, 0, PAGE_BYTES, FILE_SLOTS), slots(1), slots(1))
        assert _in_file(file, 1) == bytes(BLOCK_BYTES)

    async def test_a_waiter_that_leaves_does_not_harm_the_mover(
        self, mover: Mover, arena: Arena, region: SlabRegion
    ) -> None:
        """After a cancelled wait the mover serves others, and its slots stay consistent."""
        every = np.arange(ARENA_SLOTS, dtype=np.int32)
        waiter = asyncio.create_task(mover.write(region, every, every))
        await asyncio.sleep(0)
        waiter.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await waiter
        assert await mover.write(region, slots(7), slots(310)) == [MoveOutcome.DONE]
        assert await mover.read(region, slots(8), slots(310)) == [MoveOutcome.DONE]
        assert np.array_equal(arena.payload(8), pattern(7, BLOCK_BYTES))

    async def test_a_closed_mover_refuses_moves(self, mover: Mover, region: SlabRegion) -> None:
        """Closing twice is harmless; moving afterwards is not possible."""
        await mover.close()
        await mover.close()
        with pytest.raises(UnsupportedOperationError):
            await mover.read(region, slots(1), slots(1))

    async def test_close_waits_for_moves_in_progress(
        self, mover: Mover, file: PosixSlabFile, region: SlabRegion
    ) -> None:
        """A move that began before the mover was closed is carried out."""
        every = np.arange(ARENA_SLOTS, dtype=np.int32)
        move = asyncio.create_task(mover.write(region, every, every))
        await asyncio.sleep(0)
        await mover.close()
        assert set(await move) == {MoveOutcome.DONE}
        assert _in_file(file, ARENA_SLOTS - 1) == pattern(ARENA_SLOTS - 1, BLOCK_BYTES).tobytes()


def _open_file(path: Path, flags: int, *, direct: bool) -> PosixSlabFile:
    fd = os.open(path, flags | os.O_CLOEXEC, 0o600)
    if flags & os.O_CREAT:
        os.posix_fallocate(fd, 0, _PAYLOAD_OFFSET + FILE_SLOTS * BLOCK_BYTES)
    return PosixSlabFile(fd, path, direct=direct)


def _in_file(file: PosixSlabFile, slot: int) -> bytes:
    """Bytes of a slot as another descriptor reads them."""
    fd = os.open(file.path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.pread(fd, BLOCK_BYTES, _PAYLOAD_OFFSET + slot * BLOCK_BYTES)
    finally:
        os.close(fd)
