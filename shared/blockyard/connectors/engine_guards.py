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

Numbers = npt.NDArray[np.int64]
Guards = npt.NDArray[np.uint64]
GUARD_BYTES: Final = 8
PIECE: Final = 480
"""Above 500 elements numpy gives the interpreter away, and a thread that waits for it keeps it for milliseconds."""
_ONE: Final = np.uint64(1)
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

    def raise_guards(self, blocks: Sequence[EngineBlockId] | Numbers) -> Guards:
        """Declare that these blocks are about to be reused or freed; cheap enough for a scheduler's step.

        Returns:
            Their guards from now on, in order. A block named twice is raised at least once, which is enough.

        Raises:
            IndexError: there is no such block.
        """
        numbers = np.asarray(blocks, np.int64)
        raised = np.empty(len(numbers), np.uint64)
        for start in range(0, len(numbers), PIECE):
            places = numbers[start : start + PIECE]
            words = self._words[places]
            words += _ONE
            self._words[places] = words
            raised[start : start + PIECE] = words
        return raised if len(numbers) <= PIECE else self.values(numbers)

    def raise_all(self) -> None:
        """Declare that every block is about to be reused or freed."""
        self._words += np.uint64(1)

    def guard(self, block: EngineBlockId) -> Guard:
        """Guard of one block now; of ``NO_PAGE`` it is zero."""
        return _NO_GUARD if block == NO_PAGE else Guard(int(self._words[block]))

    def guards_of(self, pages: Iterable[EngineBlockId]) -> tuple[Guard, ...]:
        """Guards of these pages now, in order."""
        return tuple(self.guard(page) for page in pages)

    def values(self, blocks: Numbers) -> Guards:
        """Guards of many blocks now, in order; none of them ``NO_PAGE``."""
        if len(blocks) <= PIECE:
            return self._words[blocks]
        return np.concatenate([self._words[blocks[start : start + PIECE]] for start in range(0, len(blocks), PIECE)])

    def close(self) -> None:
        """Unmap and close; the pages live on while the node maps them. Idempotent."""
        if self._memory.closed:
            return
        self._words = np.empty(0, np.uint64)
        self._memory.close()
        os.close(self.fd)

    def __enter__(self) -> Self:
        """Use as a context manager."""
        return self

    def __exit__(self, *exc: object) -> None:
        """Close."""
        self.close()
