"""Random forests and tiers: what goes down is closed under prefixes, within the budget, and never refused as well."""

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from blockyard.core.block_name import BlockName
from blockyard.core.endurance import EnduranceBudget
from blockyard.core.offload_plan import OffloadPlan, OffloadRules
from blockyard.core.vocabulary import ROOT_KEY, ChainDigest, ContentKey, GroupId
from blockyard.core.watermarks import Reserve, Watermarks
from blockyard.testing.clock import FakeClock

GROUP = GroupId(0)
BLOCK_BYTES = 10
DAY = 86_400.0


@st.composite
def forests(draw: st.DrawFn) -> list[BlockName]:
    """Blocks, each with an earlier one as its parent, or none."""
    names: list[BlockName] = []
    for number, parent in enumerate(draw(st.lists(st.integers(-1, 29), min_size=1, max_size=30))):
        above = names[parent] if 0 <= parent < number else None
        digest = ChainDigest(f"{number}".encode().ljust(32, b"."))
        names.append(BlockName(digest, above.key if above else ROOT_KEY, above.position + 1 if above else 0))
    return names


class Tiers:
    """Two tiers and a queue, in plain sets."""

    def __init__(self, names: list[BlockName], places: list[set[str]]) -> None:
        self.g2 = {name.key: name for name, place in zip(names, places, strict=True) if "g2" in place}
        self.g3 = {name.key for name, place in zip(names, places, strict=True) if "g3" in place}
        self.waiting = {name.key for name, place in zip(names, places, strict=True) if "queue" in place}
        self.g1 = {name.key for name, place in zip(names, places, strict=True) if "g1" in place}

    def in_g2(self, key: ContentKey) -> BlockName | None:
        return self.g2.get(key)

    def in_g3(self, key: ContentKey) -> bool:
        return key in self.g3

    def queued(self, key: ContentKey) -> bool:
        return key in self.waiting

    def in_g1(self, key: ContentKey) -> bool:
        return key in self.g1


@st.composite
def situations(draw: st.DrawFn) -> tuple[list[BlockName], Tiers]:
    names = draw(forests())
    place = st.sets(st.sampled_from(["g1", "g2", "g3", "queue"]))
    places = draw(st.lists(place, min_size=len(names), max_size=len(names)))
    return names, Tiers(names, places)


def closed(admitted: list[BlockName], there: set[ContentKey]) -> bool:
    """Whether each block comes after its parent."""
    known = there | {ROOT_KEY}
    for name in admitted:
        if name.parent not in known:
            return False
        known.add(name.key)
    return True


@settings(max_examples=60, deadline=None)
@given(situations(), st.data(), st.integers(1, 3))
def test_what_is_selected_is_closed_complete_and_not_refused(
    situation: tuple[list[BlockName], Tiers], data: st.DataObject, least_uses: int
) -> None:
    names, tiers = situation
    plan = OffloadPlan(OffloadRules(least_uses=least_uses), BLOCK_BYTES, FakeClock())
    used = data.draw(st.lists(st.sampled_from(names), max_size=60))
    plan.used(used, GROUP)
    held = [name for name in names if name.key in tiers.g2]
    offered = data.draw(st.lists(st.sampled_from(held), max_size=20)) if held else []
    decision = plan.select(offered, GROUP, tiers)
    there = tiers.g3 | tiers.waiting
    assert closed(decision.admitted, there | tiers.g1)
    assert not set(decision.admitted) & set(decision.refused)
    assert len(set(decision.admitted)) == len(decision.admitted)
    assert set(offered) <= set(decision.admitted) | set(decision.refused) | {n for n in names if n.key in there}
    assert all(name.key in tiers.g2 and name.key not in there for name in decision.admitted)
    if least_uses > 1:
        assert all(used.count(name) >= least_uses - (least_uses == 3) for name in decision.admitted)


@settings(max_examples=60, deadline=None)
@given(situations(), st.data())
def test_what_is_confirmed_is_closed_and_affordable(
    situation: tuple[list[BlockName], Tiers], data: st.DataObject
) -> None:
    names, tiers = situation
    clock, per_day = FakeClock(), data.draw(st.integers(BLOCK_BYTES, 40 * BLOCK_BYTES))
    plan = OffloadPlan(OffloadRules(bytes_per_day=per_day), BLOCK_BYTES, clock)
    written: list[tuple[float, int]] = []
    for _ in range(data.draw(st.integers(1, 8))):
        batch = sorted(data.draw(st.sets(st.sampled_from(names))), key=lambda name: name.position)
        had = tiers.g3 | tiers.g1
        decision = plan.confirm(batch, GROUP, had.__contains__)
        assert closed(decision.admitted, had)
        assert set(decision.admitted) | set(decision.refused) == set(batch)
        assert not set(decision.admitted) & set(decision.refused)
        written.append((clock.monotonic(), len(decision.admitted) * BLOCK_BYTES))
        clock.advance(data.draw(st.floats(0, DAY)))
    for end, _ in written:
        assert sum(size for at, size in written if end - DAY <= at <= end) <= per_day


@settings(max_examples=60, deadline=None)
@given(forests(), st.data())
def test_what_is_given_up_for_its_prefix_is_everything_behind_the_victims(
    names: list[BlockName], data: st.DataObject
) -> None:
    victims = {name.key for name in data.draw(st.sets(st.sampled_from(names)))}
    waiting = [name for name in names if name.key not in victims]
    plan = OffloadPlan(OffloadRules(), BLOCK_BYTES, FakeClock())
    queue = data.draw(st.permutations(waiting))
    refused = plan.hopeless(sorted(victims), lambda key: [name for name in queue if name.parent == key])
    assert len(set(refused)) == len(refused)
    by_key = {name.key: name for name in names}

    def behind(name: BlockName) -> bool:
        return name.parent in victims or (name.parent in by_key and behind(by_key[name.parent]))

    assert set(refused) == {name for name in waiting if behind(name)}


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 1_000_000),
    st.lists(st.tuples(st.floats(0, DAY / 2), st.integers(0, 1_000_000), st.booleans()), max_size=60),
)
def test_no_day_has_more_than_its_budget(per_day: int, steps: list[tuple[float, int, bool]]) -> None:
    clock = FakeClock()
    item = max(1, per_day // 50)
    budget = EnduranceBudget(per_day, item, clock)
    spent: list[tuple[float, int]] = []
    for seconds, wanted, everything in steps:
        clock.advance(seconds)
        size = budget.available_bytes if everything else min(wanted, budget.available_bytes)
        assert size >= 0
        budget.spend(size)
        spent.append((clock.monotonic(), size))
    for end, _ in spent:
        assert sum(size for at, size in spent if end - DAY <= at <= end) <= per_day


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 20), st.integers(0, 20), st.lists(st.tuples(st.integers(0, 50), st.integers(0, 60)), max_size=40))
def test_a_reserve_never_asks_for_more_than_its_mark_and_rests_between(
    low: int, more: int, steps: list[tuple[int, int]]
) -> None:
    reserve = Reserve(Watermarks(low, low + more))
    asked = [reserve.wanted(level, demand) for level, demand in steps]
    for (level, demand), wanted in zip(steps, asked, strict=True):
        high = min(low + more, demand)
        assert wanted in (0, high - level)
        assert wanted > 0 or level >= min(low, demand)
    for (before, demand), (level, later) in pairwise(steps):
        if before >= min(low + more, demand) and level >= min(low, later):
            again = Reserve(Watermarks(low, low + more))
            assert again.wanted(before, demand) == again.wanted(level, later) == 0
