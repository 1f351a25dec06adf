"""KV memory of one engine, mapped by descriptor, with the guard words that tell when a block was reused.

The engine adds 1 to a block's guard before it rewrites, moves or frees the block. A copy out of engine memory is good
only if the guard before and after the copy equals the one the block was registered with.
Invariants: guards are read-only here; nothing outside of ``blocks`` can be reached; only memory that cannot shrink any
more is mapped, since an access behind a cut would kill this process.
Threading: any number of readers; the job decides who writes a block. Views that are still referenced stay valid after
``close``; the memory goes when the last of them does.
"""

import fcntl
import mmap
import os
from types import TracebackType
from typing import Final, Self, final

import numpy as np

from blockyard.core.errors import LayoutMismatchError, UnsealedMemoryError
from blockyard.core.vocabulary import Guard
from blockyard.tiers.checksum import ByteArray

GUARD_BYTES: Final = 8


@final
class G1Mapping:
    """Mapped blocks and guards of one engine; keeps no descriptor, the caller closes its own."""

    def __init__(self, kv_fd: int, guard_fd: int, blocks: int, block_bytes: int, stride_bytes: int) -> None:
        """Map the memory.

        Args:
            kv_fd: descriptor of the KV memory, readable and writable; block i lies at ``i * stride_bytes``.
            guard_fd: descriptor of the guards, one u64 per block; reading is enough.
            blocks: number of blocks.
            block_bytes: bytes of one block.
            stride_bytes: bytes from block to block.

        Raises:
            LayoutMismatchError: sizes that cannot be, or a descriptor that is too short or cannot be mapped.
            UnsealedMemoryError: a descriptor is no memfd that is sealed against shrinking.
        """
        if blocks < 1 or block_bytes < 1 or stride_bytes < block_bytes:
            raise LayoutMismatchError("impossible sizes", blocks=blocks, block=block_bytes, stride=stride_bytes)
        self.blocks: Final = blocks
        self.block_bytes: Final = block_bytes
        kv_bytes, guard_bytes = (blocks - 1) * stride_bytes + block_bytes, blocks * GUARD_BYTES
        kv = _map(kv_fd, kv_bytes, mmap.PROT_READ | mmap.PROT_WRITE, "kv")
        guards = _map(guard_fd, guard_bytes, mmap.PROT_READ, "guard")
        self._blocks: ByteArray = np.lib.stride_tricks.as_strided(kv, (blocks, block_bytes), (stride_bytes, 1))
        self._guards = guards.data.cast("Q")

    def block(self, index: int) -> ByteArray:
        """Bytes of one block as a writable view."""
        return self._blocks[index, :]

    def guard(self, index: int) -> Guard:
        """Guard of one block now."""
        return Guard(self._guards[index])

    def close(self) -> None:
        """Forget the memory; harmless when repeated."""
        self._blocks = np.empty((0, 0), np.uint8)
        self._guards = memoryview(b"").cast("Q")

    def __enter__(self) -> Self:
        """Close the mapping at the end of the block."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the mapping."""
        self.close()


def _map(fd: int, size: int, protection: int, name: str) -> ByteArray:
    try:
        seals = fcntl.fcntl(fd, fcntl.F_GET_SEALS)
    except OSError as error:
        raise UnsealedMemoryError(memory=name, reason=str(error.strerror)) from error
    if not seals & fcntl.F_SEAL_SHRINK:
        raise UnsealedMemoryError(memory=name)
    try:
        found = os.fstat(fd).st_size
        if found < size:
            raise LayoutMismatchError(
                "the engine's memory is shorter than announced", memory=name, need=size, found=found
            )
        memory: ByteArray = np.frombuffer(mmap.mmap(fd, size, mmap.MAP_SHARED, protection), np.uint8)
    except OSError as error:
        raise LayoutMismatchError("cannot map the engine's memory", memory=name, reason=str(error.strerror)) from error
    return memory
