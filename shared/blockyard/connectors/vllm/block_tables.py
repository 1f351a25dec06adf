"""Which engine blocks a request has, per KV group, and the guards that they had when it got them.

A table grows at its end only. What the engine does to a table in place, such as taking out blocks that a window has
passed, is not followed: a block that was reused since has another guard now, and its row counts for nothing.
Invariants: guards are those of the moment at which the request got the block; block 0 is the engine's filler, never a
block of anybody's.
Threading: the scheduler's thread.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, final

import numpy as np
import numpy.typing as npt

from blockyard.connectors.engine_guards import EngineGuards
from blockyard.core.kv_groups import NO_PAGE
from blockyard.core.vocabulary import EngineBlockId, Guard

Numbers = npt.NDArray[np.int64]
FILLER: Final = 0
_FEW: Final = 4
"""So many numbers are quicker taken one by one than as an array."""


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
@dataclass(frozen=True, slots=True)
class RowPages:
    """Pages of consecutive rows of one group."""

    first_row: int
    rows: int
    pages: list[EngineBlockId]
    guards: list[Guard]


@final
class BlockTable:
    """Blocks of one request in one group."""

    def __init__(self, pages_per_row: int) -> None:
        """Begin with none."""
        self._per_row = pages_per_row
        self._blocks: Numbers = np.empty(0, np.int64)
        self._guards: npt.NDArray[np.uint64] = np.empty(0, np.uint64)
        self._count = 0
        """Entries in use; the room behind them is for blocks to come."""

    def __len__(self) -> int:
        """Number of blocks."""
        return self._count

    def append(self, blocks: Numbers | Sequence[int], guards: EngineGuards) -> None:
        """More blocks at the end, with the guards that they have now."""
        first, stop = self._count, self._count + len(blocks)
        if stop > len(self._blocks):
            room = stop + stop // 4 + _FEW
            self._blocks, self._guards = np.resize(self._blocks, room), np.resize(self._guards, room)
        if len(blocks) <= _FEW:
            for place, block in enumerate(blocks, first):
                self._blocks[place], self._guards[place] = block, guards.guard(EngineBlockId(int(block)))
        else:
            numbers = np.asarray(blocks, np.int64)
            self._blocks[first:stop], self._guards[first:stop] = numbers, guards.values(numbers)
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
            pages[skipped * self._per_row :].tolist(),
            self._guards[first:stop].tolist(),
        )

    def intact(self, first_row: int, stop_row: int, guards: EngineGuards) -> list[RowPages]:
        """Stretches of rows all of whose blocks still belong to this table."""
        stop_row = min(stop_row, self._count // self._per_row)
        if stop_row <= first_row:
            return []
        places = slice(first_row * self._per_row, stop_row * self._per_row)
        blocks, noted = self._blocks[places], self._guards[places]
        whole = ((blocks != FILLER) & (guards.values(blocks) == noted)).reshape(-1, self._per_row).all(axis=1)
        stretches = []
        for start, stop in _stretches(whole.tolist()):
            inside = slice(start * self._per_row, stop * self._per_row)
            stretches.append(RowPages(first_row + start, stop - start, blocks[inside].tolist(), noted[inside].tolist()))
        return stretches


def _stretches(flags: Sequence[bool]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for index, flag in enumerate(flags):
        if not flag:
            continue
        if found and found[-1][1] == index:
            found[-1] = (found[-1][0], index + 1)
        else:
            found.append((index, index + 1))
    return found
