"""Packs of several KV groups: rows with one content key side by side, every group closed under prefixes by itself."""

from dataclasses import replace

from tests.unit.core.test_pack_plan import IDLE, SCOPE, chain, keys, planner

from blockyard.core.pack_plan import PackPlanner
from blockyard.core.vocabulary import GroupId, PackId

__all__ = ["planner"]

WINDOW = replace(SCOPE, group=GroupId(1))


def test_rows_of_two_groups_with_one_key_go_side_by_side(planner: PackPlanner) -> None:
    names = chain(8)
    for scope in (SCOPE, WINDOW):
        planner.registered(names, scope, 0.0)
    plans = planner.due(0.0)
    assert {(plan.scope, plan.first_position) for plan in plans if plan.previous is None} == {(SCOPE, 0), (WINDOW, 0)}
    for scope in (SCOPE, WINDOW):
        first, second = (plan for plan in plans if plan.scope == scope)
        assert list(first.keys + second.keys) == keys(names, scope.group)
        assert (first.pack, second.pack) == (PackId(first.keys[-1]), PackId(second.keys[-1]))
        assert second.previous == first.pack
    for plan in plans:
        planner.stored(plan.pack)
    assert planner.in_flight == 0
    assert planner.due(10.0) == []


def test_what_is_said_of_one_group_is_not_said_of_the_other(planner: PackPlanner) -> None:
    names = chain(4)
    planner.known(keys(names, GroupId(0)))
    for scope in (SCOPE, WINDOW):
        planner.registered(names, scope, 0.0)
    (plan,) = planner.due(0.0)
    assert plan.scope == WINDOW
    planner.stored(plan.pack)
    planner.lost(keys(names, GroupId(0)), 0.0)
    (again,) = planner.due(10.0)
    assert again.scope == SCOPE


def test_a_group_waits_for_its_own_pack_and_not_for_that_of_another(planner: PackPlanner) -> None:
    names = chain(8)
    planner.registered(names, SCOPE, 0.0)
    planner.registered(names[4:], WINDOW, 0.0)
    assert {plan.scope for plan in planner.due(0.0)} == {SCOPE}
    planner.known(keys(names[:4], GroupId(1)))
    (plan,) = planner.due(0.0)
    assert (plan.scope, plan.first_position) == (WINDOW, 4)


def test_a_window_row_that_leaves_before_its_pack_is_full_leaves_a_tail_behind(planner: PackPlanner) -> None:
    names = chain(3)
    for scope in (SCOPE, WINDOW):
        planner.registered(names, scope, 0.0)
    planner.evicted(keys(names[2:], GroupId(1)), 0.0)
    tails = {plan.scope.group: len(plan.names) for plan in planner.due(IDLE)}
    assert tails == {GroupId(0): 3, GroupId(1): 2}
