"""Any legal sequence of calls: no policy loses or doubles a row, and what it shows is what it gives."""

import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st

from blockyard.core.eviction.arc import ArcPolicy
from blockyard.core.eviction.base import PolicyFactory
from blockyard.core.eviction.fifo import FifoPolicy
from blockyard.core.eviction.lineage import LineageFifoPolicy, LineagePolicy
from blockyard.core.eviction.lru import LruPolicy
from blockyard.core.eviction.lru2 import Lru2Policy
from blockyard.core.eviction.multi_lru import MultiLruPolicy
from blockyard.core.eviction.s3_fifo import S3FifoPolicy
from blockyard.testing.eviction_driver import STEPS, EvictionDriver

POLICIES: list[PolicyFactory] = [
    FifoPolicy,
    LruPolicy,
    MultiLruPolicy,
    LineagePolicy,
    LineageFifoPolicy,
    Lru2Policy,
    ArcPolicy,
    S3FifoPolicy,
]


@pytest.mark.parametrize("make_policy", POLICIES, ids=str)
def test_a_policy_keeps_exactly_the_rows_it_was_given(make_policy: PolicyFactory) -> None:
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
