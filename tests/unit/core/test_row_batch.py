"""Batches of rows know whether they are a slice; pools do the same with rows side by side and with scattered ones."""

import pytest

from blockyard.core.row_batch import RowBatch
from blockyard.core.states import RowState
from blockyard.core.vocabulary import BlockId
from blockyard.testing.blocks import chain, columns, hold, make_pool, store


@pytest.mark.parametrize(
    ("rows", "span"),
    [
        (range(5, 21), slice(5, 21)),
        ([*range(5, 20), 21], None),
        ([5, 7, 6, *range(8, 21)], None),
        ([5, 5, *range(7, 21)], None),
        (range(20, 4, -1), None),
        ([], None),
    ],
    ids=["side by side", "with a hole", "out of order", "with a repeat", "backwards", "none"],
)
def test_only_ascending_neighbours_are_a_slice(rows: list[int], span: slice | None) -> None:
    batch = RowBatch([BlockId(row) for row in rows])
    assert (batch.span, len(batch)) == (span, len(rows))


@pytest.mark.parametrize(
    ("first", "then", "joined"),
    [
        (range(8, 16), range(16, 32), range(8, 32)),
        ([], range(16, 32), range(16, 32)),
        (range(8), range(16, 32), [*range(8), *range(16, 32)]),
        (range(16, 32), range(8, 16), [*range(16, 32), *range(8, 16)]),
        ([3, 1], range(8), [3, 1, *range(8)]),
    ],
    ids=["neighbours", "nothing first", "with a hole", "the other way round", "a list first"],
)
def test_batches_that_follow_each_other_are_a_slice_where_they_lie_side_by_side(
    first: list[int], then: range, joined: range | list[int]
) -> None:
    batches = [RowBatch([BlockId(row) for row in rows]) for rows in (first, then)]
    assert batches[0].followed_by(batches[1]) == joined


def test_a_run_is_the_batch_of_its_rows() -> None:
    run, batch = RowBatch.of_run(BlockId(5), 9), RowBatch([BlockId(row) for row in range(5, 14)])
    assert (run.rows, run.span) == (batch.rows, batch.span)


@pytest.mark.parametrize("order", [range(16), range(15, -1, -1)], ids=["side by side", "backwards"])
def test_the_life_of_a_block_does_not_depend_on_where_its_neighbours_lie(order: range) -> None:
    pool = make_pool(16)
    run = chain("a", 16)
    blocks = pool.take([BlockId(row) for row in order])
    assert blocks.generations == (1,) * 16
    held = blocks.stage(columns(run)).register().blocks
    assert held.ids == tuple(order)
    assert [(facts.key, facts.parent, facts.position, facts.refs) for facts in held.facts] == [
        (run.key(index), run.parent_of(index), index, 1) for index in range(16)
    ]
    with pool.match(run) as twice:
        assert [facts.refs for facts in twice.facts] == [2] * 16
    pool.check_integrity()
    held.release()
    assert pool.inactive == 16
    with hold(pool, chain("b", 16)) as others:
        assert others.ids == tuple(range(16))
        assert others.generations == (2,) * 16
    pool.check_integrity()


def test_neighbours_with_different_numbers_of_holders_are_counted_one_by_one() -> None:
    pool = make_pool(16)
    run = chain("a", 16)
    store(pool, run)
    with pool.match(run.slice(0, 4)), pool.match(run) as matched:
        assert [facts.refs for facts in matched.facts] == [2] * 4 + [1] * 12
        assert pool.held == 16
    assert [pool.state(BlockId(row)) for row in range(16)] == [RowState.INACTIVE] * 16
    pool.check_integrity()
