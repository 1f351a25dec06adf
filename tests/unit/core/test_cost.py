"""What the cost model learns from measurements, and what it refuses to learn."""

import math

import pytest

from blockyard.core.cost import CostModel, CostRules, Cut
from blockyard.core.errors import KernelError
from blockyard.core.miss_reason import MissReason, reason_of
from blockyard.core.vocabulary import Tier

BLOCK = 16
ROW = 1_000_000


def loads(model: CostModel, tier: Tier, latency: float, bytes_per_second: float, count: int = 16) -> None:
    for number in range(count):
        rows = 1 + number % 8
        model.observe_load(tier, rows * ROW, latency + rows * ROW / bytes_per_second, rows)


def prefills(model: CostModel, flat: float, slope: float = 0.0) -> None:
    for position in range(0, 4_096, 256):
        model.observe_prefill(position, 256, 256 * (flat + slope * (position + 128)))


def test_latency_and_speed_of_a_tier_are_found() -> None:
    model = CostModel()
    loads(model, Tier.G3, 0.01, 1e9)
    assert model.load_seconds(Tier.G3, 100 * ROW) == pytest.approx(0.01 + 0.1)
    assert model.samples(Tier.G3) == 16
    assert model.load_seconds(Tier.G2, ROW) is None


def test_wild_measurements_do_not_bend_the_line() -> None:
    model = CostModel()
    for number in range(40):
        rows = 1 + number % 8
        wild = 50.0 if number % 9 == 0 else 0.0
        model.observe_load(Tier.G3, rows * ROW, wild + 0.01 + rows * ROW / 1e9, rows)
    assert model.load_seconds(Tier.G3, 8 * ROW) == pytest.approx(0.018, rel=0.05)


def test_a_tier_that_became_slow_is_learnt_anew() -> None:
    model = CostModel()
    loads(model, Tier.G2, 0.001, 1e10, 200)
    loads(model, Tier.G2, 0.1, 1e8, 200)
    assert model.load_seconds(Tier.G2, 10 * ROW) == pytest.approx(0.2)


def test_a_load_smaller_than_any_measured_one_is_not_believed_to_be_faster() -> None:
    model = CostModel()
    for _ in range(8):
        model.observe_load(Tier.G4, 4 * ROW, 0.08, 4)
    assert model.load_seconds(Tier.G4, ROW) == pytest.approx(0.08)
    assert model.load_seconds(Tier.G4, 8 * ROW) == pytest.approx(0.16)


def test_tokens_far_back_in_a_prompt_cost_more() -> None:
    model = CostModel()
    prefills(model, 1e-4, 1e-8)
    assert model.recompute_seconds(0, 1_000) == pytest.approx(0.1 + 1e-8 * 1_000**2 / 2)
    assert model.recompute_seconds(9_000, 10_000) == pytest.approx(0.1 + 1e-8 * (10_000**2 - 9_000**2) / 2)
    assert model.recompute_seconds(10, 10) == 0


@pytest.mark.parametrize("seconds", [-1.0, math.nan, math.inf])
def test_times_that_no_clock_measures_teach_nothing(seconds: float) -> None:
    model = CostModel(CostRules(min_samples=1))
    model.observe_load(Tier.G2, ROW, seconds, 1)
    model.observe_prefill(0, 100, seconds)
    assert model.load_seconds(Tier.G2, ROW) is None
    assert model.recompute_seconds(0, 1) is None


def test_empty_loads_and_short_prefills_teach_nothing() -> None:
    model = CostModel(CostRules(min_samples=1))
    model.observe_load(Tier.G2, 0, 0.5, 0)
    model.observe_load(Tier.G1, ROW, 0.5, 1)
    model.observe_prefill(0, 31, 0.5)
    assert model.samples(Tier.G2) == model.samples(Tier.G1) == 0
    assert model.recompute_seconds(0, 1) is None


def test_before_anything_is_measured_only_g2_is_loaded_from() -> None:
    model = CostModel()
    assert model.choose_cut([Tier.G2] * 3, 0, BLOCK, ROW, 60) == Cut(3, MissReason.FULL_HIT)
    assert model.choose_cut([Tier.G2, Tier.G3], 0, BLOCK, ROW, 60) == Cut(1, MissReason.NOT_ENOUGH_SAMPLES)


def test_a_measured_tier_is_loaded_from_where_it_is_faster_than_prefill() -> None:
    model = CostModel()
    loads(model, Tier.G3, 0.001, 1e9)
    assert model.choose_cut([Tier.G3] * 4, 0, BLOCK, ROW, 100).reason is MissReason.NOT_ENOUGH_SAMPLES
    prefills(model, 1e-3)
    assert model.choose_cut([Tier.G3] * 4, 0, BLOCK, ROW, 100) == Cut(4, MissReason.FULL_HIT)


