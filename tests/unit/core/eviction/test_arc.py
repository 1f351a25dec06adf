"""ARC: two lists whose share follows the blocks that came back too late."""

from blockyard.core.eviction.arc import ArcPolicy
from blockyard.testing.eviction_conformance import rows
from blockyard.testing.row_columns import NamedRows


def use(policy: ArcPolicy, *numbers: int) -> None:
    """One request that uses rows which may be in the order."""
    policy.touch(rows(*numbers))
    policy.remove([row for row in rows(*numbers) if row in list(policy)])
    policy.insert(rows(*numbers))


def test_blocks_used_once_go_before_blocks_used_again() -> None:
    policy = ArcPolicy(NamedRows(4))
    use(policy, 0)
    use(policy, 1)
    use(policy, 0)
    use(policy, 2)
    assert policy.take(3) == [1, 2, 0]


def test_a_block_that_comes_back_is_one_used_again_and_gives_its_list_more_room() -> None:
    columns = NamedRows(4)
    policy = ArcPolicy(columns)
    use(policy, 3)
    use(policy, 3)
    columns.name_chain(rows(0), "a")
    use(policy, 0)
    policy.forget(policy.take(1))
    columns.name_chain(rows(0), "b")
    columns.name_chain(rows(1), "a")
    use(policy, 1)
    use(policy, 0)
    # One block seen once is as many as that list may have by now: the other list gives, its oldest first.
    assert policy.take(3) == [3, 1, 0]


def test_without_regrets_the_list_of_blocks_seen_once_gives_first() -> None:
    policy = ArcPolicy(NamedRows(4))
    use(policy, 3)
    use(policy, 3)
    use(policy, 0)
    assert policy.take(2) == [0, 3]


def test_a_scan_does_not_evict_what_is_used_again() -> None:
    columns = NamedRows(8)
    policy = ArcPolicy(columns)
    use(policy, 0, 1)
    use(policy, 0, 1)
    for number in range(50):
        row = 2 + number % 6
        columns.name_chain(rows(row), f"scan {number}")
        use(policy, row)
        if len(policy) == 8:
            victims = policy.take(1)
            policy.forget(victims)
            assert victims[0] not in (0, 1)
