"""The budget of bytes per day."""

import pytest

from blockyard.core.endurance import EnduranceBudget
from blockyard.core.errors import KernelError
from blockyard.testing.clock import FakeClock

HOUR = 3_600.0


def test_an_hours_share_can_be_written_at_once_and_the_rest_accrues() -> None:
    clock = FakeClock()
    budget = EnduranceBudget(2_400, 10, clock)
    assert budget.available_bytes == 100
    budget.spend(100)
    assert budget.affordable(10) == 0
    clock.advance(HOUR)
    assert 90 <= budget.available_bytes <= 96
    clock.advance(48 * HOUR)
    assert budget.available_bytes == 100, "what is not used is not saved up"


def test_more_than_the_budget_is_refused_and_spends_nothing() -> None:
    budget = EnduranceBudget(2_400, 10, FakeClock())
    with pytest.raises(KernelError):
        budget.spend(101)
    budget.spend(100)


def test_one_item_can_always_be_afforded_in_time() -> None:
    clock = FakeClock()
    budget = EnduranceBudget(25, 10, clock)
    budget.spend(10)
    assert budget.affordable(10) == 0
    clock.advance(24 * HOUR)
    assert budget.affordable(10) == 1


def test_what_was_not_written_is_given_back_up_to_the_full_bucket() -> None:
    budget = EnduranceBudget(2_400, 10, FakeClock())
    budget.spend(60)
    budget.refund(20)
    assert budget.available_bytes == 60
    budget.refund(1_000)
    assert budget.available_bytes == 100


@pytest.mark.parametrize(("per_day", "item"), [(9, 10), (0, 10), (10, 0)])
def test_a_budget_below_one_item_is_refused(per_day: int, item: int) -> None:
    with pytest.raises(KernelError):
        EnduranceBudget(per_day, item, FakeClock())
