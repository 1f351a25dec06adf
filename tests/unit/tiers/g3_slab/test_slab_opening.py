"""Opening a slab on a real file system: made once, found again, never taken from others."""

import asyncio
import fcntl
import os
import shutil
from pathlib import Path

import pytest

from blockyard.core.errors import AlreadyRunningError, ConfigurationError, ForeignFileError, NoSpaceError
from blockyard.core.vocabulary import Epoch, ItemStatus
from blockyard.testing.slab_kit import InlineMover, block_for
from blockyard.tiers.arena import Arena
from blockyard.tiers.g3_slab import slab_file, slab_folder
from blockyard.tiers.g3_slab.committer import CommitPolicy
from blockyard.tiers.g3_slab.layout import SlabGeometry
from blockyard.tiers.g3_slab.slab import Slab

SLOTS, PAYLOAD = 8, 8192
SLAB = "slab-0"


def open_slab(folder: Path, slots: int = SLOTS, payload: int = PAYLOAD, epoch: int = 1, wait: float = 0.0) -> Slab:
    policy = CommitPolicy(interval_seconds=0.0)
    return Slab.open(folder, slots, payload, worker_epoch=Epoch(epoch), policy=policy, lock_wait_seconds=wait)


async def fill(folder: Path) -> bytes:
    """Make a slab that holds one block; returns its id."""
    slab = open_slab(folder)
    with Arena.create(1, PAYLOAD) as arena:
        assert await slab.store(InlineMover(arena), [block_for(slab, arena, 1, 0, 3, 1)]) == [ItemStatus.OK]
    await slab.close()
    return slab.slab_id


async def test_a_new_slab_is_preallocated_and_empty(tmp_path: Path) -> None:
    slab = open_slab(tmp_path / "g3")
    size = SlabGeometry.for_payload(SLOTS, PAYLOAD).total_bytes
    found = (tmp_path / "g3" / SLAB).stat()
    assert found.st_size == size
    assert found.st_blocks * 512 >= size
    assert found.st_mode & 0o777 == 0o600
    assert slab.scan.is_empty
    assert slab.info().slots == SLOTS
    await slab.close()
    assert sorted(path.name for path in (tmp_path / "g3").iterdir()) == ["folder-id", SLAB]


async def test_blocks_and_id_stay_over_a_restart(tmp_path: Path) -> None:
    slab_id = await fill(tmp_path)
    slab = open_slab(tmp_path, epoch=2)
    assert (slab.slab_id, slab.was_clean, slab.scan.ready) == (slab_id, True, 1)
    assert slab.read(3).header.generation == 1
    await slab.close()


async def test_a_second_opener_is_refused_and_told_who_has_it(tmp_path: Path) -> None:
    slab = open_slab(tmp_path)
    with pytest.raises(AlreadyRunningError, match=rf"slab-0, process={os.getpid()}"):
        open_slab(tmp_path)
    await slab.close()
    await open_slab(tmp_path).close()


