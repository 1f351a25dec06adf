"""Engine memory in shared pages: the KV blocks of one rank (G1) and a guard word per block.

Both are anonymous memory files of sealed size whose descriptors are handed to the node with ``Hello``. A guard word is
raised *before* its block is reallocated, rewritten or freed; whoever copies a block compares the word before and after,
so bytes of a reused block are never stored under an old name.
Invariants: guards only rise. Threading: one owner thread; readers in other processes see single aligned 8-byte words.
"""

import fcntl
import mmap
import os
from collections.abc import Sequence
from typing import Self

import numpy as np
import numpy.typing as npt

from blockyard.core.errors import LayoutMismatchError
from blockyard.core.vocabulary import EngineBlockId, Guard

_PAGE_BYTES = mmap.PAGESIZE


class EngineMemory:
    """KV memory of an engine with ``blocks`` blocks of ``block_bytes`` bytes."""

    def __init__(self, blocks: int, block_bytes: int) -> None:
        """Allocate zeroed memory.

        Raises:
            LayoutMismatchError: the block size is not a multiple of the page size, or there is no block.
        """
        if blocks < 1 or block_bytes < 1 or block_bytes % _PAGE_BYTES:
            raise LayoutMismatchError(
                "blocks must be whole pages", blocks=blocks, block_bytes=block_bytes, page_bytes=_PAGE_BYTES
            )
        self.blocks = blocks
        self.block_bytes = block_bytes
        self.kv_fd = _memory_file("blockyard-g1-kv", blocks * block_bytes)
        self.guard_fd = _memory_file("blockyard-g1-guard", -(-blocks * 8 // _PAGE_BYTES) * _PAGE_BYTES)
        self._kv = mmap.mmap(self.kv_fd, 0)
        self._guard = mmap.mmap(self.guard_fd, 0)
        self._bytes: npt.NDArray[np.uint8] = np.frombuffer(self._kv, np.uint8).reshape(blocks, block_bytes)
        self._guards: npt.NDArray[np.uint64] = np.frombuffer(self._guard, np.uint64)[:blocks]

    def view(self, block: EngineBlockId) -> npt.NDArray[np.uint8]:
        """Writable bytes of one block."""
        row: npt.NDArray[np.uint8] = self._bytes[block]
        return row

    def raise_guards(self, blocks: Sequence[EngineBlockId]) -> None:
        """Declare that these blocks are about to be reused or freed."""
        for block in blocks:
            self._guards[block] += np.uint64(1)

    def guard(self, block: EngineBlockId) -> Guard:
        """Current guard word of one block."""
        return Guard(int(self._guards[block]))

    def close(self) -> None:
        """Unmap and close; the pages live on while the node maps them."""
        del self._bytes, self._guards
        self._kv.close()
        self._guard.close()
        os.close(self.kv_fd)
        os.close(self.guard_fd)

    def __enter__(self) -> Self:
        """Use as a context manager."""
        return self

    def __exit__(self, *exc: object) -> None:
        """Close."""
        self.close()


def _memory_file(name: str, size: int) -> int:
    descriptor = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(descriptor, size)
    # A node maps this memory: shrinking it would kill the node's worker at its next access.
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
    return descriptor
