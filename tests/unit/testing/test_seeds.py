"""How many seeds the simulations run, and how a failing one is named."""

import pytest

from blockyard.core.errors import ConfigurationError
from blockyard.testing.seeds import SeedBatch, run_seeds, seed_batches


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BLOCKYARD_SIM_SEEDS", raising=False)
    monkeypatch.delenv("BLOCKYARD_SIM_SEED", raising=False)


def test_two_thousand_seeds_are_run_once_each_by_default() -> None:
    assert [seed for batch in seed_batches() for seed in batch] == list(range(2_000))


def test_a_variable_sets_their_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BLOCKYARD_SIM_SEEDS", "45")
    assert [(batch.first, batch.count) for batch in seed_batches(20)] == [(0, 20), (20, 20), (40, 5)]


def test_one_seed_can_be_run_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BLOCKYARD_SIM_SEED", "1234")
    assert list(map(str, seed_batches())) == ["seed1234"]


@pytest.mark.parametrize("text", ["0", "-3", "many", ""])
def test_a_number_that_makes_no_sense_is_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("BLOCKYARD_SIM_SEEDS", text)
    with pytest.raises(ConfigurationError, match="BLOCKYARD_SIM_SEEDS"):
        seed_batches()


def test_a_failing_seed_is_named_with_the_way_to_run_it_alone() -> None:
    def check(seed: int) -> None:
        assert seed != 7

    with pytest.raises(AssertionError) as caught:
        run_seeds(SeedBatch(5, 5), check)
    assert any("BLOCKYARD_SIM_SEED=7" in note for note in caught.value.__notes__)


@pytest.mark.parametrize(("value", "marked"), [(SeedBatch(0, 1), True), (0, False)], ids=str)
def test_a_test_that_takes_seeds_is_a_simulation(value: object, marked: bool, request: pytest.FixtureRequest) -> None:
    assert (request.node.get_closest_marker("simulation") is not None) == marked
