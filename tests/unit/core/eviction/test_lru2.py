"""LRU-2: by the last use but one."""

from blockyard.core.eviction.lru2 import HISTORY, Lru2Policy
from blockyard.testing.eviction_conformance import rows
from blockyard.testing.row_columns import NamedRows


def use(policy: Lru2Policy, *numbers: int) -> None:
    """One request that uses rows which may be in the order."""
    policy.touch(rows(*numbers))
    there = [row for row in rows(*numbers) if row in list(policy)]
    policy.remove(there)
    policy.insert(rows(*numbers))


def test_blocks_used_once_go_before_blocks_used_twice() -> None:
    policy = Lru2Policy(NamedRows(4))
    use(policy, 0)
    use(policy, 1)
    use(policy, 0)
    use(policy, 2)
    assert policy.take(3) == [1, 2, 0]


def test_the_use_before_the_last_decides() -> None:
    policy = Lru2Policy(NamedRows(4))
    for row in (0, 1, 1, 0, 0):
        use(policy, row)
    use(policy, 1)
    assert policy.take(2) == [1, 0]


def test_uses_within_one_step_are_one_use() -> None:
    policy = Lru2Policy(NamedRows(4))
    policy.touch(rows(0))
    policy.touch(rows(0, 0))
    policy.insert(rows(0))
    use(policy, 1)
    assert policy.take(2) == [0, 1]


def test_a_block_that_comes_back_goes_on_with_the_use_it_had() -> None:
    columns = NamedRows(4)
    columns.name_chain(rows(0), "a")
    policy = Lru2Policy(columns)
    use(policy, 0)
    policy.forget(policy.take(1))
    columns.name_chain(rows(0), "b")
    columns.name_chain(rows(1), "a")
    use(policy, 1)
    use(policy, 0)
    assert policy.take(2) == [0, 1]


def test_the_history_is_bounded() -> None:
    columns = NamedRows(2)
    policy = Lru2Policy(columns)
    columns.name_chain(rows(0), "first")
    use(policy, 0)
    policy.forget(policy.take(1))
    for number in range(HISTORY * 2):
        columns.name_chain(rows(0), f"{number}")
        use(policy, 0)
        policy.forget(policy.take(1))
    columns.name_chain(rows(1), "first")
    use(policy, 1)
    use(policy, 0)
    assert policy.take(2) == [1, 0], "the use of the first block was remembered"


def test_children_go_before_parents_by_their_uses_alone() -> None:
    columns = NamedRows(6)
    columns.name_chain(rows(0, 1, 2, 3))
    policy = Lru2Policy(columns)
    use(policy, 0, 1, 2, 3)
    use(policy, 0, 1, 2, 3)
    use(policy, 0, 1)
    assert policy.take(4) == [3, 2, 1, 0]
