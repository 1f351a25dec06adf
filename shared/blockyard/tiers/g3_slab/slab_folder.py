"""Find, lock and create the slab file of a folder.

A folder has an id of its own, kept in a file; a slab carries the id of its folder, so a slab that was copied or moved
here from elsewhere is recognised. The lock is an exclusive ``flock`` on the slab's descriptor: it lasts until the last
request in the kernel that uses it has ended, so whoever holds it knows that no other process still writes.

A new slab is preallocated and formatted under a second name and then renamed: under its own name a slab is complete.
Invariants: no file that is not ours is ever written. Threading: blocking functions, called at start.
"""

import fcntl
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from blockyard.core.errors import AlreadyRunningError, ForeignFileError, StorageError
from blockyard.core.vocabulary import Epoch
from blockyard.tiers.base import SlabFile
from blockyard.tiers.g3_slab.layout import SlabGeometry
from blockyard.tiers.g3_slab.slab_file import PosixSlabFile, storage_error
from blockyard.tiers.g3_slab.superblock import Superblock, write_superblock

SLAB_NAME: Final = "slab-0"
_NEW_NAME: Final = "slab-0.new"
_ID_NAME: Final = "folder-id"
_ID_BYTES: Final = 16
_MODE: Final = 0o600
_LOCK_POLL_SECONDS: Final = 0.02
_LOCKS: Final = Path("/proc/locks")


def slab_path(folder: Path) -> Path:
    """Where the slab of ``folder`` lies."""
    return folder / SLAB_NAME


def folder_id(folder: Path) -> bytes:
    """Id of ``folder``; made at the first call.

    Raises:
        ForeignFileError: the id file holds something else.
        StorageError: it cannot be read or written.
    """
    path = folder / _ID_NAME
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            fresh = folder / f"{_ID_NAME}.new"
            fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, _MODE)
            try:
                os.write(fd, secrets.token_hex(_ID_BYTES).encode())
                os.fsync(fd)
            finally:
                os.close(fd)
            os.rename(fresh, path)
            _sync_folder(folder)
        text = path.read_text(errors="replace").strip()
    except OSError as error:
        raise storage_error(error, path, "read or make the id of the folder") from error
    if len(text) != 2 * _ID_BYTES or not all(digit in "0123456789abcdef" for digit in text):
        raise ForeignFileError("the folder id is not one of ours", file=str(path))
    return bytes.fromhex(text)


def open_locked(path: Path, lock_wait_seconds: float) -> PosixSlabFile:
    """Open the slab at ``path``, with its lock, through the page cache.

    Raises:
        AlreadyRunningError: another process has the lock for all of ``lock_wait_seconds``.
        StorageError: the file cannot be opened.
    """
    return PosixSlabFile(_locked(path, os.O_RDWR, lock_wait_seconds), path, direct=False)


def create_slab(folder: Path, geometry: SlabGeometry, worker_epoch: Epoch, *, replace: bool) -> None:
    """Make a new slab.

    Args:
        folder: where.
        geometry: its size.
        worker_epoch: who makes it.
        replace: put it in place of the present one, whose lock the caller holds; else a present one is left alone.

    Raises:
        NoSpaceError: the device has no room for all of it; nothing is left behind.
        AlreadyRunningError: another process is making one.
        StorageError: the device failed.
    """
    fresh, path = folder / _NEW_NAME, slab_path(folder)
    owner = folder_id(folder)
    file = PosixSlabFile(_locked(fresh, os.O_RDWR | os.O_CREAT, 0.0), fresh, direct=False)
    try:
        if path.exists() and not replace:
            fresh.unlink()
            return
        with _translated(fresh, "preallocate the slab"):
            os.ftruncate(file.fileno(), 0)
            os.posix_fallocate(file.fileno(), 0, geometry.total_bytes)
        format_slab(file, geometry, owner, worker_epoch)
        with _translated(path, "put the slab in place"):
            os.rename(fresh, path)
            _sync_folder(folder)
    except StorageError:
        # What was made so far must not keep the space.
        fresh.unlink(missing_ok=True)
        raise
    finally:
        file.close()


def format_slab(file: SlabFile, geometry: SlabGeometry, owner: bytes, worker_epoch: Epoch) -> Superblock:
    """Write both superblocks of an empty slab whose bytes are all zero; returns the one that counts."""
    first = Superblock(
        slab_id=secrets.token_bytes(_ID_BYTES),
        folder_id=owner,
        geometry=geometry,
        worker_epoch=worker_epoch,
        clean=True,
        version=1,
    )
    second = first.next(worker_epoch=worker_epoch, clean=True)
    write_superblock(file, first)
    write_superblock(file, second)
    return second


def _locked(path: Path, flags: int, wait_seconds: float) -> int:
    """A descriptor of ``path`` with its exclusive lock; of the file that has that name once the lock is held."""
    deadline = time.monotonic() + wait_seconds
    with _translated(path, "open and lock the slab"):
        while True:
            fd = os.open(path, flags | os.O_CLOEXEC, _MODE)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if path.exists() and os.path.samestat(os.fstat(fd), path.stat()):
                    return fd
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    holder = _lock_holder(fd)
                    os.close(fd)
                    raise _held(path, holder) from None
                time.sleep(_LOCK_POLL_SECONDS)
            except OSError:
                os.close(fd)
                raise
            os.close(fd)


def _held(path: Path, holder: int) -> AlreadyRunningError:
    if holder:
        return AlreadyRunningError("another process holds the slab", file=str(path), process=holder)
    return AlreadyRunningError("a process in another container holds the slab", file=str(path))


def _lock_holder(fd: int) -> int:
    """Process that holds the lock on ``fd``'s file; 0 where the kernel does not tell, as of another container."""
    inode = str(os.fstat(fd).st_ino)
    try:
        locks = _LOCKS.read_text()
    except OSError:
        return 0
    for line in locks.splitlines():
        words = line.split()
        if len(words) > 5 and words[1] == "FLOCK" and words[5].rpartition(":")[2] == inode:
            return int(words[4])
    return 0


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


@contextmanager
def _translated(path: Path, action: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise storage_error(error, path, action) from error
