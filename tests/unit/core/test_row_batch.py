"""Batches of rows know whether they are a slice; pools do the same with rows side by side and with scattered ones."""

from typing import cast

import pytest

from blockyard.core.row_batch import RowBatch, runs_of
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
        (range(15, 16), range(16, 32), range(15, 32)),
        (range(8), range(16, 32), [*range(8), *range(16, 32)]),
        (range(16, 32), range(8, 16), [*range(16, 32), *range(8, 16)]),
        ([14, 15], range(16, 32), [14, 15, *range(16, 32)]),
        (range(8, 16), [17, 16], [*range(8, 16), 17, 16]),
    ],
    ids=["neighbours", "one neighbour", "with a hole", "the other way round", "a list first", "a list behind"],
)
def test_a_batch_behind_others_is_a_slice_where_they_lie_side_by_side(
    first: range | list[BlockId], then: range, joined: range | list[int]
) -> None:
    assert RowBatch([BlockId(row) for row in then]).behind(cast("list[BlockId]", first)) == joined


@pytest.mark.parametrize(
    ("rows", "runs"),
    [
        ([], []),
        ([7], [(7, 8)]),
        ([3, 4, 5], [(3, 6)]),
        ([3, 4, 6, 7, 2], [(3, 5), (6, 8), (2, 3)]),
        ([5, 4, 3], [(5, 6), (4, 5), (3, 4)]),
        ([4, 4, 5], [(4, 5), (4, 6)]),
    ],
    ids=["none", "one", "neighbours", "with holes", "backwards", "with a repeat"],
)
def test_runs_are_of_ascending_neighbours(rows: list[int], runs: list[tuple[int, int]]) -> None:
    assert list(runs_of([BlockId(row) for row in rows])) == runs


def test_a_run_is_the_batch_of_its_rows() -> None:
    run, batch = RowBatch.of_run(BlockId(5), 9), RowBatch([BlockId(row) for row in range(5, 14)])
    assert (len(run), run.ordered, run.span) == (9, range(5, 14), batch.span)
    assert run.rows == batch.rows


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
