"""Runs of blocks go out together; what fails together is told apart."""

from collections.abc import Iterator

import numpy as np
import pytest

from blockyard.core.errors import NoSpaceError, TransferError
from blockyard.testing.byte_patterns import pattern
from blockyard.testing.slab_files import FileCall, MemorySlabFile
from blockyard.tiers.arena import PAGE_BYTES, Arena
from blockyard.tiers.base import MoveOutcome, SlabRegion
from blockyard.tiers.block_moves import Direction, move_blocks

OFFSET = 4 * PAGE_BYTES


@pytest.fixture
def arena() -> Iterator[Arena]:
    with Arena.create(300, PAGE_BYTES) as arena:
        for slot in range(300):
            arena.payload(slot)[:] = pattern(slot, PAGE_BYTES)
        yield arena


@pytest.fixture
def region() -> SlabRegion:
    return SlabRegion(MemorySlabFile(OFFSET + 400 * PAGE_BYTES), OFFSET, PAGE_BYTES, 400)


def move(arena: Arena, region: SlabRegion, sources: list[int], slots: list[int]) -> list[MoveOutcome]:
    return move_blocks(arena, region, Direction.WRITE, np.array(sources, np.int32), np.array(slots, np.int32))


def memory(region: SlabRegion) -> MemorySlabFile:
    assert isinstance(region.file, MemorySlabFile)
    return region.file


def test_neighbours_go_out_in_one_call(arena: Arena, region: SlabRegion) -> None:
    move(arena, region, [9, 1, 5, 7], [10, 11, 12, 20])
    assert memory(region).writes == [(region.offset(10), 3 * PAGE_BYTES), (region.offset(20), PAGE_BYTES)]


def test_a_long_run_is_cut(arena: Arena, region: SlabRegion) -> None:
    outcomes = move(arena, region, list(range(300)), list(range(300)))
    assert outcomes == [MoveOutcome.DONE] * 300
    assert [length // PAGE_BYTES for _, length in memory(region).writes] == [128, 128, 44]


@pytest.mark.parametrize(
    ("error", "outcome"),
    [(NoSpaceError("full"), MoveOutcome.NO_SPACE), (TransferError("broken"), MoveOutcome.IO_ERROR)],
)
def test_one_bad_place_fails_one_block(
    arena: Arena, region: SlabRegion, error: TransferError, outcome: MoveOutcome
) -> None:
    memory(region).fail(FileCall.WRITE, error, region.offset(11), region.offset(12))
    assert move(arena, region, [1, 2, 3], [10, 11, 12]) == [MoveOutcome.DONE, outcome, MoveOutcome.DONE]


def test_nothing_to_move_is_nothing(arena: Arena, region: SlabRegion) -> None:
    assert move(arena, region, [], []) == []
