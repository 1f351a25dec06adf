"""LRU: oldest entry into inactivity first."""

import pytest

from blockyard.core.errors import KernelError
from blockyard.core.eviction.lru import LruPolicy
from blockyard.testing.eviction_conformance import rows
from blockyard.testing.row_columns import NamedRows


def test_oldest_entry_goes_first() -> None:
    policy = LruPolicy(NamedRows(4))
    for row in (1, 2, 3):
        policy.insert(rows(row))
    assert policy.take(3) == [1, 2, 3]


def test_a_row_used_again_becomes_the_newest() -> None:
    policy = LruPolicy(NamedRows(4))
    for row in (1, 2, 3):
        policy.insert(rows(row))
    policy.remove(rows(1))
    policy.insert(rows(1))
    assert policy.take(3) == [2, 3, 1]


def test_looking_changes_nothing() -> None:
    policy = LruPolicy(NamedRows(4))
    policy.insert(rows(0, 1, 2))
    assert list(policy) == list(policy) == [2, 1, 0]


@pytest.mark.parametrize("batch", [(1,), (0, 1), (1, 0), (0, 0)])
def test_a_row_enters_once(batch: tuple[int, ...]) -> None:
    policy = LruPolicy(NamedRows(2))
    policy.insert(rows(1))
    with pytest.raises(KernelError):
        policy.insert(rows(*batch))
    assert (list(policy), len(policy)) == ([1], 1)


@pytest.mark.parametrize("batch", [(1, 3), (1, 1)])
def test_a_batch_with_an_absent_row_removes_nothing(batch: tuple[int, ...]) -> None:
    policy = LruPolicy(NamedRows(4))
    policy.insert(rows(1, 2))
    with pytest.raises(KernelError):
        policy.remove(rows(*batch))
    assert (list(policy), len(policy)) == ([2, 1], 2)
