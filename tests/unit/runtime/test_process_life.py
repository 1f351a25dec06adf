"""Lock and epoch of a service, with other processes around."""

import errno
import fcntl
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import IO

import pytest

from blockyard.core.errors import AlreadyRunningError, DiskFullError, ForeignFileError
from blockyard.core.vocabulary import Epoch
from blockyard.runtime import process_life
from blockyard.runtime.node_folder import NodeFolder, ServiceFolder, ServiceName
from blockyard.runtime.process_life import LockHolder, ProcessLife, holder_of, is_over
from blockyard.testing.clock import FakeClock


@pytest.fixture
def folder(tmp_path: Path) -> ServiceFolder:
    return NodeFolder(tmp_path).service(ServiceName.BLOCK_MANAGER)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(wall_ms=1_000)


def next_epoch(folder: ServiceFolder, clock: FakeClock) -> int:
    with ProcessLife.acquire(folder, clock) as life:
        return life.epoch


def test_the_first_epoch_is_the_wall_clock(folder: ServiceFolder, clock: FakeClock) -> None:
    assert next_epoch(folder, clock) == 1_000


def test_epochs_rise_within_one_millisecond(folder: ServiceFolder, clock: FakeClock) -> None:
    assert [next_epoch(folder, clock) for _ in range(3)] == [1_000, 1_001, 1_002]


def test_epochs_rise_although_the_clock_steps_back(folder: ServiceFolder, clock: FakeClock) -> None:
    next_epoch(folder, clock)
    clock.step_wall(-900)
    assert next_epoch(folder, clock) == 1_001


def test_epochs_rise_after_a_lost_folder(folder: ServiceFolder, clock: FakeClock) -> None:
    before = next_epoch(folder, clock)
    folder.epoch.unlink()
    clock.advance(0.005)
    assert next_epoch(folder, clock) > before


def test_the_epoch_is_stored_before_it_is_used(folder: ServiceFolder, clock: FakeClock) -> None:
    with ProcessLife.acquire(folder, clock) as life:
        assert int(folder.epoch.read_text()) == life.epoch


def test_a_disk_that_takes_no_byte_is_named(
    folder: ServiceFolder, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", full)
        with pytest.raises(DiskFullError, match="No space left"):
            ProcessLife.acquire(folder, clock)
    assert holder_of(folder) is None


@pytest.mark.parametrize("text", ["", "-1", "1.5", "12\n", "²", str(2**63)])
def test_a_file_that_holds_no_epoch_is_refused_and_the_lock_is_free_again(
    folder: ServiceFolder, clock: FakeClock, text: str
) -> None:
    folder.create()
    folder.epoch.write_text(text)
    with pytest.raises(ForeignFileError):
        ProcessLife.acquire(folder, clock)
    assert holder_of(folder) is None


def test_a_second_life_is_refused_and_names_the_first(folder: ServiceFolder, clock: FakeClock) -> None:
    with (
        ProcessLife.acquire(folder, clock),
        pytest.raises(AlreadyRunningError, match="block-manager is running") as caught,
    ):
        ProcessLife.acquire(folder, clock)
    assert (caught.value.fields["pid"], caught.value.fields["host"]) == (os.getpid(), socket.gethostname())
    assert int(folder.epoch.read_text()) == 1_000


def test_a_released_lock_can_be_taken(folder: ServiceFolder, clock: FakeClock) -> None:
    life = ProcessLife.acquire(folder, clock)
    assert holder_of(folder) == LockHolder(os.getpid(), socket.gethostname())
    life.release()
    life.release()
    assert holder_of(folder) is None
    assert next_epoch(folder, clock) == 1_001


def test_there_is_no_holder_before_the_first_life(folder: ServiceFolder) -> None:
    assert holder_of(folder) is None


def test_a_probe_in_the_moment_of_the_start_does_not_prevent_it(
    folder: ServiceFolder, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.create()
    folder.lock.touch()
    with folder.lock.open("rb") as probe:
        fcntl.flock(probe, fcntl.LOCK_SH)
        pauses: list[float] = []

        def pause(seconds: float) -> None:
            pauses.append(seconds)
            fcntl.flock(probe, fcntl.LOCK_UN)

        monkeypatch.setattr("blockyard.runtime.process_life.time.sleep", pause)
        assert next_epoch(folder, clock) == 1_000
        assert len(pauses) == 1


_HOLD = """
import sys
from pathlib import Path
from blockyard.core.clock import SystemClock
from blockyard.runtime.node_folder import NodeFolder, ServiceName
from blockyard.runtime.process_life import ProcessLife
import subprocess
life = ProcessLife.acquire(NodeFolder(Path(sys.argv[1])).service(ServiceName.BLOCK_MANAGER), SystemClock())
child = subprocess.Popen(["sleep", "60"], close_fds=False)
print(child.pid, flush=True)
sys.stdin.read()
"""


def test_the_lock_ends_with_a_killed_process_even_if_its_child_lives(
    folder: ServiceFolder, tmp_path: Path, clock: FakeClock
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        child = int(holder.stdout.readline())
        try:
            assert holder_of(folder) == LockHolder(holder.pid, socket.gethostname())
            holder.kill()
            holder.wait()
            assert holder_of(folder) is None
            clock.step_wall(-1_000)
            assert next_epoch(folder, clock) > 1_000
        finally:
            os.kill(child, 9)


def test_a_life_is_over_when_nobody_holds_the_lock_or_a_later_one_does(folder: ServiceFolder, clock: FakeClock) -> None:
    with ProcessLife.acquire(folder, clock) as life:
        assert not is_over(folder, life.epoch)
        assert not is_over(folder, None)
        assert is_over(folder, Epoch(life.epoch - 1))
        folder.epoch.write_text("no number")
        assert not is_over(folder, Epoch(life.epoch - 1))
    assert is_over(folder, life.epoch)
    assert is_over(folder, None)


def test_a_lock_that_was_removed_proves_no_end(folder: ServiceFolder, clock: FakeClock) -> None:
    """Whoever holds it goes on holding what nobody can try any more."""
    assert is_over(folder, None), "nothing was here before"
    with ProcessLife.acquire(folder, clock) as life:
        folder.lock.unlink()
        assert not is_over(folder, life.epoch)
        assert not is_over(folder, None)


@pytest.mark.parametrize("reason", [errno.EMFILE, errno.EACCES, errno.EIO])
def test_a_lock_that_cannot_be_opened_proves_no_end(
    folder: ServiceFolder, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, reason: int
) -> None:
    def fails(*_: object, **__: object) -> IO[bytes]:
        raise OSError(reason, os.strerror(reason))

    with ProcessLife.acquire(folder, clock) as life:
        epoch = life.epoch
    monkeypatch.setattr(process_life, "open", fails, raising=False)
    assert not is_over(folder, epoch)
    assert not is_over(folder, None)


def test_a_lock_that_cannot_be_tried_proves_no_end(
    folder: ServiceFolder, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    with ProcessLife.acquire(folder, clock) as life:
        epoch = life.epoch
    monkeypatch.setattr(fcntl, "flock", fails)
    assert not is_over(folder, epoch)
