"""Which blocks of G2 go down to G3, and when."""

import pytest

from blockyard.core.block_name import BlockName, names_of
from blockyard.core.errors import KernelError
from blockyard.core.offload_plan import OffloadPlan, OffloadRefusal, OffloadRules
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

    def in_g2(self, key: ContentKey) -> BlockName | None:
        return self.g2.get(key)

    def in_g3(self, key: ContentKey) -> bool:
        return key in self.g3

    def queued(self, key: ContentKey) -> bool:
        return key in self.waiting


def plan(clock: FakeClock | None = None, **rules: int) -> OffloadPlan:
    return OffloadPlan(OffloadRules(**rules), 100, clock or FakeClock())  # type: ignore[arg-type]


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
    decision = plan().confirm([A[3], A[5]], tiers.in_g3, needs_parents=False)
    assert (decision.admitted, decision.refused) == ([A[3], A[5]], {})


def test_rules_of_use_and_budget_hold_for_windows_too() -> None:
    rules = plan(least_uses=2)
    rules.used(A[4:], GROUP)
    rules.used(A[5:], GROUP)
    decision = rules.select(A[3:], GROUP, Tiers(g2=A[3:]), needs_parents=False)
    assert decision.admitted == [A[5]]
    assert decision.refused == dict.fromkeys(A[3:5], OffloadRefusal.TOO_FEW_USES)
    decision = plan(bytes_per_day=100).confirm(A[4:], Tiers().in_g3, needs_parents=False)
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
    assert plan().hopeless([*A[3:], *B], {A[2].key, B[3].key}) == list(A[3:])
    assert plan().hopeless([A[5], A[3], A[4]], {A[2].key}) == list(A[3:])
    assert plan().hopeless(A, ()) == []


def test_when_their_turn_comes_blocks_need_their_parents() -> None:
    tiers = Tiers(g3=A[:2])
    decision = plan().confirm([A[2], A[3], A[5]], tiers.in_g3)
    assert decision.admitted == [A[2], A[3]]
    assert decision.refused == {A[5]: OffloadRefusal.PARENT_ABSENT}


def test_the_budget_lets_the_heads_through_and_refuses_the_rest() -> None:
    clock = FakeClock()
    rules = plan(clock, bytes_per_day=24 * 300)
    decision = rules.confirm(A, Tiers().in_g3)
    assert decision.admitted == list(A[:3])
    assert decision.refused == dict.fromkeys(A[3:], OffloadRefusal.WRITE_BUDGET)
    rules.not_written(1)
    assert rules.confirm(B, Tiers().in_g3).admitted == [B[0]]
    clock.advance(3_600.0)
    assert len(rules.confirm(B, Tiers().in_g3).admitted) == 2


def test_a_budget_below_one_block_is_refused() -> None:
    with pytest.raises(KernelError):
        plan(bytes_per_day=99)
