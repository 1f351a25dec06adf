"""Retention bands: expendable rows first, kept ones last, under any policy."""

import random

import pytest

from blockyard.core.errors import KernelError
from blockyard.core.eviction.base import EvictionPolicy
from blockyard.core.eviction.fifo import FifoPolicy
from blockyard.core.eviction.lineage import LineagePolicy
from blockyard.core.eviction.lru import LruPolicy
from blockyard.core.eviction.retention import Retention, RetentionBands
from blockyard.core.vocabulary import BlockId
from blockyard.testing.clock import FakeClock
from blockyard.testing.eviction_conformance import rows
from blockyard.testing.row_columns import NamedRows


def banded(policy: EvictionPolicy, clock: FakeClock | None = None, capacity: int = 8) -> RetentionBands:
    return RetentionBands(policy, capacity, clock or FakeClock())


def lru(clock: FakeClock | None = None) -> RetentionBands:
    """Rows 0 to 5, each a batch of its own, in LRU order."""
    bands = banded(LruPolicy(NamedRows(8)), clock)
    for row in range(6):
        bands.insert(rows(row))
    return bands


@pytest.mark.parametrize("make_policy", [LruPolicy, FifoPolicy, LineagePolicy])
def test_expendable_rows_go_first_and_kept_ones_last_under_any_policy(make_policy: type[LruPolicy]) -> None:
    bands = banded(make_policy(NamedRows(8)))
    for row in range(4):
        bands.insert(rows(row))
    bands.keep(rows(0), rows(0), Retention(1))
    bands.spend(rows(3), rows(3))
    assert list(bands) == [3, 1, 2, 0]
    assert bands.take(2) + bands.take(9) == [3, 1, 2, 0]
    assert len(bands) == 0


def test_the_lowest_priority_goes_first_and_of_equals_the_one_that_returned_first() -> None:
    bands = lru()
    for row, priority in ((0, 50), (1, 10), (2, 50), (4, 10)):
        bands.keep(rows(row), rows(row), Retention(priority))
    assert bands.take(6) == [3, 5, 1, 4, 0, 2]


def test_tails_go_before_heads_in_every_band() -> None:
    bands = banded(LruPolicy(NamedRows(8)))
    bands.insert(rows(0, 1))
    bands.keep(rows(2, 3), (), Retention(7))
    bands.spend(rows(4, 5), ())
    bands.insert(rows(4, 5))
    bands.insert(rows(2, 3))
    assert bands.take(6) == [5, 4, 1, 0, 3, 2]


def test_a_hint_about_a_row_in_use_waits_for_its_release() -> None:
    bands = lru()
    bands.remove(rows(0))
    bands.keep(rows(0), (), Retention(1))
    assert sorted(bands) == [1, 2, 3, 4, 5]
    bands.insert(rows(0))
    assert list(bands)[-1] == 0


def test_a_kept_row_stays_kept_through_its_uses() -> None:
    bands = lru()
    bands.keep(rows(0), rows(0), Retention(1))
    bands.touch(rows(0))
    bands.remove(rows(0))
    bands.insert(rows(0))
    assert bands.take(6)[-1] == 0


def test_a_use_of_an_expendable_row_makes_it_normal() -> None:
    bands = lru()
    bands.spend(rows(4), rows(4))
    bands.touch(rows(4))
    bands.remove(rows(4))
    bands.insert(rows(4))
    assert bands.take(6) == [0, 1, 2, 3, 5, 4]


def test_when_its_time_is_over_a_kept_row_is_expendable() -> None:
    clock = FakeClock()
    bands = lru(clock)
    bands.keep(rows(0, 1), rows(0, 1), Retention(90, ttl_seconds=10))
    bands.keep(rows(5), rows(5), Retention(1, ttl_seconds=5))
    clock.advance(4.999)
    assert list(bands) == [2, 3, 4, 5, 1, 0]
    clock.advance(0.001)
    assert list(bands) == [5, 2, 3, 4, 1, 0]
    clock.advance(5)
    assert bands.take(6) == [5, 1, 0, 2, 3, 4]


def test_time_ends_for_rows_in_use_as_well() -> None:
    clock = FakeClock()
    bands = lru(clock)
    bands.keep(rows(3), rows(3), Retention(90, ttl_seconds=10))
    bands.remove(rows(3))
    clock.advance(11)
    assert len(list(bands)) == 5
    bands.insert(rows(3))
    assert bands.take(1) == [3]


