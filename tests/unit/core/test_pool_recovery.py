"""Rebuilding a table from stored headers."""

import pytest

from blockyard.core.errors import BlockStateError, KernelError
from blockyard.core.states import RowState
from blockyard.core.vocabulary import BlockId, Generation
from blockyard.testing.blocks import chain, hold, make_pool, store, stored_records


def test_adopted_blocks_are_found_with_the_generations_of_their_headers() -> None:
    pool = make_pool(4)
    run = chain("a", 2)
    report = pool.adopt(stored_records(run, [3, 1], [7, 9]))
    assert (report.adopted, len(report.losers)) == (2, 0)
    assert pool.find(run) == [3, 1]
    assert [facts.generation for facts in pool.facts([BlockId(3), BlockId(1)])] == [7, 9]
    assert (pool.free, pool.inactive) == (2, 2)
    pool.check_integrity()


def test_rows_taken_by_adoption_are_not_granted() -> None:
    pool = make_pool(4)
    pool.adopt(stored_records(chain("a", 2), [0, 2], [1, 1]))
    with pool.allocate(2).blocks as blocks:
        assert blocks.ids == (1, 3)
        assert pool.free == 0
    pool.evict(2).release()
    with pool.allocate(4).blocks as blocks:
        assert sorted(blocks.ids) == [0, 1, 2, 3]


def test_the_next_grant_is_above_every_header() -> None:
    pool = make_pool(2)
    pool.adopt(stored_records(chain("a", 1), [0], [41]))
    pool.set_generation(BlockId(1), Generation(17))
    pool.set_generation(BlockId(1), Generation(5))
    with pool.allocate(2).blocks as blocks:
        assert dict(zip(blocks.ids, blocks.generations, strict=True)) == {0: 42, 1: 18}


def test_of_two_copies_the_higher_generation_stays() -> None:
    pool = make_pool(4)
    run = chain("a", 1)
    records = stored_records(run, [0], [5]) + stored_records(run, [1], [8]) + stored_records(run, [2], [6])
    report = pool.adopt(records)
    assert report.adopted == 1
    assert pool.find(run) == [1]
    assert sorted(report.losers.ids) == [0, 2]
    assert {facts.block: facts.generation for facts in report.losers.facts} == {0: 5, 2: 6}
    assert pool.await_free == 2
    report.losers.release()
    pool.check_integrity()


def test_a_later_page_may_replace_an_unpinned_block_but_not_a_pinned_one() -> None:
    pool = make_pool(4)
    run = chain("a", 1)
    pool.adopt(stored_records(run, [0], [5]))
    report = pool.adopt(stored_records(run, [1], [6]))
    assert report.losers.ids == (0,)
    report.losers.release()
    with pool.match(run):
        report = pool.adopt(stored_records(run, [2], [9]))
        assert report.losers.ids == (2,)
        report.losers.release()
    report = pool.adopt(stored_records(run, [3], [6]))
    assert (report.adopted, report.losers.ids) == (0, (3,))
    report.losers.release()
    assert pool.find(run) == [1]
    pool.check_integrity()


def test_adoption_happens_as_a_whole_or_not_at_all() -> None:
    pool = make_pool(3)
    (row,) = store(pool, chain("held", 1))
    for rows in ([1, row], [2, 2]):
        with pytest.raises(BlockStateError):
            pool.adopt(stored_records(chain("a", 2), rows, [3, 4]))
    with pytest.raises(KernelError):
        pool.adopt(stored_records(chain("a", 2), [1, 3], [3, 4]))
    assert pool.find(chain("a", 2)) == [None, None]
    assert (pool.free, pool.generation(BlockId(1))) == (2, 0)
    pool.check_integrity()


def test_deep_blocks_of_a_recovered_chain_are_evicted_first() -> None:
    pool = make_pool(3)
    run = chain("a", 3)
    pool.adopt(stored_records(run, [1, 0, 2], [1, 1, 1]))
    with pool.evict(2) as doomed:
        assert [facts.position for facts in doomed.facts] == [2, 1]


def test_the_generation_of_a_row_in_use_cannot_be_set() -> None:
    pool = make_pool(1)
    with hold(pool, chain("a", 1)), pytest.raises(BlockStateError):
        pool.set_generation(BlockId(0), Generation(9))
    assert pool.state(BlockId(0)) is RowState.INACTIVE


def test_a_later_grant_that_a_header_names_is_never_given_again() -> None:
    pool = make_pool(2)
    with pool.allocate(1).blocks as blocks:
        pool.remember_generation(BlockId(0), Generation(7))
        pool.remember_generation(BlockId(0), Generation(5))
        assert blocks.generations == (1,)
    with pool.take([BlockId(0)]) as blocks:
        assert blocks.generations == (8,)
    with pytest.raises(BlockStateError):
        pool.remember_generation(BlockId(1), Generation(3))
    pool.take([BlockId(1)]).release()
    assert pool.generation(BlockId(1)) == 1


def test_a_generation_is_never_given_twice_even_if_an_older_header_was_adopted() -> None:
    pool = make_pool(1)
    pool.set_generation(BlockId(0), Generation(7))
    with pool.allocate(1).blocks as blocks:
        assert blocks.generations == (8,)
    pool.adopt(stored_records(chain("a", 1), [0], [5]))
    assert pool.generation(BlockId(0)) == 5
    with pool.allocate(1).blocks as blocks:
        assert blocks.generations == (9,)
    pool.adopt(stored_records(chain("a", 1), [0], [5]))
    pool.evict(1).release()
    assert pool.generation(BlockId(0)) == 9
