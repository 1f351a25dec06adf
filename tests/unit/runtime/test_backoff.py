"""Waits between attempts."""

import pytest

from blockyard.core.errors import ConfigurationError
from blockyard.runtime.backoff import Backoff


def test_waits_double_up_to_the_bound_and_lie_in_the_upper_half_of_their_step() -> None:
    backoff = Backoff(1.0, 8.0, seed=1)
    for step in (1.0, 2.0, 4.0, 8.0, 8.0, 8.0):
        assert step / 2 <= backoff.next_seconds() <= step


def test_success_starts_over() -> None:
    backoff = Backoff(1.0, 8.0, seed=1)
    for _ in range(4):
        backoff.next_seconds()
    backoff.reset()
    assert backoff.next_seconds() <= 1.0


def test_waits_are_reproducible_with_a_seed_and_differ_without() -> None:
    def waits(seed: int | None) -> list[float]:
        backoff = Backoff(1.0, 100.0, seed=seed)
        return [backoff.next_seconds() for _ in range(6)]

    assert waits(7) == waits(7)
    assert waits(None) != waits(None)


@pytest.mark.parametrize(("first", "most"), [(0.0, 1.0), (-1.0, 1.0), (2.0, 1.0)])
def test_bounds_that_make_no_sense_are_refused(first: float, most: float) -> None:
    with pytest.raises(ConfigurationError):
        Backoff(first, most)