def test_the_latest_hint_counts() -> None:
    clock = FakeClock()
    bands = lru(clock)
    bands.keep(rows(0), rows(0), Retention(90, ttl_seconds=10))
    bands.keep(rows(0), rows(0), Retention(5))
    bands.keep(rows(1), rows(1), Retention(4))
    bands.spend(rows(2), rows(2))
    bands.keep(rows(2), rows(2), Retention(3))
    clock.advance(100)
    assert bands.take(6) == [3, 4, 5, 2, 1, 0]


def test_a_hint_ends_with_the_block() -> None:
    clock = FakeClock()
    bands = lru(clock)
    bands.keep(rows(0), rows(0), Retention(90, ttl_seconds=10))
    bands.spend(rows(1), rows(1))
    bands.remove(rows(0, 1))
    bands.forget(rows(0, 1))
    bands.insert(rows(1))
    bands.insert(rows(0))
    clock.advance(100)
    assert bands.take(6) == [2, 3, 4, 5, 1, 0]


def test_put_back_returns_rows_to_the_bands_from_which_they_came() -> None:
    bands = lru()
    bands.spend(rows(2, 3), rows(2, 3))
    bands.keep(rows(0, 1), rows(0, 1), Retention(1))
    before = list(bands)
    bands.put_back(bands.take(5))
    assert (list(bands), len(bands)) == (before, 6)


@pytest.mark.parametrize("batch", [(0, 6), (6, 6), (6, 3), (6, 2)])
def test_a_batch_that_cannot_enter_is_refused_whole(batch: tuple[int, ...]) -> None:
    bands = lru()
    bands.spend(rows(3), rows(3))
    bands.keep(rows(2, 6), rows(2), Retention(1))
    before = list(bands)
    with pytest.raises(KernelError):
        bands.insert(rows(*batch))
    assert (list(bands), len(bands)) == (before, 6)


@pytest.mark.parametrize("batch", [(3, 6), (0, 3, 3), (2, 7)])
def test_a_batch_that_cannot_leave_is_refused_whole(batch: tuple[int, ...]) -> None:
    bands = lru()
    bands.spend(rows(3), rows(3))
    bands.keep(rows(2), rows(2), Retention(1))
    before = list(bands)
    with pytest.raises(KernelError):
        bands.remove(rows(*batch))
    assert (list(bands), len(bands)) == (before, 6)


NO_MEANING = [(0, None), (101, None), (1, 0.0), (1, -1.0), (1, float("nan")), (1, float("inf")), (1, 1e303)]


@pytest.mark.parametrize("retention", NO_MEANING)
def test_a_hint_without_meaning_is_refused(retention: tuple[int, float | None]) -> None:
    with pytest.raises(KernelError):
        Retention(*retention)


@pytest.mark.parametrize("seed", range(6))
def test_no_sequence_of_hints_loses_or_doubles_a_row(seed: int) -> None:
    chance, clock = random.Random(seed), FakeClock()
    bands = banded(LruPolicy(NamedRows(12)), clock, capacity=12)
    idle: set[BlockId] = set()
    for _ in range(400):
        some = [BlockId(row) for row in chance.sample(range(12), chance.randint(0, 5))]
        there, absent = [row for row in some if row in idle], [row for row in some if row not in idle]
        match chance.randrange(8):
            case 0:
                bands.keep(some, there, Retention(chance.randint(1, 3), chance.choice((None, 1.0, 5.0))))
            case 1:
                bands.spend(some, there)
            case 2 | 3:
                bands.insert(absent)
                idle.update(absent)
            case 4:
                bands.touch(some)
                bands.remove(there)
                idle.difference_update(there)
            case 5:
                clock.advance(chance.choice((0.5, 2.0)))
            case 6:
                before = list(bands)
                taken = bands.take(chance.randint(0, 5))
                bands.put_back(taken)
                assert list(bands) == before
            case _:
                expected = list(bands)[:3]
                taken = bands.take(3)
                assert taken == expected
                bands.forget(taken)
                idle.difference_update(taken)
        assert len(bands) == len(idle)
        assert sorted(bands) == sorted(idle)
    assert len(bands.take(12)) == len(idle)
