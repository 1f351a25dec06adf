"""A device that is really full: a small file system of its own, filled to the last page."""

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import numpy as np
import pytest

from blockyard.core.errors import NoSpaceError, TransferError
from blockyard.core.vocabulary import Epoch, ItemStatus
from blockyard.testing.byte_patterns import pattern
from blockyard.testing.slab_kit import block_for
from blockyard.tiers.arena import Arena
from blockyard.tiers.base import MoveOutcome, Mover, MoverPreference, SlabRegion
from blockyard.tiers.g3_slab.slab import Slab
from blockyard.tiers.g3_slab.slab_file import PosixSlabFile
from blockyard.tiers.header import HeaderVerdict
from blockyard.tiers.open_mover import open_mover
from blockyard.tiers.plain_mover import PlainMover

PAYLOAD = 65_536
SLOTS = 32
DEVICE_BYTES = 8 << 20
EVERY = np.arange(SLOTS, dtype=np.int32)


@pytest.fixture
def device(tmp_path: Path) -> Iterator[Path]:
    """A mounted file system of 8 MiB."""
    folder = tmp_path / "device"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DEVICE_BYTES}", "blockyard-test", str(folder)]
    mounted = subprocess.run(mount, capture_output=True, text=True, timeout=10, check=False)
    if mounted.returncode:
        pytest.skip(f"a small file system cannot be mounted here: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], timeout=10, check=True)


@pytest.fixture
def arena() -> Iterator[Arena]:
    with Arena.create(SLOTS, PAYLOAD) as arena:
        for slot in range(SLOTS):
            arena.payload(slot)[:] = pattern(slot, PAYLOAD)
        yield arena


@pytest.fixture(params=["plain", "nixl-posix-aio", "nixl-posix-uring"])
async def mover(request: pytest.FixtureRequest, arena: Arena) -> AsyncIterator[Mover]:
    mover: Mover
    if request.param == "plain":
        mover = PlainMover(arena)
    else:
        pytest.importorskip("nixl_cu12")
        from blockyard.tiers.nixl.posix_agent import PosixQueue
        from blockyard.tiers.nixl.posix_mover import PosixMover

        try:
            mover = await PosixMover.open(arena, PosixQueue(request.param.rpartition("-")[2]))
        except TransferError as error:
            pytest.skip(str(error))
    yield mover
    await mover.close()


def fill(folder: Path, leave_bytes: int) -> Path:
    """Take the room of the device, except for ``leave_bytes``."""
    ballast, room = folder / "ballast", os.statvfs(folder)
    with ballast.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, room.f_bavail * room.f_frsize - leave_bytes)
    return ballast


def reserve_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a file system that copies on write: the size is promised, the room is not."""
    monkeypatch.setattr(os, "posix_fallocate", lambda fd, offset, length: os.ftruncate(fd, offset + length))


async def test_blocks_that_do_not_fit_are_told_from_those_that_do(mover: Mover, arena: Arena, device: Path) -> None:
    fd = os.open(device / "sparse", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    os.ftruncate(fd, SLOTS * PAYLOAD)
    file = PosixSlabFile(fd, device / "sparse", direct=False)
    region = SlabRegion(file, 0, PAYLOAD, SLOTS)
    ballast = fill(device, leave_bytes=10 * PAYLOAD)
    outcomes = await mover.write(region, EVERY, EVERY)
    assert set(outcomes) == {MoveOutcome.DONE, MoveOutcome.NO_SPACE}
    assert outcomes.count(MoveOutcome.DONE) <= 10

    ballast.unlink()
    assert set(await mover.write(region, EVERY, EVERY)) == {MoveOutcome.DONE}
    arena.strides(0, SLOTS)[:] = 0
    assert set(await mover.read(region, EVERY, EVERY)) == {MoveOutcome.DONE}
    assert all(np.array_equal(arena.payload(slot), pattern(slot, PAYLOAD)) for slot in range(SLOTS))
    await mover.close()
    file.close()


def test_a_slab_that_does_not_fit_takes_no_room(device: Path) -> None:
    fill(device, leave_bytes=SLOTS * PAYLOAD)
    with pytest.raises(NoSpaceError, match="preallocate"):
        Slab.open(device, SLOTS, PAYLOAD, worker_epoch=Epoch(1))
    assert sorted(path.name for path in device.iterdir()) == ["ballast", "folder-id"]
    room = os.statvfs(device)
    assert room.f_bavail * room.f_frsize >= (SLOTS - 1) * PAYLOAD


async def test_a_preallocated_slab_works_and_starts_again_on_a_full_device(device: Path, arena: Arena) -> None:
    for epoch in (1, 2):
        slab = await asyncio.to_thread(Slab.open, device, SLOTS, PAYLOAD, worker_epoch=Epoch(epoch))
        if epoch == 1:
            fill(device, leave_bytes=0)
        assert slab.scan.ready == (SLOTS if epoch == 2 else 0)
        assert "No space" not in slab.direct_obstacle
        mover = PlainMover(arena)
        items = [block_for(slab, arena, slot, slot, slot, epoch) for slot in range(SLOTS)]
        assert await slab.store(mover, items) == [ItemStatus.OK] * SLOTS
        await mover.close()
        await slab.close()


async def test_a_slab_without_reserved_room_fails_single_blocks_and_recovers(
    device: Path, arena: Arena, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        reserve_nothing(patch)
        slab = await asyncio.to_thread(Slab.open, device, SLOTS, PAYLOAD, worker_epoch=Epoch(1))
    ballast = fill(device, leave_bytes=8 * PAYLOAD)
    mover = PlainMover(arena)

    first = await slab.store(mover, [block_for(slab, arena, slot, slot, slot, 1) for slot in range(SLOTS)])
    stored = [slot for slot, status in enumerate(first) if status is ItemStatus.OK]
    assert set(first) <= {ItemStatus.OK, ItemStatus.NO_SPACE}
    assert ItemStatus.NO_SPACE in first
    assert slab.failure == ""
    assert [slot for slot in range(SLOTS) if slab.read(slot).verdict is HeaderVerdict.READY] == stored

    ballast.unlink()
    again = [slot for slot in range(SLOTS) if slot not in stored]
    second = await slab.store(mover, [block_for(slab, arena, slot, slot, slot, 2) for slot in again])
    assert second == [ItemStatus.OK] * len(again)
    await mover.close()
    await slab.close()
    slab = await asyncio.to_thread(Slab.open, device, SLOTS, PAYLOAD, worker_epoch=Epoch(2))
    assert (slab.scan.ready, slab.scan.damaged) == (SLOTS, 0)
    await slab.close()


async def test_without_room_for_a_trial_the_mover_is_refused_by_name(device: Path, arena: Arena) -> None:
    pytest.importorskip("nixl_cu12")
    fill(device, leave_bytes=0)
    with pytest.raises(NoSpaceError, match="scratch file"):
        await open_mover(MoverPreference.AUTO, arena, folder=device, direct=False)
    assert os.listdir(device) == ["ballast"]
