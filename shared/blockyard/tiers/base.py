"""Ports of the data plane: the file seam under a slab and the mover between the arena and a slab.

A **slab file** is the seam to the disk: positioned reads and writes, and ``sync``, which makes all writes that were
finished before it began durable. Tests put a recording file here and look at every state a crash could leave.
A **mover** copies whole payload places between arena slots and file slots. It says per block what became of it, keeps
its buffers until the last byte moved, and never decides what may be written: grants are checked before.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum, StrEnum, unique
from typing import Protocol

import numpy as np
import numpy.typing as npt

from blockyard.core.vocabulary import ItemStatus
from blockyard.tiers.checksum import ByteArray

SlotArray = npt.NDArray[np.int32]
"""Slot indexes, one per block, in order."""


@unique
class MoveOutcome(IntEnum):
    """What became of one block in a move."""

    DONE = 0
    IO_ERROR = 1
    NO_SPACE = 2

    @property
    def status(self) -> ItemStatus:
        """The same as a job's item status."""
        return _STATUS[self]


_STATUS = {
    MoveOutcome.DONE: ItemStatus.OK,
    MoveOutcome.IO_ERROR: ItemStatus.IO_ERROR,
    MoveOutcome.NO_SPACE: ItemStatus.NO_SPACE,
}


@unique
class MoverPreference(StrEnum):
    """Which mover the operator wants."""

    AUTO = "auto"
    NIXL = "nixl"
    PLAIN = "plain"


class SlabFile(Protocol):
    """A file with fixed size. All calls block; they may come from several threads, for places that do not overlap."""

    @property
    def direct(self) -> bool:
        """True where reads and writes bypass the page cache and need 4 KiB aligned memory, offsets and lengths."""
        ...

    def fileno(self) -> int:
        """Descriptor for movers that do their own I/O; negative where there is none."""
        ...

    def read(self, offset: int, buffers: Sequence[ByteArray]) -> None:
        """Fill ``buffers`` from ``offset`` on.

        Raises:
            TransferError: the device failed or the file ended; buffers hold anything.
        """
        ...

    def write(self, offset: int, buffers: Sequence[ByteArray]) -> None:
        """Write ``buffers`` from ``offset`` on; not durable before a later ``sync``.

        Raises:
            NoSpaceError: the device is full; any part may have been written.
            TransferError: the device failed; any part may have been written.
        """
        ...

    def sync(self) -> None:
        """Make every write that was finished before this call began durable.

        Raises:
            StorageError: the device failed; what is durable is not known any more.
        """
        ...

    def close(self) -> None:
        """Close the file, which also gives up its lock; harmless when repeated."""
        ...


@dataclass(frozen=True, slots=True)
class SlabRegion:
    """Where the payloads of a slab lie in its file."""

    file: SlabFile
    payload_offset: int
    stride_bytes: int
    slots: int

    def offset(self, slot: int) -> int:
        """File offset of a slot's payload."""
        return self.payload_offset + slot * self.stride_bytes


class Mover(Protocol):
    """Copies payload places between the arena it was made for and slab files.

    Contract: outcomes are aligned with the slots given; slots of one call do not repeat; both index arrays have equal
    length; payload strides of arena and region are equal. Cancelling the awaiting task does not stop the I/O: the
    slots of that call stay in use until the mover is closed or the call would have ended. Moves of overlapping slots
    must not be in progress at once.
    """

    @property
    def name(self) -> str:
        """Name for metrics and logs, e.g. ``nixl-posix-uring``."""
        ...

    @property
    def failure(self) -> str:
        """Why nothing moves any more before the process is started anew; empty while the mover works."""
        ...

    async def write(self, region: SlabRegion, arena_slots: SlotArray, file_slots: SlotArray) -> list[MoveOutcome]:
        """Arena to file. A DONE block was handed to the device; it is durable only after a ``sync``."""
        ...

    async def read(self, region: SlabRegion, arena_slots: SlotArray, file_slots: SlotArray) -> list[MoveOutcome]:
        """File to arena. A DONE block has arrived; whether it is the right one, its checksum says."""
        ...

    async def close(self) -> None:
        """End after all moves in progress; later moves raise ``UnsupportedOperationError``.

        Raises:
            TransferError: a move never ended; its buffers must not be used again by this process.
        """
        ...
