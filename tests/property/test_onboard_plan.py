"""Random loads over tiers that fail: each block comes from its best source that works, found by trying all of them."""

from dataclasses import dataclass
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from blockyard.core.onboard_plan import ItemState, NextStep, OnboardPlan
from blockyard.core.vocabulary import Availability, ItemStatus, Tier

_ORDER = (Tier.G2, Tier.G3, Tier.G4)
_STAGES = {NextStep.READ_G3: Tier.G3, NextStep.READ_G4: Tier.G4}


@dataclass(frozen=True)
class Block:
    """Which tiers hold a block, which copies are whole, and what the shared index says."""

    holders: frozenset[Tier]
    whole: frozenset[Tier]
    index_silent: bool

    def best(self, remote_usable: bool) -> Tier | None:
        """The best source that works."""
        for tier in _ORDER:
            reachable = tier is not Tier.G4 or (remote_usable and not self.index_silent)
            if tier in self.holders & self.whole and reachable:
                return tier
        return None


def blocks() -> st.SearchStrategy[Block]:
    tiers = st.frozensets(st.sampled_from(_ORDER))
    return st.builds(Block, tiers, tiers, st.booleans())


def bring(plan: OnboardPlan, index: int, block: Block, remote_usable: bool, tried: list[Tier]) -> None:
    """Do for one block what the plan says, until it lies in G2 or the plan gives it up."""
    if Tier.G2 in block.holders and Tier.G2 not in tried:
        tried.append(Tier.G2)
        plan.ready(index, Tier.G2)
        return
    while True:
        step = plan.next_step(index, in_g3=Tier.G3 in block.holders, remote_usable=remote_usable)
        if step is NextStep.GIVE_UP:
            plan.give_up(index, ItemStatus.NOT_FOUND)
            return
        if step is NextStep.SEEK_G4:
            plan.seeking(index)
            found = Availability.G4 if Tier.G4 in block.holders else Availability.MISS
            plan.located(index, Availability.UNKNOWN if block.index_silent else found)
            continue
        tier = _STAGES[step]
        assert tier not in tried, "a source is tried once"
        tried.append(tier)
        plan.staging(index, tier)
        if tier in block.whole:
            plan.ready(index)
            return
        plan.source_failed(index, ItemStatus.CORRUPT)


@settings(max_examples=300, deadline=None)
@given(st.lists(blocks(), max_size=12), st.booleans(), st.randoms(use_true_random=False))
def test_each_block_comes_from_its_best_source_that_works(
    load: list[Block], remote_usable: bool, chance: Random
) -> None:
    plan = OnboardPlan(len(load))
    tried: list[list[Tier]] = [[] for _ in load]
    order = list(range(len(load)))
    chance.shuffle(order)
    for index in order:
        bring(plan, index, load[index], remote_usable, tried[index])
    while ready := plan.ready_indexes():
        good = [index for index in ready if load[index].best(remote_usable) is tried[index][-1]]
        damaged = [index for index in ready if index not in good]
        for index in damaged:  # the copy in G2 that was found there proves damaged in the last hop
            assert tried[index] == [Tier.G2]
            plan.start_over(index, ItemStatus.CORRUPT)
            bring(plan, index, load[index], remote_usable, tried[index])
        plan.copied(good, [ItemStatus.OK] * len(good))
    assert not plan.waiting
    outcome = plan.outcome()
    best = [block.best(remote_usable) for block in load]
    assert list(outcome.sources) == best
    assert [status is ItemStatus.OK for status in outcome.status] == [tier is not None for tier in best]
    assert outcome.usable == next((index for index, tier in enumerate(best) if tier is None), len(best))
    assert all(plan.state(index) in (ItemState.DONE, ItemState.FAILED) for index in range(len(load)))
    for block, sources, status in zip(load, tried, outcome.status, strict=True):
        assert sources == sorted(set(sources)), "best first, each once"
        if status is not ItemStatus.OK:
            assert status is (ItemStatus.CORRUPT if sources else ItemStatus.NOT_FOUND), block
