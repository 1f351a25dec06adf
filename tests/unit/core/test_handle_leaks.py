"""A handle that is dropped without release warns, and its rows come back at the next call of the pool."""

import gc
import warnings

import pytest

from blockyard.core.vocabulary import BlockId
from blockyard.testing.blocks import chain, complete, hold, make_pool, store


def test_a_dropped_grant_warns_and_comes_back() -> None:
    pool = make_pool(2)
    blocks = pool.allocate(2).blocks
    with pytest.warns(ResourceWarning, match="MutableBlocks blocks=2.*without release"):
        del blocks
    assert pool.mutable == 2
    pool.check_integrity()
    assert (pool.free, pool.leaked_blocks) == (2, 2)


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
    cycle: list[object] = [pool.allocate(4).blocks]
    cycle.append(cycle)
    del cycle
    with pytest.warns(ResourceWarning, match="without release"):
        gc.collect()
    pool.allocate(4).blocks.release()
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
