"""A handle that is dropped without release warns; its rows come back at the next call, if nobody can write there."""

import gc
import warnings

import pytest

from blockyard.core.errors import BlockStateError, HandleConsumedError, OutOfBlocksError
from blockyard.core.handles import ImmutableBlocks
from blockyard.core.states import RowState
from blockyard.core.vocabulary import BlockId
from blockyard.testing.blocks import chain, complete, hold, make_pool, store, stored_records


def test_a_dropped_grant_warns_and_stays_out_of_circulation() -> None:
    pool = make_pool(3)
    blocks = pool.allocate(2).blocks
    with pytest.warns(ResourceWarning, match="MutableBlocks blocks=2.*without release"):
        del blocks
    assert pool.mutable == 2
    pool.check_integrity()
    assert (pool.free, pool.mutable, pool.abandoned, pool.leaked_blocks) == (1, 0, 2, 2)
    assert pool.state(BlockId(0)) is RowState.ABANDONED
    with pytest.raises(OutOfBlocksError):
        pool.allocate(2)
    with pytest.raises(BlockStateError):
        pool.take([BlockId(0)])
    with pytest.raises(BlockStateError):
        pool.adopt(stored_records(chain("a", 1), [0], [7]))
    pool.clear().doomed.release()
    assert (pool.available, pool.abandoned, pool.doomed) == (1, 2, 0)
    pool.check_integrity()


def test_a_grant_that_was_cleared_and_then_dropped_stays_out_of_circulation() -> None:
    pool = make_pool(1)
    blocks = pool.allocate(1).blocks
    assert pool.clear().in_flight == 1
    with pytest.warns(ResourceWarning, match="MutableBlocks"):
        del blocks
    pool.check_integrity()
    assert (pool.abandoned, pool.doomed) == (1, 0)


def test_a_warning_that_is_kept_does_not_keep_the_rows() -> None:
    pool = make_pool(1)
    held = hold(pool, chain("a", 1))
    with pytest.warns(ResourceWarning) as caught:
        del held
    dropped = caught[0].source
    assert isinstance(dropped, ImmutableBlocks)
    with pytest.raises(HandleConsumedError):
        dropped.release()
    pool.check_integrity()
    assert pool.inactive == 1


def test_dropped_staged_blocks_come_back() -> None:
    pool = make_pool(2)
    staged = complete(pool, chain("a", 1))
    with pytest.warns(ResourceWarning, match="CompleteBlocks"):
        del staged
    pool.allocate(2).blocks.release()
    assert pool.leaked_blocks == 1


def test_a_dropped_pin_is_released_but_not_that_of_others() -> None:
    pool = make_pool(2)
    held = hold(pool, chain("a", 1))
    twin = held.clone()
    with pytest.warns(ResourceWarning, match="ImmutableBlocks"):
        del twin
    with pool.match(chain("a", 1)) as matched:
        assert matched.facts[0].refs == 2
    held.release()
    assert pool.inactive == 1


def test_dropped_doomed_rows_are_offered_again() -> None:
    pool = make_pool(1)
    store(pool, chain("a", 1))
    doomed = pool.evict(1)
    with pytest.warns(ResourceWarning, match="DoomedBlocks"):
        del doomed
    assert pool.await_free == 1
    with pool.drain_doomed() as again:
        assert again.ids == (BlockId(0),)
    assert pool.free == 1


def test_handles_in_reference_cycles_are_reclaimed_too() -> None:
    pool = make_pool(4)
    cycle: list[object] = [hold(pool, chain("a", 4))]
    cycle.append(cycle)
    del cycle
    with pytest.warns(ResourceWarning, match="without release"):
        gc.collect()
    pool.allocate(4).blocks.release()
    assert pool.free == 4
    assert pool.leaked_blocks == 4


def test_empty_and_consumed_handles_need_no_release() -> None:
    pool = make_pool(1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        empty = pool.match([])
        consumed = pool.allocate(1).blocks
        consumed.release()
        del empty, consumed
    pool.check_integrity()
    assert pool.leaked_blocks == 0
