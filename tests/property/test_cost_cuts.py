"""Random machines and hits: no cut is better than the one that the cost model takes, and none is worse than no load."""

import random

import pytest

from blockyard.core.cost import CostModel, CostRules, Cut
from blockyard.core.miss_reason import MissReason
from blockyard.core.vocabulary import Tier

NEVER_EXPLORING = CostRules(min_samples=3, explore_dear_every=0, explore_unmeasured_every=0)
SOURCES = (Tier.G2, Tier.G3, Tier.G4)


def learnt(chance: random.Random, rules: CostRules = NEVER_EXPLORING) -> CostModel:
    """A model of some machine: fast or slow tiers, fast or slow prefill, some of it not measured."""
    model = CostModel(rules)
    for tier in SOURCES:
        latency, speed = chance.uniform(0, 0.05), 10 ** chance.uniform(4, 8)
        for _ in range(chance.choice((0, 2, 5, 80))):
            rows = chance.randint(1, 40)
            model.observe_load(tier, rows * 1_000, latency + rows * 1_000 / speed * chance.uniform(0.8, 1.2), rows)
    flat, slope = 10 ** chance.uniform(-6, -3), 10 ** chance.uniform(-9, -6)
    for _ in range(chance.choice((0, 2, 5, 80))):
        position, tokens = chance.randint(0, 2_000), chance.randint(32, 500)
        model.observe_prefill(position, tokens, tokens * (flat + slope * (position + tokens / 2)))
    return model


def seconds_of(model: CostModel, sources: list[Tier], cut: int, local: int, block: int, row: int, prompt: int) -> float:
    """Time of one cut, added up tier by tier from the model's own lines."""
    load = sum(
        model.load_seconds(tier, sources[:cut].count(tier) * row) or 0.0 for tier in SOURCES if tier in sources[:cut]
    )
    rest = model.recompute_seconds(max(local, (local // block + cut) * block if cut else 0), prompt)
    assert rest is not None
    return load + rest


@pytest.mark.parametrize("seed", range(20))
def test_no_cut_is_faster_than_the_chosen_one(seed: int) -> None:
    chance = random.Random(seed)
    reasons: set[MissReason] = set()
    for _ in range(300):
        model = learnt(chance)
        block = chance.choice((1, 16, 64))
        sources = [chance.choice(SOURCES) for _ in range(chance.randint(0, 25))]
        if chance.random() < 0.6:
            sources.sort()
        local = chance.choice((0, block, 3 * block, chance.randint(0, 200)))
        prompt = (local // block + len(sources)) * block + chance.randint(1, 400)
        row = chance.choice((1_000, 20_000))
        allowed = sorted(chance.sample(range(1, 26), chance.randint(0, 6))) if chance.random() < 0.4 else None
        cut = model.choose_cut(sources, local, block, row, prompt, allowed)
        reasons.add(cut.reason)
        stops = [stop for stop in (range(1, 26) if allowed is None else allowed) if stop <= len(sources)]
        measured = model.recompute_seconds(0, 1) is not None
        judged = [Tier.G2] + [tier for tier in SOURCES if measured and model.load_seconds(tier, 1) is not None]
        possible = [0] + [stop for stop in stops if all(tier in judged for tier in sources[:stop])]
        assert cut.rows in possible
        assert not cut.exploring
        if measured:
            times = [seconds_of(model, sources, stop, local, block, row, prompt) for stop in possible]
            assert times[possible.index(cut.rows)] == pytest.approx(min(times), rel=1e-9)
            assert times[possible.index(cut.rows)] <= times[0] * (1 + 1e-9), "slower than computing everything"
        else:
            assert cut.rows == possible[-1], "what lies in G2 is loaded until prefill is measured"
        if cut.rows == len(sources):
            assert cut.reason is MissReason.FULL_HIT
        elif cut.reason is MissReason.TOO_DEAR:
            assert cut.rows < possible[-1]
        elif cut.reason is MissReason.NOT_ENOUGH_SAMPLES:
            assert sources[cut.rows] not in judged or possible[-1] < max(stops)
        else:
            assert cut.reason is MissReason.WINDOW_NOT_RESTORABLE
            assert cut.rows == max(stops, default=0)
    assert reasons >= {MissReason.FULL_HIT, MissReason.TOO_DEAR, MissReason.NOT_ENOUGH_SAMPLES}


@pytest.mark.parametrize("seed", range(10))
def test_exploring_is_seldom_small_and_repeatable(seed: int) -> None:
    rules = CostRules(min_samples=3, explore_unmeasured_every=3, explore_dear_every=5, explore_rows=2)
    plain, first, second = (learnt(random.Random(seed), each) for each in (NEVER_EXPLORING, rules, rules))
    chance = random.Random(seed)
    cut_short = explored = 0
    for _ in range(300):
        sources = [chance.choice(SOURCES) for _ in range(chance.randint(1, 40))]
        question = (sources, 0, 16, 1_000, len(sources) * 16 + 5)
        cut, usual = first.choose_cut(*question), plain.choose_cut(*question)
        assert cut == second.choose_cut(*question)
        if cut.exploring:
            assert usual.rows < cut.rows <= min(len(sources), usual.rows + 16)
            assert cut.reason is usual.reason
        else:
            assert cut == usual
        cut_short += usual.reason is not MissReason.FULL_HIT
        explored += cut.exploring
    assert explored <= cut_short / 3
    assert cut_short < 10 or explored, "nothing that is not measured is ever learnt"


def test_a_hit_of_nothing_is_whole() -> None:
    assert CostModel().choose_cut([], 0, 16, 1_000, 10) == Cut(0, MissReason.FULL_HIT)
