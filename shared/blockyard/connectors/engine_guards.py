"""Guard words of an engine: one u64 per engine block, in one memory file that the node maps.

A guard is raised *before* its block is reallocated, rewritten or freed. Whoever copies a block compares the word before
and after, so bytes of a reused block are never stored under an old name, and no late load lands in a block that was
given to somebody else.
Invariants: guards only rise; the memory file cannot shrink.
Threading: one thread raises; any thread, and other processes, read single aligned 8-byte words.
"""

import mmap
import os
from collections.abc import Iterable, Sequence
from typing import Final, Self, final

import numpy as np
import numpy.typing as npt

from blockyard.connectors.sealed_memory import sealed_memory
from blockyard.core.errors import LayoutMismatchError
from blockyard.core.kv_groups import NO_PAGE
from blockyard.core.vocabulary import EngineBlockId, Guard

GUARD_BYTES: Final = 8
_NO_GUARD: Final = Guard(0)


@final
class EngineGuards:
    """Guards of an engine with ``blocks`` blocks; owned by its scheduler half."""

    def __init__(self, blocks: int) -> None:
        """Begin with all guards at zero.

        Raises:
            LayoutMismatchError: there is no block.
        """
        if blocks < 1:
            raise LayoutMismatchError("an engine has at least one block", blocks=blocks)
        self.blocks: Final = blocks
        self.fd: Final = sealed_memory("blockyard-g1-guard", blocks * GUARD_BYTES)
        self._memory = mmap.mmap(self.fd, 0)
        self._words: npt.NDArray[np.uint64] = np.frombuffer(self._memory, np.uint64)[:blocks]

    def raise_guards(self, blocks: Sequence[EngineBlockId]) -> None:
        """Declare that these blocks are about to be reused or freed; cheap enough for a scheduler's step.

        A block named twice is raised once, which is enough.

        Raises:
            IndexError: there is no such block.
        """
        if len(blocks):
            self._words[np.asarray(blocks, np.int64)] += np.uint64(1)

    def raise_all(self) -> None:
        """Declare that every block is about to be reused or freed."""
        self._words += np.uint64(1)

    def guard(self, block: EngineBlockId) -> Guard:
        """Guard of one block now; of ``NO_PAGE`` it is zero."""
        return _NO_GUARD if block == NO_PAGE else Guard(int(self._words[block]))

    def guards_of(self, pages: Iterable[EngineBlockId]) -> tuple[Guard, ...]:
        """Guards of these pages now, in order."""
        return tuple(self.guard(page) for page in pages)

    def values(self, blocks: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
        """Guards of many blocks now, in order; none of them ``NO_PAGE``."""
        return self._words[blocks]

    def close(self) -> None:
        """Unmap and close; the pages live on while the node maps them."""
        self._words = np.empty(0, np.uint64)
        self._memory.close()
        os.close(self.fd)

    def __enter__(self) -> Self:
        """Use as a context manager."""
        return self

    def __exit__(self, *exc: object) -> None:
        """Close."""
        self.close()
