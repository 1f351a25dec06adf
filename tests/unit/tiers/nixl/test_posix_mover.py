"""What callers see of a NIXL mover whose owner thread ended by itself."""

import asyncio
import threading
from pathlib import Path

import numpy as np
import pytest

from blockyard.core.errors import TransferError
from blockyard.testing.slab_files import MemorySlabFile
from blockyard.tiers.arena import PAGE_BYTES, Arena
from blockyard.tiers.base import MoverPreference, SlabRegion
from blockyard.tiers.nixl.owner_loop import OwnerLoop
from blockyard.tiers.nixl.posix_agent import PosixQueue
from blockyard.tiers.nixl.posix_mover import PosixMover
from blockyard.tiers.open_mover import open_mover

REGION = SlabRegion(MemorySlabFile(4 * PAGE_BYTES), 0, PAGE_BYTES, 4)
FIRST = np.array([0], np.int32)


async def test_a_mover_whose_thread_failed_says_so_and_keeps_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    fail = threading.Event()

    def crash(_: OwnerLoop) -> None:
        assert fail.wait(5.0)
        raise RuntimeError("a bug")

    monkeypatch.setattr(OwnerLoop, "run", crash)
    with Arena.create(4, PAGE_BYTES) as arena:
        mover = await PosixMover.open(arena, PosixQueue.AIO)
        waiting = asyncio.create_task(mover.write(REGION, FIRST, FIRST))
        await asyncio.sleep(0)
        assert mover.failure == ""
        fail.set()
        async with asyncio.timeout(5.0):
            with pytest.raises(TransferError, match="a bug"):
                await waiting
            assert "a bug" in mover.failure
            with pytest.raises(TransferError, match="a bug"):
                await mover.read(REGION, FIRST, FIRST)
            with pytest.raises(TransferError, match="a bug"):
                await mover.close()


async def test_a_kernel_interface_that_refuses_the_whole_arena_is_passed_over(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    real, tried = PosixMover.open, list[PosixQueue]()

    async def small_ones_only(arena: Arena, io_queue: PosixQueue) -> PosixMover:
        if arena.slots > 2:
            tried.append(io_queue)
            raise TransferError("no more memory can be locked")
        return await real(arena, io_queue)

    monkeypatch.setattr(PosixMover, "open", small_ones_only)
    with Arena.create(4, PAGE_BYTES) as arena:
        chosen = await open_mover(MoverPreference.AUTO, arena, folder=tmp_path, direct=False)
        assert chosen.mover.name == "plain"
        assert "no more memory can be locked" in chosen.reason
        assert set(tried) == set(PosixQueue)
        await chosen.mover.close()
