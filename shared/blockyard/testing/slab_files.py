"""Slab files in memory: one with planned faults, one that knows every state a crash could leave behind.

A device may keep any subset of the pages written since the last sync, in any order, page by page. The recording file
keeps what is durable apart from what is only written, so a test can look at all those subsets.
Invariants: a page is 4 KiB and lands whole or not at all; what was finished when a sync began is durable when it ends.
Threading: one thread at a time.
"""

import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from enum import Enum, unique

import numpy as np

from blockyard.core.errors import StorageError, TransferError
from blockyard.tiers.arena import PAGE_BYTES
from blockyard.tiers.checksum import ByteArray

_ZERO_PAGE = bytes(PAGE_BYTES)


@unique
class FileCall(Enum):
    """What can be made to fail."""

    READ = "read"
    WRITE = "write"
    SYNC = "sync"


class MemorySlabFile:
    """A slab file whose pages live in memory; pages never written read as zero."""

    def __init__(self, size: int) -> None:
        """Start with ``size`` zero bytes."""
        self._size = size
        self._pages: dict[int, bytes] = {}
        self._faults: list[tuple[FileCall, int, int, StorageError]] = []
        self.writes: list[tuple[int, int]] = []
        """Offset and length of every write, in order."""
        self.syncs = 0
        self.closed = False

    @property
    def direct(self) -> bool:
        """There is no page cache to bypass."""
        return False

    def fileno(self) -> int:
        """There is no descriptor."""
        return -1

    def fail(self, call: FileCall, error: StorageError, start: int = 0, stop: int | None = None) -> None:
        """From now on let ``call`` fail with ``error`` where it touches bytes ``start`` to ``stop - 1``."""
        self._faults.append((call, start, self._size if stop is None else stop, error))

    def heal(self) -> None:
        """Forget all planned faults."""
        self._faults.clear()

    def read(self, offset: int, buffers: Sequence[ByteArray]) -> None:
        """Fill ``buffers`` from ``offset`` on."""
        self._meet_fault(FileCall.READ, offset, sum(map(len, buffers)))
        for buffer in buffers:
            for start in range(0, len(buffer), PAGE_BYTES):
                page = self._pages.get((offset + start) // PAGE_BYTES, _ZERO_PAGE)
                buffer[start : start + PAGE_BYTES] = np.frombuffer(page, np.uint8)
            offset += len(buffer)

    def write(self, offset: int, buffers: Sequence[ByteArray]) -> None:
        """Write ``buffers`` from ``offset`` on."""
        length = sum(map(len, buffers))
        self._meet_fault(FileCall.WRITE, offset, length)
        self.writes.append((offset, length))
        for buffer in buffers:
            for start in range(0, len(buffer), PAGE_BYTES):
                self._put((offset + start) // PAGE_BYTES, buffer[start : start + PAGE_BYTES].tobytes())
            offset += len(buffer)

    def sync(self) -> None:
        """Count the call."""
        self._meet_fault(FileCall.SYNC, 0, self._size)
        self.syncs += 1

    def close(self) -> None:
        """Note that the file was closed."""
        self.closed = True

    def _put(self, number: int, page: bytes) -> None:
        self._pages[number] = page

    def _meet_fault(self, call: FileCall, offset: int, length: int) -> None:
        if offset % PAGE_BYTES or length % PAGE_BYTES or offset + length > self._size:
            raise TransferError("access that direct I/O refuses", offset=offset, length=length)
        for planned, start, stop, error in self._faults:
            if planned is call and offset < stop and start < offset + length:
                raise error


class RecordingSlabFile(MemorySlabFile):
    """A memory file that can show what a crash may leave."""

    def __init__(self, size: int, *, during_sync: Callable[[], None] = lambda: None) -> None:
        """Start with ``size`` durable zero bytes; ``during_sync`` runs when a sync has begun and has not ended."""
        super().__init__(size)
        self.during_sync = during_sync
        self.before_durable: Callable[[], None] = lambda: None
        """Runs at the end of a sync, just before its pages count as durable: the largest set of possible states."""
        self._durable: dict[int, bytes] = {}
        self._pending: list[tuple[int, bytes]] = []

    def sync(self) -> None:
        """Make the pages that were written before this call durable."""
        covered = len(self._pending)
        self.during_sync()
        self.before_durable()
        super().sync()
        self._durable.update(self._pending[:covered])
        del self._pending[:covered]

    def crash_states(self, limit: int, seed: int = 0) -> Iterator[MemorySlabFile]:
        """Files as a crash right now could leave them: all of them if at most ``limit``, else a sample.

        The first one lost every page that is not durable, the second one kept all.
        """
        choices = self._choices()
        numbers = sorted(choices)
        yield self._after_crash(numbers, [choices[number][0] for number in numbers])
        yield self._after_crash(numbers, [choices[number][-1] for number in numbers])
        count = 1
        for number in numbers:
            count *= len(choices[number])
        if count <= limit:
            picks: Iterator[Sequence[bytes]] = itertools.product(*(choices[number] for number in numbers))
        else:
            chance = random.Random(seed)
            picks = ([chance.choice(choices[number]) for number in numbers] for _ in range(limit))
        for pick in picks:
            yield self._after_crash(numbers, pick)

    def _choices(self) -> dict[int, list[bytes]]:
        """Per page: its durable content, then every content written since."""
        choices: dict[int, list[bytes]] = {}
        for number, page in self._pending:
            choices.setdefault(number, [self._durable.get(number, _ZERO_PAGE)]).append(page)
        return choices

    def _after_crash(self, numbers: Sequence[int], pages: Sequence[bytes]) -> MemorySlabFile:
        left = MemorySlabFile(self._size)
        left._pages = self._durable | dict(zip(numbers, pages, strict=True))
        return left

    def _put(self, number: int, page: bytes) -> None:
        super()._put(number, page)
        self._pending.append((number, page))
