"""Blocks on a real disk through the real NIXL: stored, found after a restart, read back and checked."""

import asyncio
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np

from blockyard.core.vocabulary import Epoch, ItemStatus
from blockyard.testing.byte_patterns import pattern
from blockyard.testing.slab_kit import block_for
from blockyard.tiers.arena import Arena
from blockyard.tiers.base import MoveOutcome, MoverPreference, SlabRegion
from blockyard.tiers.checksum import payload_checksum
from blockyard.tiers.g3_slab.slab import Slab
from blockyard.tiers.g3_slab.slab_file import PosixSlabFile
from blockyard.tiers.nixl.posix_mover import PosixMover
from blockyard.tiers.open_mover import MoverSelection, open_mover

BLOCKS, PAYLOAD = 96, 65_536


async def test_blocks_survive_a_restart_through_nixl(tmp_path: Path) -> None:
    with Arena.create(BLOCKS, PAYLOAD) as arena:
        for epoch in (1, 2):
            slab = await asyncio.to_thread(Slab.open, tmp_path, BLOCKS, PAYLOAD, worker_epoch=Epoch(epoch))
            chosen = await open_mover(MoverPreference.NIXL, arena, folder=tmp_path, direct=slab.direct)
            assert chosen.mover.name.startswith("nixl-posix-")
            assert chosen.reason == "moved a block and read it back unchanged"
            assert chosen.selection is MoverSelection.PROBED
            order = np.random.default_rng(epoch).permutation(BLOCKS).astype(np.int32)
            if epoch == 1:
                items = [block_for(slab, arena, int(slot), index, int(slot), 1) for index, slot in enumerate(order)]
                statuses = await slab.store(chosen.mover, items)
                assert statuses == [ItemStatus.OK] * BLOCKS
                arena.strides(0, BLOCKS)[:] = 0
            else:
                assert (slab.scan.ready, slab.was_clean) == (BLOCKS, True)
                every = np.arange(BLOCKS, dtype=np.int32)
                assert set(await chosen.mover.read(slab.region, every, order)) == {MoveOutcome.DONE}
                for index, slot in enumerate(order):
                    header = slab.read(int(slot)).header
                    assert payload_checksum(arena.payload(index).data) == header.checksum
                    assert np.array_equal(arena.payload(index), pattern(int(slot), PAYLOAD))
            await chosen.mover.close()
            await slab.close()
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith(("nixl", "g3-"))]


async def test_a_failed_request_still_tells_its_blocks_apart(tmp_path: Path) -> None:
    with Arena.create(8, PAYLOAD) as arena:
        chosen = await open_mover(MoverPreference.NIXL, arena, folder=tmp_path, direct=True)
        mover = chosen.mover
        assert isinstance(mover, PosixMover)
        fd = os.open(tmp_path / "cut", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
        os.posix_fallocate(fd, 0, 4 * PAYLOAD)
        file = PosixSlabFile(fd, tmp_path / "cut", direct=True)
        every = np.arange(8, dtype=np.int32)
        outcomes = await mover.read(SlabRegion(file, 0, PAYLOAD, 8), every, every)
        assert outcomes == [MoveOutcome.DONE] * 4 + [MoveOutcome.IO_ERROR] * 4
        assert mover.retried_blocks == 8
        await mover.close()
        file.close()


def test_the_sdk_prints_nothing_and_the_process_ends_cleanly(tmp_path: Path) -> None:
    script = """
import asyncio, sys
from pathlib import Path
from blockyard.tiers.arena import Arena
from blockyard.tiers.base import MoverPreference
from blockyard.tiers.open_mover import open_mover
async def main():
    with Arena.create(2, 8192) as arena:
        chosen = await open_mover(MoverPreference.NIXL, arena, folder=Path(sys.argv[1]), direct=False)
        await chosen.mover.close()
asyncio.run(main())
"""
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", script, str(tmp_path)], capture_output=True, text=True, timeout=60
    )
    assert (ran.returncode, ran.stdout) == (0, ""), ran.stderr
