"""Which blocks of G2 go down to G3, and when."""

from collections.abc import Callable, Sequence

import pytest

from blockyard.core.block_name import BlockName, names_of
from blockyard.core.errors import KernelError
from blockyard.core.offload_plan import OffloadPlan, OffloadRefusal, OffloadRules
from blockyard.core.postponed_blocks import PostponedBlocks
from blockyard.core.use_counts import DECAY_SECONDS
from blockyard.core.vocabulary import ContentKey, GroupId
from blockyard.testing.blocks import chain
from blockyard.testing.clock import FakeClock

GROUP = GroupId(0)
A = names_of(chain("a", 6))
B = names_of(chain("b", 4))


class Tiers:
    """A view with everything in plain sets."""

    def __init__(self, g2: tuple[BlockName, ...] = A + B, g3: tuple[BlockName, ...] = ()) -> None:
        self.g2 = {name.key: name for name in g2}
        self.g3 = {name.key for name in g3}
        self.waiting: set[ContentKey] = set()
        self.g1: set[ContentKey] = set()

    def in_g2(self, key: ContentKey) -> BlockName | None:
        return self.g2.get(key)

    def in_g3(self, key: ContentKey) -> bool:
        return key in self.g3

    def queued(self, key: ContentKey) -> bool:
        return key in self.waiting

    def in_g1(self, key: ContentKey) -> bool:
        return key in self.g1


def behind(waiting: Sequence[BlockName]) -> Callable[[ContentKey], list[BlockName]]:
    return lambda key: [name for name in waiting if name.parent == key]


def plan(clock: FakeClock | None = None, **rules: int) -> OffloadPlan:
    return OffloadPlan(OffloadRules(**rules), 100, clock or FakeClock())  # type: ignore[arg-type]


def test_a_parent_in_the_memory_of_an_engine_will_do() -> None:
    tiers = Tiers(g2=A[2:])
    assert set(plan().select(A[3:4], GROUP, tiers).refused.values()) == {OffloadRefusal.PARENT_ABSENT}
    tiers.g1.add(A[1].key)
    assert plan().select(A[3:4], GROUP, tiers).admitted == [A[2], A[3]]
    assert plan().confirm([A[2], A[3]], GROUP, tiers.in_g1).admitted == [A[2], A[3]]
    tiers.g2[A[1].key] = A[1]
    assert plan().select(A[3:4], GROUP, tiers).refused.keys() == {A[1], A[2], A[3]}, "what G2 has comes along"


def test_what_g3_has_or_awaits_is_not_wanted_again() -> None:
    tiers = Tiers(g3=A[:2])
    tiers.waiting.add(A[2].key)
    decision = plan().select(A, GROUP, tiers)
    assert decision.admitted == list(A[3:])
    assert decision.refused == {}


def test_ancestors_that_g2_still_holds_come_along_first() -> None:
    decision = plan().select([A[4], A[2], B[0]], GROUP, Tiers(g3=A[:1]))
    assert decision.admitted == [*A[1:5], B[0]]


def test_a_block_whose_prefix_is_lost_is_refused_with_all_that_follow() -> None:
    decision = plan().select(A[:2] + A[3:], GROUP, Tiers(g2=A[:2] + A[3:]))
    assert decision.admitted == list(A[:2])
    assert set(decision.refused) == set(A[3:])
    later = plan().select(A[3:], GROUP, Tiers(g2=A[3:]))
    assert later.admitted == []
    assert later.refused == dict.fromkeys(A[3:], OffloadRefusal.PARENT_ABSENT)


def test_blocks_of_a_window_come_though_those_it_had_passed_were_never_stored() -> None:
    tiers = Tiers(g2=A[3:])
    decision = plan().select(A[3:], GROUP, tiers, needs_parents=False)
    assert (decision.admitted, decision.refused) == (list(A[3:]), {})
    decision = plan().confirm([A[3], A[5]], GROUP, tiers.in_g3, needs_parents=False)
    assert (decision.admitted, decision.refused) == ([A[3], A[5]], {})


def test_rules_of_use_and_budget_hold_for_windows_too() -> None:
    rules = plan(least_uses=2)
    rules.used(A[4:], GROUP)
    rules.used(A[5:], GROUP)
    decision = rules.select(A[3:], GROUP, Tiers(g2=A[3:]), needs_parents=False)
    assert decision.admitted == [A[5]]
    assert decision.refused == dict.fromkeys(A[3:5], OffloadRefusal.TOO_FEW_USES)
    decision = plan(bytes_per_day=100).confirm(A[4:], GROUP, Tiers().in_g3, needs_parents=False)
    assert decision.admitted == [A[4]]
    assert decision.refused == {A[5]: OffloadRefusal.WRITE_BUDGET}


