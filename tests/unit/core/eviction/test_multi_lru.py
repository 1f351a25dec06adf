"""MultiLRU: coldest class first, the oldest of a class first, by what the sketch says when rows are evicted.

Numbers are those of KVBM's behaviours.
"""

from itertools import islice

import pytest

from blockyard.core.errors import KernelError
from blockyard.core.eviction.multi_lru import MultiLruPolicy
from blockyard.core.eviction.row_keys import keys_of
from blockyard.core.frequency import FrequencySketch
from blockyard.testing.eviction_conformance import rows
from blockyard.testing.row_columns import NamedRows


def test_25_of_counts_0_3_8_15_the_lower_goes_first_whatever_came_first() -> None:
    policy = MultiLruPolicy(NamedRows(4))
    for row, uses in ((3, 15), (1, 3), (2, 8), (0, 0)):
        policy.touch(rows(*[row] * uses))
        policy.insert(rows(row))
    assert policy.take(4) == [0, 1, 2, 3]


@pytest.mark.parametrize(("uses", "other"), [(0, 2), (3, 7), (8, 14), (15, 40)])
def test_25_within_a_class_the_oldest_goes_first(uses: int, other: int) -> None:
    policy = MultiLruPolicy(NamedRows(2))
    policy.touch(rows(*[1] * other))
    policy.insert(rows(1))
    policy.touch(rows(*[0] * uses))
    policy.insert(rows(0))
    assert policy.take(2) == [1, 0]


@pytest.mark.parametrize(("uses", "next_class"), [(2, 3), (7, 8), (14, 15)])
def test_classes_begin_at_3_8_and_15_uses(uses: int, next_class: int) -> None:
    policy = MultiLruPolicy(NamedRows(2))
    policy.touch(rows(*[0] * next_class))
    policy.insert(rows(0))
    policy.touch(rows(*[1] * uses))
    policy.insert(rows(1))
    assert policy.take(2) == [1, 0]


def test_25_what_cooled_down_since_it_became_inactive_is_cold_when_it_comes_to_eviction() -> None:
    columns = NamedRows(30)
    sketch = FrequencySketch(capacity=32)
    policy = MultiLruPolicy(columns, sketch=sketch)
    policy.touch(rows(*[0] * 4))
    policy.insert(rows(0))
    policy.touch(rows(*[1] * 8))
    policy.insert(rows(1))
    policy.insert(rows(2))
    assert list(policy) == [2, 0, 1]
    for _ in range(14):
        policy.touch(rows(*range(3, 30)))
    assert sketch.halvings == 1
    assert sketch.estimate(keys_of(columns, rows(0, 1))) == [2, 4]
    assert policy.take(3) == [0, 2, 1]


def test_rows_that_become_inactive_just_after_a_halving_stand_in_one_list_once() -> None:
    columns = NamedRows(4)
    sketch = FrequencySketch(capacity=1)
    policy = MultiLruPolicy(columns, sketch=sketch)
    policy.insert(rows(0))
    policy.touch(rows(*[3] * 10))
    assert sketch.halvings == 1
    policy.insert(rows(1, 2))
    assert list(islice(policy, 4)) == [0, 2, 1]
    policy.remove(rows(2))
    assert list(islice(policy, 4)) == [0, 1]
    assert policy.take(2) == [0, 1]


@pytest.mark.parametrize("thresholds", [(5, 3, 8), (3, 3, 8), (3, 8, 8), (0, 3, 8), (3, 8, 16)])
def test_26_thresholds_that_do_not_rise_from_1_to_15_are_refused(thresholds: tuple[int, int, int]) -> None:
    with pytest.raises(KernelError, match="thresholds"):
        MultiLruPolicy(NamedRows(2), thresholds)


def test_a_scan_of_blocks_used_once_does_not_move_what_was_used_three_times() -> None:
    columns = NamedRows(2_000)
    policy = MultiLruPolicy(columns)
    policy.touch(rows(0, 0, 0))
    policy.insert(rows(0))
    for row in range(1, 2_000):
        policy.touch(rows(row))
        policy.insert(rows(row))
    assert policy.take(1_999) == rows(*range(1, 2_000))
