"""Which engine blocks a request has, per KV group, and the guards that they had when it got them.

A table grows at its end only. What the engine does to a table in place, such as taking out blocks that a window has
passed, is not followed: a block that was reused since has another guard now, and its row counts for nothing.
Invariants: guards are those of the moment at which the request got the block; block 0 is the engine's filler, never a
block of anybody's.
Threading: the scheduler's thread.
"""

from collections.abc import Sequence
from typing import Any, Final, Protocol, TypeVar, final

import numpy as np
import numpy.typing as npt

from blockyard.connectors.engine_guards import PIECE, Guards, Numbers
from blockyard.connectors.vllm.rows import FILLER, RowPages
from blockyard.core.kv_groups import NO_PAGE

N = TypeVar("N", np.int64, np.uint64)
_ROOM: Final = 4


class GivenBlocks(Protocol):
    """Numbers of the blocks that an engine gave to a request."""

    def __len__(self) -> int:
        """Number of blocks."""
        ...

    def __getitem__(self, places: slice, /) -> list[int]:
        """Numbers of some of them."""
        ...


@final
class BlockNumbers:
    """The same, out of the engine's own blocks: none is read that is not asked for."""

    __slots__ = ("_blocks",)

    def __init__(self, blocks: Sequence[Any]) -> None:
        """Of these blocks, in order."""
        self._blocks = blocks

    def __len__(self) -> int:
        """Number of blocks."""
        return len(self._blocks)

    def __getitem__(self, places: slice, /) -> list[int]:
        """Numbers of some of them."""
        return [block.block_id for block in self._blocks[places]]


@final
class BlockTable:
    """Blocks of one request in one group."""

    def __init__(self, pages_per_row: int, expected_blocks: int = 0) -> None:
        """Begin with none; room for those that are expected is made at once."""
        self._per_row = pages_per_row
        self._blocks: Numbers = np.empty(expected_blocks, np.int64)
        self._guards: Guards = np.empty(expected_blocks, np.uint64)
        self._count = 0
        """Entries in use; the room behind them is for blocks to come."""

    def __len__(self) -> int:
        """Number of blocks."""
        return self._count

    def append(self, blocks: Numbers, guards: Guards) -> None:
        """More blocks at the end, with the guards that they have."""
        first, stop = self._count, self._count + len(blocks)
        if stop > len(self._blocks):
            # What was handed out looks into the old arrays, which nobody changes any more.
            self._blocks, self._guards = _grown(self._blocks, first, stop), _grown(self._guards, first, stop)
        for start in range(0, len(blocks), PIECE):
            piece, place = slice(start, start + PIECE), slice(first + start, min(first + start + PIECE, stop))
            self._blocks[place] = blocks[piece]
            self._guards[place] = guards[piece]
        self._count = stop

    def wanted(self, first_row: int, stop_row: int, held_blocks: int) -> RowPages | None:
        """Pages of rows to be loaded; None where the group needs none of them.

        What the engine holds itself, ``held_blocks`` from the start, and what it has no use for, is ``NO_PAGE``. Rows
        at the start without any page are left out.
        """
        start, stop = first_row * self._per_row, stop_row * self._per_row
        if stop > self._count:
            return None
        pages = self._blocks[start:stop].copy()
        pages[: max(0, held_blocks - start)] = NO_PAGE
        pages[pages == FILLER] = NO_PAGE
        needed = np.nonzero((pages != NO_PAGE).reshape(-1, self._per_row).any(axis=1))[0]
        if not len(needed):
            return None
        skipped = int(needed[0])
        first = start + skipped * self._per_row
        return RowPages(
            first_row + skipped,
            stop_row - first_row - skipped,
            pages[skipped * self._per_row :],
            self._guards[first:stop],
        )

    def filled(self, first_row: int, stop_row: int) -> RowPages | None:
        """Pages of those of the rows that have all their blocks; None where there is none."""
        stop_row = min(stop_row, self._count // self._per_row)
        if stop_row <= first_row:
            return None
        places = slice(first_row * self._per_row, stop_row * self._per_row)
        return RowPages(first_row, stop_row - first_row, self._blocks[places], self._guards[places])


def _grown(values: npt.NDArray[N], used: int, needed: int) -> npt.NDArray[N]:
    grown = np.empty(needed + needed // 4 + _ROOM, values.dtype)
    grown[:used] = values[:used]
    return grown
