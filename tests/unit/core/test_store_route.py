"""Which way a block of an engine takes down."""

import pytest

from blockyard.core.block_name import BlockName, names_of
from blockyard.core.errors import KernelError
from blockyard.core.store_route import BypassRule, HostSlots, StoreRoute, store_routes
from blockyard.testing.blocks import chain

RUN = names_of(chain("a", 6))
THROUGH, PAST, WAIT = StoreRoute.THROUGH_G2, StoreRoute.PAST_G2, StoreRoute.WAIT


def routes(
    rule: BypassRule,
    *slots: int,
    g3: tuple[BlockName, ...] = (),
    names: tuple[BlockName, ...] = RUN,
    needs_parents: bool = True,
) -> list[StoreRoute]:
    capacity, available, in_flight = slots
    facts = HostSlots(capacity=capacity, available=available, in_flight=in_flight)
    held = {name.key for name in g3}
    return store_routes(names, rule, facts, held.__contains__, needs_parents=needs_parents)


def test_as_long_as_g2_has_slots_everything_goes_through_it() -> None:
    for rule in (BypassRule.NEVER, BypassRule.WHEN_FULL):
        assert routes(rule, 8, 6, 0) == [THROUGH] * 6


def test_where_g2_is_full_of_held_blocks_they_go_straight_to_disk() -> None:
    assert routes(BypassRule.WHEN_FULL, 8, 0, 0) == [PAST] * 6
    assert routes(BypassRule.NEVER, 8, 0, 0) == [WAIT] * 6


def test_slots_that_come_back_by_themselves_are_waited_for() -> None:
    assert routes(BypassRule.WHEN_FULL, 8, 0, 6) == [WAIT] * 6


def test_the_tail_of_a_request_beyond_g2_goes_past_it_once_its_head_is_on_disk() -> None:
    assert routes(BypassRule.WHEN_FULL, 4, 4, 0) == [THROUGH] * 4 + [WAIT] * 2
    assert routes(BypassRule.WHEN_FULL, 4, 4, 0, g3=RUN[:4]) == [THROUGH] * 4 + [PAST] * 2
    assert routes(BypassRule.WHEN_FULL, 0, 0, 0) == [PAST] * 6


def test_by_rule_everything_goes_past_g2() -> None:
    assert routes(BypassRule.ALWAYS, 8, 8, 0) == [PAST] * 6


def test_nothing_goes_to_disk_behind_a_hole_but_rows_of_a_window() -> None:
    assert routes(BypassRule.ALWAYS, 8, 8, 0, names=RUN[2:]) == [WAIT] * 4
    assert routes(BypassRule.ALWAYS, 8, 8, 0, names=RUN[2:], g3=RUN[1:2]) == [PAST] * 4
    assert routes(BypassRule.ALWAYS, 8, 8, 0, names=RUN[2:], needs_parents=False) == [PAST] * 4


@pytest.mark.parametrize("slots", [(4, 3, 2), (4, -1, 0)], ids=["too many", "negative"])
def test_slots_that_do_not_add_up_are_refused(slots: tuple[int, int, int]) -> None:
    with pytest.raises(KernelError):
        routes(BypassRule.NEVER, *slots)