def test_a_threshold_of_uses_keeps_rarely_used_blocks_and_their_followers_out() -> None:
    rules = plan(least_uses=2)
    rules.used(A, GROUP)
    assert rules.select(A, GROUP, Tiers()).refused == dict.fromkeys(A, OffloadRefusal.TOO_FEW_USES)
    rules.used((*A[:2], *A[3:]), GROUP)
    decision = rules.select(A, GROUP, Tiers())
    assert decision.admitted == list(A[:2])
    assert set(decision.refused) == set(A[2:])


def test_without_a_threshold_uses_are_not_remembered() -> None:
    clock = FakeClock()
    rules = plan(clock)
    rules.used(A, GROUP)
    clock.advance(10 * DECAY_SECONDS)
    assert rules.select(A, GROUP, Tiers()).admitted == list(A)


def test_nothing_is_written_whose_prefix_would_have_to_go_for_it() -> None:
    assert plan().hopeless([A[2].key, B[3].key], behind([*A[3:], *B])) == list(A[3:])
    assert plan().hopeless([A[2].key], behind([A[5], A[3], A[4]])) == list(A[3:])
    assert plan().hopeless([], behind(A)) == []


def test_what_waits_elsewhere_is_not_looked_at_for_victims() -> None:
    asked: list[ContentKey] = []

    def spied(key: ContentKey) -> list[BlockName]:
        asked.append(key)
        return behind([*A, *B])(key)

    plan().hopeless([A[3].key], spied)
    assert asked == [name.key for name in A[3:]]


def test_when_their_turn_comes_blocks_need_their_parents() -> None:
    tiers = Tiers(g3=A[:2])
    decision = plan().confirm([A[2], A[3], A[5]], GROUP, tiers.in_g3)
    assert decision.admitted == [A[2], A[3]]
    assert decision.refused == {A[5]: OffloadRefusal.PARENT_ABSENT}


def test_the_budget_lets_the_heads_through_and_refuses_the_rest() -> None:
    clock = FakeClock()
    rules = plan(clock, bytes_per_day=24 * 300)
    decision = rules.confirm(A, GROUP, Tiers().in_g3)
    assert decision.admitted == list(A[:3])
    assert decision.refused == dict.fromkeys(A[3:], OffloadRefusal.WRITE_BUDGET)
    rules.not_written(1)
    assert rules.confirm(B, GROUP, Tiers().in_g3).admitted == [B[0]]
    clock.advance(3_600.0)
    assert len(rules.confirm(B, GROUP, Tiers().in_g3).admitted) == 2


def test_what_the_budget_refused_has_its_turn_when_there_is_a_batch_of_bytes() -> None:
    clock = FakeClock()
    rules = plan(clock, bytes_per_day=24 * 300)
    rules.confirm(A, GROUP, Tiers().in_g3)
    waiting = [(name.key, GROUP) for name in A[3:]]
    assert rules.due_again(2) == [], "nothing can be paid for"
    clock.advance(1_800.0)
    assert rules.due_again(2) == [], "one block is not worth a job"
    clock.advance(3_600.0)
    assert rules.due_again(2) == waiting[:2]
    assert rules.due_again(2) == waiting[2:], "the last ones are a batch"
    assert rules.due_again(2) == []


def test_a_batch_beyond_the_largest_burst_is_not_waited_for() -> None:
    clock = FakeClock()
    rules = plan(clock, bytes_per_day=24 * 300)
    rules.confirm(A, GROUP, Tiers().in_g3)
    rules.confirm(B, GROUP, Tiers().in_g3)
    clock.advance(36_000.0)
    assert len(rules.due_again(64)) == 3


def test_what_left_g2_or_was_written_meanwhile_has_no_turn() -> None:
    clock = FakeClock()
    rules = plan(clock, bytes_per_day=24 * 300)
    rules.confirm(A, GROUP, Tiers().in_g3)
    rules.left([(A[3].key, GROUP)])
    clock.advance(3_600.0)
    rules.confirm(A[4:5], GROUP, Tiers(g3=A[:4]).in_g3)
    clock.advance(3_600.0)
    assert rules.due_again(64) == [(A[5].key, GROUP)]


def test_without_a_budget_nothing_waits_for_it() -> None:
    rules = plan()
    rules.confirm(A, GROUP, Tiers().in_g3)
    assert rules.due_again(64) == []


def test_the_oldest_give_way_where_too_many_wait_for_the_budget() -> None:
    postponed = PostponedBlocks(3)
    blocks = [(name.key, GROUP) for name in A]
    postponed.postpone(blocks[:3])
    postponed.postpone([blocks[1], blocks[4]])
    assert len(postponed) == 3
    assert postponed.due(9, 9) == [blocks[1], blocks[2], blocks[4]]


def test_a_budget_below_one_block_is_refused() -> None:
    with pytest.raises(KernelError):
        plan(bytes_per_day=99)
