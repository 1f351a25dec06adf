"""Eviction, condemnation and clearing: a removed block is never found again and its row is not reused too early."""

import pytest

from blockyard.core.errors import KernelError, OutOfBlocksError
from blockyard.core.states import CondemnOutcome, RowState
from blockyard.core.vocabulary import BlockId, Generation
from blockyard.testing.blocks import chain, clear, columns, complete, hold, make_pool, store


def test_an_evicted_row_is_granted_only_after_its_release() -> None:
    pool = make_pool(2)
    run = chain("a", 2)
    store(pool, run)
    doomed = pool.evict(1)
    assert [facts.key for facts in doomed.facts] == [run.key(1)]
    assert pool.find(run) == [BlockId(0), None]
    assert pool.await_free == 1
    with pytest.raises(OutOfBlocksError):
        pool.allocate(2)
    doomed.release()
    pool.allocate(2).blocks.release()


def test_eviction_gives_what_there_is() -> None:
    pool = make_pool(4)
    store(pool, chain("a", 2))
    with hold(pool, chain("b", 1)):
        assert len(pool.evict(0)) == 0
        with pool.evict(9) as doomed:
            assert len(doomed) == 2
        assert len(pool.evict(9)) == 0


def test_evicted_rows_can_be_freed_in_parts() -> None:
    pool = make_pool(3)
    store(pool, chain("a", 3))
    doomed = pool.evict(3)
    part = doomed.split([1])
    part.release()
    assert (pool.free, pool.await_free) == (1, 2)
    doomed.release()
    assert pool.free == 3


def test_chains_lose_their_tails_first() -> None:
    pool = make_pool(4)
    run = chain("a", 4)
    store(pool, run)
    pool.allocate(2).blocks.release()
    with pool.match(run) as matched:
        assert len(matched) == 2
    with pool.allocate(3).blocks, pool.match(run) as matched:
        assert len(matched) == 1


def test_an_unused_condemned_block_is_free_able_at_once() -> None:
    pool = make_pool(1)
    run = chain("a", 1)
    (row,) = store(pool, run)
    condemned = pool.condemn(row, Generation(1))
    assert condemned.outcome is CondemnOutcome.DOOMED
    assert condemned.facts[0].key == run.key(0)
    assert pool.find(run) == [None]
    assert pool.state(row) is RowState.AWAIT_FREE
    condemned.doomed.release()
    assert pool.free == 1
    pool.check_integrity()


def test_a_pinned_condemned_block_leaves_at_once_and_is_free_able_after_the_last_release() -> None:
    pool = make_pool(2)
    run = chain("a", 1)
    held = hold(pool, run)
    weak = held.downgrade()
    condemned = pool.condemn(held.ids[0], held.generations[0])
    assert condemned.outcome is CondemnOutcome.PINNED
    assert condemned.facts[0].key == run.key(0)
    assert len(condemned.doomed) == 0
    assert pool.find(run) == [None]
    assert weak.upgrade() is None
    twin = held.clone()
    held.release()
    assert len(pool.drain_doomed()) == 0
    twin.release()
    with pool.drain_doomed() as doomed:
        assert doomed.ids == (0,)
        assert pool.await_free == 1
    assert pool.free == 2
    pool.check_integrity()


def test_a_new_copy_of_a_condemned_block_takes_its_place() -> None:
    pool = make_pool(2)
    run = chain("a", 1)
    held = hold(pool, run)
    pool.condemn(held.ids[0], held.generations[0])
    registration = complete(pool, run).register()
    assert registration.duplicates == 0
    assert registration.blocks.ids == (1,)
    held.release()
    registration.blocks.release()
    assert pool.find(run) == [BlockId(1)]
    pool.drain_doomed().release()
    pool.check_integrity()


def test_condemning_an_older_grant_or_no_block_changes_nothing() -> None:
    pool = make_pool(3)
    run = chain("a", 1)
    (row,) = store(pool, run)
    with complete(pool, chain("b", 1)) as staged:
        for block, generation in ((row, 0), (row, 2), (staged.ids[0], 1), (BlockId(2), 0)):
            condemned = pool.condemn(block, Generation(generation))
            assert condemned.outcome is CondemnOutcome.STALE
            assert condemned.facts == ()
    assert pool.find(run) == [row]
    pool.condemn(row, Generation(1)).doomed.release()
    assert pool.condemn(row, Generation(1)).outcome is CondemnOutcome.STALE
    with pytest.raises(KernelError):
        pool.condemn(BlockId(3), Generation(0))


def test_clear_forgets_what_is_stored_pinned_and_being_written() -> None:
    pool = make_pool(8)
    store(pool, chain("stored", 2))
    held = hold(pool, chain("pinned", 1))
    mutable = pool.allocate(1).blocks
    staged = complete(pool, chain("staged", 1))
    report = clear(pool)
    assert (len(report.doomed), report.pinned, report.in_flight) == (2, 1, 2)
    assert pool.find([*chain("stored", 2), *chain("pinned", 1)]) == [None] * 3
    assert pool.registered() == ()
    pool.check_integrity()

    for late in (staged, mutable.stage(columns(chain("late", 1)))):
        registration = late.register()
        assert (len(registration.blocks), registration.doomed) == (0, 1)
    assert pool.find(chain("late", 1)) == [None]
    held.release()
    report.doomed.release()
    with pool.drain_doomed() as doomed:
        assert len(doomed) == 3
    assert pool.free == 8
    pool.check_integrity()


def test_a_cleared_grant_that_failed_is_simply_free() -> None:
    pool = make_pool(1)
    mutable = pool.allocate(1).blocks
    clear(pool)
    mutable.release()
    assert len(pool.drain_doomed()) == 0
    with hold(pool, chain("a", 1)):
        assert pool.held == 1


def test_blocks_stored_after_a_clear_are_found_and_a_second_clear_counts_them_only() -> None:
    pool = make_pool(4)
    held = hold(pool, chain("old", 1))
    assert clear(pool).pinned == 1
    run = chain("new", 1)
    store(pool, run)
    assert pool.find(run) != [None]
    report = clear(pool)
    assert (len(report.doomed), report.pinned) == (1, 0)
    report.doomed.release()
    held.release()
    pool.drain_doomed().release()
    assert pool.free == 4


def test_clearing_an_empty_pool_reports_nothing() -> None:
    report = clear(make_pool(2))
    assert (len(report.doomed), report.pinned, report.in_flight) == (0, 0, 0)
