"""FIFO: first come, first gone."""

from blockyard.core.eviction.fifo import FifoPolicy
from blockyard.testing.eviction_conformance import rows
from blockyard.testing.row_columns import NamedRows


def use(policy: FifoPolicy, *numbers: int) -> None:
    policy.touch(rows(*numbers))
    policy.remove(rows(*numbers))
    policy.insert(rows(*numbers))


def test_uses_do_not_change_the_place_of_a_block() -> None:
    policy = FifoPolicy(NamedRows(4))
    for row in (1, 2, 3):
        policy.insert(rows(row))
    for _ in range(300):
        use(policy, 1)
        use(policy, 3, 2)
    assert policy.take(3) == [1, 2, 3]


def test_a_block_that_left_comes_back_as_the_newest() -> None:
    policy = FifoPolicy(NamedRows(4))
    policy.insert(rows(1))
    policy.insert(rows(2))
    policy.forget(policy.take(1))
    policy.insert(rows(1))
    assert policy.take(2) == [2, 1]


def test_a_block_in_use_keeps_its_place() -> None:
    policy = FifoPolicy(NamedRows(4))
    policy.insert(rows(1))
    policy.insert(rows(2))
    policy.remove(rows(1))
    policy.insert(rows(3))
    assert list(policy) == [2, 3]
    policy.insert(rows(1))
    assert list(policy) == [1, 2, 3]