@pytest.mark.parametrize("hidden", ["masked", "empty"])
async def test_an_opener_that_cannot_see_who_has_it_is_refused_all_the_same(
    tmp_path: Path, hidden: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a container: the list of locks is kept from it, or leaves out the processes of others."""
    locks = tmp_path / "locks"
    if hidden == "empty":
        locks.touch()
    monkeypatch.setattr(slab_folder, "_LOCKS", locks)
    slab = open_slab(tmp_path)
    with pytest.raises(AlreadyRunningError, match="in another container"):
        open_slab(tmp_path)
    await slab.close()


async def test_the_next_life_waits_for_the_lock_of_the_last(tmp_path: Path) -> None:
    first = open_slab(tmp_path)
    second = asyncio.create_task(asyncio.to_thread(open_slab, tmp_path, wait=10.0))
    await first.close()
    slab = await second
    assert slab.was_clean
    await slab.close()


async def test_a_slab_being_made_by_another_is_left_alone(tmp_path: Path) -> None:
    fd = os.open(tmp_path / f"{SLAB}.new", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
    fcntl.flock(fd, fcntl.LOCK_EX)
    with pytest.raises(AlreadyRunningError):
        open_slab(tmp_path)
    os.close(fd)
    await open_slab(tmp_path).close()


async def test_an_unfinished_slab_of_an_earlier_life_is_made_anew(tmp_path: Path) -> None:
    (tmp_path / f"{SLAB}.new").write_bytes(b"half a slab")
    slab = open_slab(tmp_path)
    assert slab.scan.damaged == 0
    await slab.close()
    assert not (tmp_path / f"{SLAB}.new").exists()


@pytest.mark.parametrize("content", [b"", b"precious", b"\0" * 10_000, b"x" * 3_000_000])
def test_a_foreign_file_is_named_and_not_touched(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / SLAB
    path.write_bytes(content)
    with pytest.raises(ForeignFileError, match=rf"file={path}.*move the file away"):
        open_slab(tmp_path)
    assert path.read_bytes() == content


async def test_a_slab_copied_from_another_folder_is_refused(tmp_path: Path) -> None:
    await fill(tmp_path / "theirs")
    await open_slab(tmp_path / "ours").close()
    shutil.copy(tmp_path / "theirs" / SLAB, tmp_path / "ours" / SLAB)
    with pytest.raises(ForeignFileError, match="another folder"):
        open_slab(tmp_path / "ours")


async def test_a_cut_slab_is_refused(tmp_path: Path) -> None:
    await fill(tmp_path)
    os.truncate(tmp_path / SLAB, 3 << 20 >> 1)
    with pytest.raises(ForeignFileError, match="cut"):
        open_slab(tmp_path)


def test_a_folder_id_that_is_not_ours_is_refused(tmp_path: Path) -> None:
    (tmp_path / "folder-id").write_text("something else")
    with pytest.raises(ForeignFileError, match="folder id"):
        open_slab(tmp_path)


@pytest.mark.parametrize(("slots", "payload"), [(SLOTS + 1, PAYLOAD), (SLOTS, 2 * PAYLOAD)])
async def test_a_slab_with_blocks_keeps_its_size(tmp_path: Path, slots: int, payload: int) -> None:
    await fill(tmp_path)
    with pytest.raises(ConfigurationError, match=r"restore them or delete the file .*blocks=1"):
        open_slab(tmp_path, slots, payload)
    await open_slab(tmp_path).close()


async def test_an_empty_slab_takes_a_new_size(tmp_path: Path) -> None:
    await open_slab(tmp_path).close()
    slab = open_slab(tmp_path, 2 * SLOTS, 2 * PAYLOAD)
    assert (slab.slots, slab.stride_bytes) == (2 * SLOTS, 2 * PAYLOAD)
    with pytest.raises(AlreadyRunningError):
        open_slab(tmp_path, 2 * SLOTS, 2 * PAYLOAD)
    await slab.close()


def test_a_full_device_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(fd: int, offset: int, length: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(NoSpaceError, match="preallocate"):
        open_slab(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["folder-id"]


@pytest.mark.parametrize("slots", [0, -1, 1 << 31])
def test_a_slab_of_impossible_size_is_refused(tmp_path: Path, slots: int) -> None:
    with pytest.raises(ConfigurationError, match="g3.capacity"):
        open_slab(tmp_path, slots)
    assert not list(tmp_path.iterdir())


async def test_without_direct_io_the_reason_is_visible(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_: int) -> None:
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(slab_file, "set_direct", refused)
    slab = open_slab(tmp_path)
    assert not slab.direct
    assert "Invalid argument" in slab.direct_obstacle
    assert not fcntl.fcntl(slab.region.file.fileno(), fcntl.F_GETFL) & os.O_DIRECT
    await slab.close()


async def test_direct_io_is_used_where_it_works(tmp_path: Path) -> None:
    slab = open_slab(tmp_path)
    flags = fcntl.fcntl(slab.region.file.fileno(), fcntl.F_GETFL)
    assert bool(flags & os.O_DIRECT) == slab.direct == (slab.direct_obstacle == "")
    await slab.close()
