"""Blocks that left: those that left last are remembered, each once, until they come back."""

import hashlib

import pytest

from blockyard.core.eviction.departed_blocks import DepartedBlocks
from blockyard.core.eviction.tide_history import NEVER_USED, History, used_once

WAYS = 16


def name(number: int) -> bytes:
    return hashlib.sha256(str(number).encode()).digest()[:16]


def left_at(number: int) -> History:
    return used_once(float(number))


def leave(departed: DepartedBlocks, *numbers: int) -> None:
    departed.leave([name(number) for number in numbers], [left_at(number) for number in numbers])


def come_back(departed: DepartedBlocks, *numbers: int) -> list[int]:
    """Those of these blocks that are remembered."""
    histories = departed.come_back([name(number) for number in numbers])
    found = [number for number, history in zip(numbers, histories, strict=True) if history is not NEVER_USED]
    assert [history for history in histories if history is not NEVER_USED] == [left_at(number) for number in found]
    return found


@pytest.mark.parametrize("batch", [1, 5, WAYS, 3 * WAYS])
def test_of_one_bucket_those_that_left_last_are_remembered(batch: int) -> None:
    departed = DepartedBlocks(WAYS)
    left = list(range(6 * WAYS))
    for start in range(0, len(left), batch):
        leave(departed, *left[start : start + batch])
    assert come_back(departed, *left) == left[-WAYS:]


@pytest.mark.parametrize("batch", [1, 40, 1000])
def test_of_many_buckets_about_the_limit_is_remembered_and_the_latest_for_certain(batch: int) -> None:
    departed = DepartedBlocks(1000)
    left = list(range(5000))
    for start in range(0, len(left), batch):
        leave(departed, *left[start : start + batch])
    known = come_back(departed, *left)
    assert 950 <= len(known) <= 1008
    assert set(known) >= set(left[-300:])
    assert min(known) > 2500


def test_a_block_that_came_back_is_remembered_no_longer() -> None:
    departed = DepartedBlocks(WAYS)
    leave(departed, 1, 2, 3)
    assert come_back(departed, 3, 7, 1) == [3, 1]
    assert come_back(departed, 1, 2, 3) == [2]


def test_a_block_that_leaves_again_is_as_old_as_its_last_leave() -> None:
    departed = DepartedBlocks(WAYS)
    leave(departed, 1, 2)
    assert come_back(departed, 1) == [1]
    leave(departed, *range(3, 3 + WAYS - 1), 1)
    assert come_back(departed, 1, 2, 3) == [1, 3]


def test_of_a_block_without_a_history_nothing_is_remembered() -> None:
    departed = DepartedBlocks(WAYS)
    departed.leave([name(1), name(2), name(3)], [None, left_at(2), None])
    departed.leave([name(4)], [None])
    assert come_back(departed, 1, 2, 3, 4) == [2]


def test_nobody_leaves_and_nobody_comes_back() -> None:
    departed = DepartedBlocks(WAYS)
    departed.leave([], [])
    assert departed.come_back([]) == []
