"""S3-FIFO: a trial for newcomers, rounds for blocks that are used."""

from blockyard.core.eviction.s3_fifo import S3FifoPolicy
from blockyard.testing.eviction_conformance import rows
from blockyard.testing.row_columns import NamedRows


def use(policy: S3FifoPolicy, *numbers: int) -> None:
    """One request that uses rows which may be in the order."""
    policy.touch(rows(*numbers))
    policy.remove([row for row in rows(*numbers) if row in list(policy)])
    policy.insert(rows(*numbers))


def test_newcomers_that_were_used_again_stay_longer() -> None:
    policy = S3FifoPolicy(NamedRows(10))
    for row in range(4):
        use(policy, row)
    use(policy, 1)
    assert policy.take(4) == [0, 2, 1, 3]


def test_a_use_does_not_move_a_block() -> None:
    policy = S3FifoPolicy(NamedRows(10))
    for row in range(4):
        use(policy, row)
    for row in (3, 2, 1, 0):
        use(policy, row)
    assert policy.take(4) == [0, 1, 2, 3]


def test_who_failed_the_trial_lately_enters_the_main_queue_at_once() -> None:
    columns = NamedRows(10)
    policy = S3FifoPolicy(columns)
    columns.name_chain(rows(0), "a")
    use(policy, 0)
    use(policy, 1)
    policy.forget(policy.take(1))
    columns.name_chain(rows(2), "a")
    use(policy, 2)
    use(policy, 3)
    assert policy.take(3) == [1, 2, 3], "the small queue is cut down to its share, a tenth, then the main one gives"


def test_a_main_block_gets_one_round_per_use_up_to_three() -> None:
    policy = S3FifoPolicy(NamedRows(10))
    for row in (0, 1):
        use(policy, row)
        use(policy, row)
    use(policy, 2)
    use(policy, 3)
    assert policy.take(1) == [2], "both used blocks have passed"
    for _ in range(9):
        use(policy, 0)
    use(policy, 1)
    assert policy.take(3) == [1, 0, 3]


def test_rows_that_were_put_back_stay_first_though_others_have_passed_since() -> None:
    policy = S3FifoPolicy(NamedRows(20))
    use(policy, 0)
    use(policy, 1)
    use(policy, 1)
    taken = policy.take(2)
    policy.put_back(taken)
    assert list(policy) == taken == [0, 1]
