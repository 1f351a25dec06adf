"""LRU: oldest entry into inactivity first. Numbers are those of KVBM's behaviours."""

from blockyard.core.eviction.lru import LruPolicy
from blockyard.testing.eviction_conformance import rows
from blockyard.testing.row_columns import NamedRows


def test_24_a_row_used_again_becomes_the_newest_and_looking_changes_nothing() -> None:
    policy = LruPolicy(NamedRows(4))
    for row in (1, 2, 3):
        policy.insert(rows(row))
    assert list(policy) == [1, 2, 3]
    policy.touch(rows(1))
    policy.remove(rows(1))
    policy.insert(rows(1))
    assert list(policy) == [2, 3, 1]
    assert policy.take(3) == [2, 3, 1]


def test_a_use_that_pins_nothing_does_not_count() -> None:
    policy = LruPolicy(NamedRows(4))
    policy.insert(rows(1))
    policy.insert(rows(2))
    policy.touch(rows(1))
    assert policy.take(1) == [1]


def test_tails_of_requests_go_before_their_heads_and_older_requests_before_newer_ones() -> None:
    policy = LruPolicy(NamedRows(6))
    policy.insert(rows(0, 1, 2))
    policy.insert(rows(3, 4, 5))
    assert policy.take(4) == [2, 1, 0, 5]


def test_33_of_four_blocks_that_came_together_the_first_ones_are_left_for_a_prefix() -> None:
    policy = LruPolicy(NamedRows(4))
    policy.insert(rows(0, 1, 2, 3))
    assert policy.take(2) == [3, 2]
    assert policy.take(1) == [1]