def test_a_hit_that_is_slower_than_prefill_is_not_loaded() -> None:
    model = CostModel()
    loads(model, Tier.G2, 0.5, 1e7)
    prefills(model, 1e-4)
    assert model.choose_cut([Tier.G2] * 4, 0, BLOCK, ROW, 100) == Cut(0, MissReason.TOO_DEAR)


def test_a_slow_tail_is_cut_off_and_a_long_one_pays_for_its_latency() -> None:
    model = CostModel()
    loads(model, Tier.G2, 0.0001, 1e10)
    loads(model, Tier.G4, 0.05, 1e9)
    prefills(model, 1e-3)
    assert model.choose_cut([Tier.G2, Tier.G2, Tier.G4], 0, BLOCK, ROW, 100) == Cut(2, MissReason.TOO_DEAR)
    assert model.choose_cut([Tier.G2, Tier.G2, *[Tier.G4] * 20], 0, BLOCK, ROW, 400) == Cut(22, MissReason.FULL_HIT)


def test_a_partly_local_row_is_worth_only_its_other_part() -> None:
    model = CostModel()
    loads(model, Tier.G2, 0.005, 1e10)
    prefills(model, 1e-3)
    assert model.choose_cut([Tier.G2], 2 * BLOCK, BLOCK, ROW, 50).rows == 1
    assert model.choose_cut([Tier.G2], 3 * BLOCK - 2, BLOCK, ROW, 50) == Cut(0, MissReason.TOO_DEAR)


def test_exploring_teaches_a_tier_until_it_is_trusted() -> None:
    model = CostModel()
    prefills(model, 1e-3)
    asked = 0
    sizes = []
    while model.load_seconds(Tier.G3, ROW) is None:
        asked += 1
        assert asked <= 20, "five loads, one in four hits"
        cut = model.choose_cut([Tier.G3] * 50, 0, BLOCK, ROW, 900)
        assert cut.reason is MissReason.NOT_ENOUGH_SAMPLES
        if cut.exploring:
            sizes.append(cut.rows)
            model.observe_load(Tier.G3, cut.rows * ROW, 0.01 + cut.rows * ROW / 1e9, cut.rows)
    assert sizes == [4, 8, 16, 32, 4]
    assert model.load_seconds(Tier.G3, 50 * ROW) == pytest.approx(0.06)
    assert model.choose_cut([Tier.G3] * 50, 0, BLOCK, ROW, 900) == Cut(50, MissReason.FULL_HIT)


def test_a_tier_that_was_too_dear_is_measured_again_now_and_then() -> None:
    model = CostModel()
    prefills(model, 1e-4)
    loads(model, Tier.G3, 10.0, 1e9)
    asked = 0
    while not model.choose_cut([Tier.G3] * 50, 0, BLOCK, ROW, 900) == Cut(50, MissReason.FULL_HIT):
        asked += 1
        assert asked < 64 * 40, "a tier that became fast is found out"
        cut = model.choose_cut([Tier.G3] * 50, 0, BLOCK, ROW, 900)
        if cut.exploring:
            model.observe_load(Tier.G3, cut.rows * ROW, 0.0001, cut.rows)
    assert asked > 100


def test_exploring_ends_only_where_the_hit_may_end() -> None:
    model = CostModel(CostRules(explore_unmeasured_every=1))
    assert model.choose_cut([Tier.G3] * 60, 0, BLOCK, ROW, 999, [6, 40, 60]).rows == 6
    assert model.choose_cut([Tier.G3] * 60, 0, BLOCK, ROW, 999, [40, 60]) == Cut(0, MissReason.NOT_ENOUGH_SAMPLES)


def test_a_hit_that_no_group_can_go_on_after_is_not_loaded() -> None:
    assert CostModel().choose_cut([Tier.G2] * 3, 0, BLOCK, ROW, 60, []) == Cut(0, MissReason.WINDOW_NOT_RESTORABLE)
    assert CostModel().choose_cut([Tier.G2] * 3, 0, BLOCK, ROW, 60, [2]) == Cut(2, MissReason.WINDOW_NOT_RESTORABLE)


def test_a_source_that_is_no_lower_tier_is_refused() -> None:
    with pytest.raises(KernelError, match="lower tiers"):
        CostModel().choose_cut([Tier.G1], 0, BLOCK, ROW, 60)


def test_every_reason_has_its_words_and_a_strange_one_is_other() -> None:
    assert len({reason.sentence for reason in MissReason}) == len(MissReason)
    assert reason_of("too_dear") is MissReason.TOO_DEAR
    assert reason_of("of a later version") is MissReason.OTHER
