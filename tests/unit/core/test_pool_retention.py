"""Hints through the pool: what will be wanted again stays, what will not be leaves first.

Numbers are those of KVBM's behaviours.
"""

import pytest

from blockyard.core.eviction.lru import LruPolicy
from blockyard.core.eviction.registry import known_policies, policy_factory
from blockyard.core.eviction.retention import Retention
from blockyard.core.pool import BlockPool
from blockyard.core.vocabulary import ContentKey, GroupId, Tier
from blockyard.testing.blocks import chain, hold, key, make_pool, store
from blockyard.testing.clock import FakeClock


def evicted(pool: BlockPool, count: int) -> list[ContentKey]:
    """Keys of the blocks that go for ``count`` others, in order."""
    allocation = pool.allocate(count)
    allocation.blocks.release()
    return [block.key for block in allocation.evicted]


@pytest.mark.parametrize("policy", known_policies())
def test_hints_move_blocks_under_every_policy(policy: str) -> None:
    pool = make_pool(9, policy_factory(policy))
    system, talk, over = chain("system", 3), chain("talk", 3), chain("over", 3)
    for run in (system, talk, over):
        store(pool, run)
    assert pool.hint(system.keys(), Retention(10)) == 3
    assert pool.end_session(over.keys()) == 3
    pool.check_integrity()
    left = evicted(pool, 5)
    assert left == [*over.keys()[::-1], *talk.keys()[:0:-1]]
    with pool.match(system.keys()) as kept:
        assert len(kept) == 3
    pool.check_integrity()


def test_32_lower_priority_leaves_first_and_equal_ones_in_the_order_of_their_return_tails_before_heads() -> None:
    pool = make_pool(8)
    runs = {name: chain(name, 2) for name in ("high", "low", "low too", "none")}
    held = {name: hold(pool, run) for name, run in runs.items()}
    for name, priority in (("high", 80), ("low", 20), ("low too", 20)):
        pool.hint(runs[name].keys(), Retention(priority))
    for name in ("high", "low too", "low", "none"):
        held[name].release()
    left = evicted(pool, 8)
    assert left == [key for name in ("none", "low too", "low", "high") for key in runs[name].keys()[::-1]]


def test_hints_reach_all_groups_and_unknown_blocks_are_not_counted() -> None:
    pool = make_pool(8)
    run = chain("a", 2)
    store(pool, run, GroupId(0))
    store(pool, run, GroupId(1))
    store(pool, chain("b", 4))
    assert pool.hint([*run.keys(), *chain("unknown", 2).keys(), run.keys()[0]], Retention(1)) == 4
    assert set(evicted(pool, 4)) == set(chain("b", 4).keys())
    pool.check_integrity()


def test_a_hint_pins_nothing() -> None:
    pool = make_pool(4)
    run = chain("a", 4)
    store(pool, run)
    pool.hint(run.keys(), Retention(100))
    assert len(evicted(pool, 4)) == 4


def test_when_the_time_of_a_hint_is_over_its_blocks_leave_first() -> None:
    clock = FakeClock()
    pool = BlockPool(Tier.G2, 4, LruPolicy, clock=clock)
    old, new = chain("old", 2), chain("new", 2)
    store(pool, old)
    store(pool, new)
    pool.hint(new.keys(), Retention(50, ttl_seconds=60))
    assert [block.key for block in pool.next_victims(4)] == [*old.keys()[::-1], *new.keys()[::-1]]
    clock.advance(60)
    assert [block.key for block in pool.next_victims(4)] == [*new.keys()[::-1], *old.keys()[::-1]]


def test_blocks_of_an_ended_session_that_are_used_again_are_like_all_others() -> None:
    pool = make_pool(4)
    old, new = chain("old", 2), chain("new", 2)
    store(pool, old)
    store(pool, new)
    pool.end_session(new.keys())
    pool.match(new.keys()).release()
    assert evicted(pool, 2) == old.keys()[::-1]


def test_ending_a_session_that_is_still_in_use_waits_for_its_release() -> None:
    pool = make_pool(4)
    old, ended = chain("old", 2), chain("ended", 2)
    store(pool, old)
    with hold(pool, ended):
        assert pool.end_session(ended.keys()) == 2
        assert pool.inactive == 2
    assert evicted(pool, 2) == ended.keys()[::-1]


@pytest.mark.parametrize("policy", known_policies())
def test_blocks_put_first_leave_first_unless_the_policy_gives_them_places_of_their_own(policy: str) -> None:
    pool = make_pool(12, policy_factory(policy))
    old, cold, late = chain("old", 4), chain("cold", 4), chain("late", 4)
    for run in (old, cold, late):
        store(pool, run)
    with pool.scan(cold.keys()[:1]):
        pool.put_first([*cold.keys()[::-1], key("unknown")])
        pool.check_integrity()
        named = [block.key for block in pool.next_victims(3)]
    assert (named == cold.keys()[:0:-1]) == (policy not in ("fifo", "lineage", "lineage_fifo", "lru2"))
    assert evicted(pool, 3) == named
    pool.check_integrity()
