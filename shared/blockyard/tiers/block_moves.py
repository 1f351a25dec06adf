"""What every mover does alike: check a move, and carry it out through the file seam with a result per block.

Invariants: a move that names a slot outside of arena or region is refused before a byte moves. An error of several
blocks at once says nothing about the single block, so those blocks are moved again one by one.
Threading: pure functions that block; called in a mover's thread.
"""

from collections.abc import Iterator
from enum import Enum, unique
from typing import Final

import numpy as np

from blockyard.core.errors import BlockSizeMismatchError, BlockStateError, NoSpaceError, StorageError
from blockyard.tiers.arena import Arena
from blockyard.tiers.base import MoveOutcome, SlabRegion, SlotArray

_RUN_BLOCKS: Final = 128
"""Longest run in one call: well below the kernel's 1,024 buffers, and an error repeats few blocks."""


@unique
class Direction(Enum):
    """Which way bytes go."""

    WRITE = "WRITE"
    """Arena to file."""
    READ = "READ"
    """File to arena."""


def check_move(arena: Arena, region: SlabRegion, arena_slots: SlotArray, file_slots: SlotArray) -> None:
    """Refuse a move that cannot be carried out.

    Raises:
        BlockSizeMismatchError: the index arrays or the strides differ.
        BlockStateError: an index lies outside.
    """
    if len(arena_slots) != len(file_slots):
        raise BlockSizeMismatchError("a move needs as many sources as destinations", arena=len(arena_slots))
    if arena.stride_bytes != region.stride_bytes:
        raise BlockSizeMismatchError("arena and slab differ", arena=arena.stride_bytes, slab=region.stride_bytes)
    for name, slots, limit in (("arena", arena_slots, arena.slots), ("slab", file_slots, region.slots)):
        if len(slots) and not 0 <= int(slots.min()) <= int(slots.max()) < limit:
            raise BlockStateError("a slot lies outside", file=name, slots=limit, highest=int(slots.max()))


def move_blocks(
    arena: Arena, region: SlabRegion, direction: Direction, arena_slots: SlotArray, file_slots: SlotArray
) -> list[MoveOutcome]:
    """Move blocks, neighbours in the file in one call; outcomes are aligned with the slots."""
    outcomes: list[MoveOutcome] = []
    for run in _runs(file_slots):
        first = int(file_slots[run.start])
        run_outcome = _move_run(arena, region, direction, arena_slots[run], first)
        if run_outcome is MoveOutcome.DONE or run.stop - run.start == 1:
            outcomes.extend([run_outcome] * (run.stop - run.start))
        else:
            outcomes.extend(move_each_block(arena, region, direction, arena_slots[run], file_slots[run]))
    return outcomes


def move_each_block(
    arena: Arena, region: SlabRegion, direction: Direction, arena_slots: SlotArray, file_slots: SlotArray
) -> list[MoveOutcome]:
    """Move blocks one by one, so that each has an outcome of its own."""
    return [
        _move_run(arena, region, direction, arena_slots[index : index + 1], int(file_slots[index]))
        for index in range(len(file_slots))
    ]


def _move_run(
    arena: Arena, region: SlabRegion, direction: Direction, arena_slots: SlotArray, first: int
) -> MoveOutcome:
    buffers = [arena.strides(int(slot), 1) for slot in arena_slots]
    call = region.file.write if direction is Direction.WRITE else region.file.read
    try:
        call(region.offset(first), buffers)
    except NoSpaceError:
        return MoveOutcome.NO_SPACE
    except StorageError:
        return MoveOutcome.IO_ERROR
    return MoveOutcome.DONE


def _runs(file_slots: SlotArray) -> Iterator[slice]:
    """Stretches of consecutive file slots, none longer than one call may take."""
    breaks = np.flatnonzero(np.diff(file_slots) != 1) + 1
    bounds = [0, *(int(index) for index in breaks), len(file_slots)]
    for start, stop in zip(bounds, bounds[1:], strict=False):
        for first in range(start, stop, _RUN_BLOCKS):
            yield slice(first, min(first + _RUN_BLOCKS, stop))
