"""Reserves that are refilled in one go."""

import pytest

from blockyard.core.errors import KernelError
from blockyard.core.watermarks import Reserve, Watermarks


def test_refilling_starts_below_the_low_mark_and_ends_at_the_high_one() -> None:
    reserve = Reserve(Watermarks(4, 10))
    levels = [10, 5, 4, 3, 5, 9, 10, 9, 4, 0]
    assert [reserve.wanted(level, 100) for level in levels] == [0, 0, 0, 7, 5, 1, 0, 0, 0, 10]


def test_a_reserve_holds_no_more_than_is_in_demand() -> None:
    reserve = Reserve(Watermarks(4, 10))
    assert reserve.wanted(0, 0) == 0
    assert reserve.wanted(0, 3) == 3
    assert reserve.refilling
    assert reserve.wanted(3, 3) == 0
    assert not reserve.refilling


@pytest.mark.parametrize(
    ("capacity", "marks"), [(1, (1, 1)), (4, (1, 2)), (64, (16, 32)), (1_024, (32, 64)), (64_000, (500, 1_000))]
)
def test_marks_follow_the_size_of_the_tier(capacity: int, marks: tuple[int, int]) -> None:
    of_tier = Watermarks.of(capacity, 64, 64)
    assert (of_tier.low, of_tier.high) == marks


@pytest.mark.parametrize(("low", "high"), [(0, 1), (3, 2), (-1, 5)])
def test_marks_in_no_order_are_refused(low: int, high: int) -> None:
    with pytest.raises(KernelError):
        Watermarks(low, high)
