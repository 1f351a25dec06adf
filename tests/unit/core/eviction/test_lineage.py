"""Lineage: no block goes before those behind it; names that contradict each other harm nobody.

Numbers are those of KVBM's behaviours.
"""

from functools import partial

import pytest

from blockyard.core.eviction.lineage import LeafOrder, LineageFifoPolicy, LineagePolicy
from blockyard.core.vocabulary import ROOT_KEY, ContentKey
from blockyard.testing.blocks import chain, make_pool, store
from blockyard.testing.eviction_conformance import rows
from blockyard.testing.row_columns import NamedRows

BOTH = pytest.mark.parametrize("order", list(LeafOrder))


def two_chains() -> NamedRows:
    """A, B = 0, 1 and X, Y = 2, 3."""
    columns = NamedRows(4)
    columns.name_chain(rows(0, 1))
    columns.name_chain(rows(2, 3))
    return columns


@BOTH
def test_27_a_chain_goes_from_its_end(order: LeafOrder) -> None:
    columns = NamedRows(3)
    columns.name_chain(rows(0, 1, 2))
    policy = LineagePolicy(columns, order)
    for row in (0, 1, 2):
        policy.insert(rows(row))
    assert policy.take(3) == [2, 1, 0]


def test_28_a_parent_that_becomes_a_leaf_keeps_its_time_under_tick() -> None:
    policy = LineagePolicy(two_chains())
    for row in range(4):
        policy.insert(rows(row))
    assert policy.take(4) == [1, 0, 3, 2]


def test_28_a_parent_that_becomes_a_leaf_queues_up_behind_under_fifo() -> None:
    policy = LineageFifoPolicy(two_chains())
    for row in range(4):
        policy.insert(rows(row))
    assert policy.take(4) == [1, 3, 0, 2]


@BOTH
def test_29_a_child_that_comes_before_its_parent_is_its_child_all_the_same(order: LeafOrder) -> None:
    columns = NamedRows(3)
    columns.name_chain(rows(0, 1, 2))
    policy = LineagePolicy(columns, order)
    for row in (2, 0, 1):
        policy.insert(rows(row))
    assert policy.take(3) == [2, 1, 0]


@BOTH
def test_29_without_the_middle_of_its_chain_a_tail_can_still_be_evicted(order: LeafOrder) -> None:
    columns = NamedRows(5)
    columns.name_chain(rows(0, 1, 2, 3, 4))
    policy = LineagePolicy(columns, order)
    policy.insert(rows(0, 1, 2, 3, 4))
    policy.remove(rows(2))
    assert sorted(policy.take(2)) in ([1, 4], [3, 4], [0, 1])
    assert len(policy.take(4)) == 2


@BOTH
def test_a_middle_that_comes_back_protects_its_parent_again(order: LeafOrder) -> None:
    columns = NamedRows(3)
    columns.name_chain(rows(0, 1, 2))
    policy = LineagePolicy(columns, order)
    policy.insert(rows(0, 1, 2))
    policy.remove(rows(1))
    policy.insert(rows(1))
    assert policy.take(3) == [2, 1, 0]


@BOTH
def test_30_a_parent_of_two_leaves_goes_after_both(order: LeafOrder) -> None:
    columns = NamedRows(3)
    columns.name_chain(rows(0, 1))
    columns.name_chain(rows(2), parent=rows(0)[0])
    policy = LineagePolicy(columns, order)
    policy.insert(rows(0))
    policy.insert(rows(1))
    policy.insert(rows(2))
    assert policy.take(1) == [1]
    assert policy.take(1) == [2]
    assert policy.take(1) == [0]


@BOTH
def test_30_ten_thousand_blocks_in_one_chain_leave_without_recursion_in_any_order(order: LeafOrder) -> None:
    deep = rows(*range(10_500))
    columns = NamedRows(len(deep))
    columns.name_chain(deep)
    policy = LineagePolicy(columns, order)
    for row in deep[:500]:
        policy.insert([row])
    policy.insert(deep[:499:-1])  # children before their parents
    assert policy.take(1) == deep[-1:]
    policy.remove(deep[5_000:10_000])
    assert sorted(policy.take(len(policy))) == deep[:5_000] + deep[10_000:-1]
    assert len(policy) == 0


@BOTH
def test_31_two_blocks_that_agree_in_a_part_of_their_names_stay_two(order: LeafOrder) -> None:
    columns = NamedRows(3)
    columns.name_chain(rows(0, 1))
    alike = bytearray(columns.keys[0])
    alike[-1] ^= 1
    columns.keys[2] = ContentKey(bytes(alike))
    policy = LineagePolicy(columns, order)
    policy.insert(rows(0, 1, 2))
    order_given = policy.take(3)
    assert order_given.index(rows(1)[0]) < order_given.index(rows(0)[0])
    assert sorted(order_given) == [0, 1, 2]


@BOTH
def test_31_two_rows_with_one_name_are_two_rows(order: LeafOrder) -> None:
    columns = NamedRows(4)
    columns.name_chain(rows(0, 1))
    columns.keys[2], columns.keys[3] = columns.keys[0], columns.keys[0]
    policy = LineagePolicy(columns, order)
    policy.insert(rows(2, 0, 1, 3))
    policy.remove(rows(2))
    policy.insert(rows(2))
    assert sorted(policy.take(4)) == [0, 1, 2, 3]


@BOTH
def test_blocks_that_name_each_other_as_parents_are_still_evicted(order: LeafOrder) -> None:
    columns = NamedRows(4)
    columns.parents[0], columns.parents[1] = columns.keys[1], columns.keys[0]
    columns.parents[2] = columns.keys[2]
    policy = LineagePolicy(columns, order)
    policy.insert(rows(0, 1, 2, 3))
    taken = policy.take(4)
    assert taken[0] == 3
    assert sorted(taken) == [0, 1, 2, 3]
    policy.put_back(taken)
    assert policy.take(2) == taken[:2]


@BOTH
def test_the_root_is_nobodys_child(order: LeafOrder) -> None:
    columns = NamedRows(2)
    columns.keys[0] = ROOT_KEY
    policy = LineagePolicy(columns, order)
    policy.insert(rows(0, 1))
    assert sorted(policy.take(2)) == [0, 1]


def test_chains_of_different_groups_do_not_protect_each_other() -> None:
    columns = NamedRows(3)
    columns.name_chain(rows(0), "a", group=0)
    columns.name_chain(rows(1, 2), "a", "b", group=1)
    policy = LineagePolicy(columns)
    policy.insert(rows(0))
    policy.insert(rows(1, 2))
    assert policy.take(3) == [0, 2, 1]


@BOTH
def test_33_of_blocks_that_came_one_by_one_the_first_ones_are_left_for_a_prefix(order: LeafOrder) -> None:
    pool = make_pool(4, partial(LineagePolicy, order=order))
    run = chain("a", 4)
    for index in range(4):
        store(pool, run.slice(index, index + 1))
    for count, left in ((2, 2), (1, 1)):
        pool.evict(count).release()
        with pool.match(run.keys()) as prefix:
            assert len(prefix) == left
