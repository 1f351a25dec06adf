"""The file of a slab on the operating system's file system.

Direct I/O is used where it works: a slab is far larger than the page cache should become, and a write that sits in the
cache only moves the wait into ``sync``. Whether it works is found out by moving a page of the file itself, not by
asking, and not in a scratch file: a slab that fills its disk leaves no room for one.
Invariants: the descriptor carries the exclusive lock of the slab for as long as it is open, requests in the kernel
included. Threading: positioned calls only, any thread.
"""

import errno
import fcntl
import mmap
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, final

import numpy as np

from blockyard.core.errors import NoSpaceError, StorageError, TransferError
from blockyard.tiers.arena import PAGE_BYTES
from blockyard.tiers.checksum import ByteArray

_READ: Final[Callable[[int, list[memoryview], int], int]] = os.preadv
_WRITE: Final[Callable[[int, list[memoryview], int], int]] = os.pwritev
_FULL: Final = frozenset((errno.ENOSPC, errno.EDQUOT))


def aligned_bytes(size: int) -> ByteArray:
    """Zeroed page-aligned memory, as direct I/O needs it."""
    return np.frombuffer(mmap.mmap(-1, size), np.uint8)


def storage_error(error: OSError, path: Path, action: str) -> StorageError:
    """The typed form of an operating-system error on a slab file."""
    kind = NoSpaceError if error.errno in _FULL else TransferError
    return kind(f"cannot {action}", file=str(path), reason=error.strerror or "unknown")


@final
class PosixSlabFile:
    """A slab file behind a descriptor that it owns."""

    def __init__(self, fd: int, path: Path, *, direct: bool) -> None:
        """Own ``fd``; with ``direct`` its accesses bypass the page cache from now on."""
        self._fd = fd
        self.path: Final = path
        self._direct = direct
        if direct:
            set_direct(fd)

    @property
    def direct(self) -> bool:
        """True where the page cache is bypassed."""
        return self._direct

    def fileno(self) -> int:
        """The descriptor; -1 when closed."""
        return self._fd

    def read(self, offset: int, buffers: Sequence[ByteArray]) -> None:
        """Fill ``buffers`` from ``offset`` on."""
        self._transfer(_READ, offset, buffers, "read")

    def write(self, offset: int, buffers: Sequence[ByteArray]) -> None:
        """Write ``buffers`` from ``offset`` on."""
        self._transfer(_WRITE, offset, buffers, "write")

    def sync(self) -> None:
        """Wait until the device has what was written."""
        try:
            os.fdatasync(self._fd)
        except OSError as error:
            raise storage_error(error, self.path, "sync") from error

    def size(self) -> int:
        """Length of the file in bytes."""
        return os.fstat(self._fd).st_size

    def bypass_cache(self) -> str:
        """From now on, let reads and writes bypass the page cache, if that works: the first page is read and put back.

        Call before the file is used by several threads.

        Returns:
            The empty string if so, else why not.

        Raises:
            TransferError: the first page cannot even be read through the page cache.
        """
        page, back = aligned_bytes(PAGE_BYTES), aligned_bytes(PAGE_BYTES)
        self.read(0, [page])
        back[:] = ~page
        flags = fcntl.fcntl(self._fd, fcntl.F_GETFL)
        try:
            set_direct(self._fd)
            self.write(0, [page])
            self.read(0, [back])
        except (OSError, StorageError) as error:
            fcntl.fcntl(self._fd, fcntl.F_SETFL, flags)
            return f"the file system refuses direct I/O: {error}"
        if not np.array_equal(page, back):
            fcntl.fcntl(self._fd, fcntl.F_SETFL, flags)
            return "direct I/O returned other bytes than were written"
        self._direct = True
        return ""

    def close(self) -> None:
        """Close the descriptor, which also gives up its lock; harmless when repeated."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _transfer(
        self, call: Callable[[int, list[memoryview], int], int], offset: int, buffers: Sequence[ByteArray], action: str
    ) -> None:
        waiting = [buffer.data for buffer in buffers if len(buffer)]
        while waiting:
            try:
                moved = call(self._fd, waiting, offset)
            except OSError as error:
                raise storage_error(error, self.path, action) from error
            if not moved:
                raise TransferError(f"cannot {action}", file=str(self.path), offset=offset, reason="end of file")
            offset += moved
            while waiting and moved >= len(waiting[0]):
                moved -= len(waiting.pop(0))
            if waiting and moved:
                waiting[0] = waiting[0][moved:]


def set_direct(fd: int) -> None:
    """Let accesses of ``fd`` bypass the page cache."""
    fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_DIRECT)
