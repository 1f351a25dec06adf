"""Any legal sequence of calls: no policy loses or doubles a row, and what it shows is what it gives."""

import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st

from blockyard.core.eviction.registry import known_policies, policy_factory
from blockyard.testing.eviction_driver import STEPS, EvictionDriver


@pytest.mark.parametrize("policy", known_policies())
def test_a_policy_keeps_exactly_the_rows_it_was_given(policy: str) -> None:
    make_policy = policy_factory(policy)
    done = dict.fromkeys(STEPS, 0)

    @seed(1)
    @settings(max_examples=60, database=None)
    @given(st.data(), st.integers(2, 10))
    def lives(data: st.DataObject, capacity: int) -> None:
        driver = EvictionDriver(make_policy, capacity)
        for name in data.draw(st.lists(st.sampled_from(tuple(STEPS)), min_size=5, max_size=30)):
            driver.step(name, lambda below: data.draw(st.integers(0, below - 1)))
        for name, count in driver.done.items():
            done[name] += count

    lives()
    assert all(done.values()), done
