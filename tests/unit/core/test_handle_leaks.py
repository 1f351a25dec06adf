"""A handle that is dropped without release warns; its rows come back at the next call, if nobody can write there."""

import gc
import warnings
from collections.abc import Sequence
from threading import Barrier, Thread

import pytest

from blockyard.core.errors import BlockStateError, HandleConsumedError, OutOfBlocksError
from blockyard.core.eviction.base import RowColumns
from blockyard.core.eviction.lru import LruPolicy
from blockyard.core.handles import ImmutableBlocks, MutableBlocks
from blockyard.core.states import RowState
from blockyard.core.vocabulary import BlockId
from blockyard.testing.blocks import chain, clear, complete, hold, make_pool, store, stored_records


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
    clear(pool).doomed.release()
    assert (pool.available, pool.abandoned, pool.doomed) == (1, 2, 0)
    pool.check_integrity()


def test_a_grant_that_was_cleared_and_then_dropped_stays_out_of_circulation() -> None:
    pool = make_pool(1)
    blocks = pool.allocate(1).blocks
    assert clear(pool).in_flight == 1
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


# --- finalisers in other threads ----------------------------------------------------------------------------------
class DropInTheMiddle(LruPolicy):  # type: ignore[misc]
    """A policy in whose calls, in the middle of a change of the table, another thread drops a handle."""

    def __init__(self, columns: RowColumns) -> None:
        super().__init__(columns)
        self.doomed_handles: list[ImmutableBlocks | MutableBlocks] = []

    def insert(self, blocks: Sequence[BlockId]) -> None:
        self._drop_elsewhere()
        super().insert(blocks)
        self._drop_elsewhere()

    def remove(self, blocks: Sequence[BlockId]) -> None:
        self._drop_elsewhere()
        super().remove(blocks)

    def _drop_elsewhere(self) -> None:
        if self.doomed_handles:
            thread = Thread(target=self.doomed_handles.pop)
            thread.start()
            thread.join()


@pytest.mark.filterwarnings("ignore:.*was dropped without release:ResourceWarning")
def test_a_finaliser_in_another_thread_never_meets_a_table_in_the_middle_of_a_change() -> None:
    made: list[DropInTheMiddle] = []

    def make(columns: RowColumns) -> DropInTheMiddle:
        made.append(DropInTheMiddle(columns))
        return made[0]

    pool = make_pool(8, make)
    run = chain("a", 4)
    store(pool, run)
    made[0].doomed_handles = [pool.match(run), pool.match(run.slice(0, 2)), pool.allocate(1).blocks]
    with pool.match(run) as matched:
        matched.clone().release()
        pool.condemn(matched.ids[3], matched.generations[3])
    store(pool, chain("b", 2))
    pool.match(chain("b", 2)).release()
    pool.check_integrity()
    assert made[0].doomed_handles == []
    pool.drain_doomed().release()
    assert (pool.leaked_blocks, pool.abandoned, pool.held) == (7, 1, 0)
    assert pool.available == 7
    pool.check_integrity()


@pytest.mark.filterwarnings("ignore:.*was dropped without release:ResourceWarning")
def test_handles_dropped_by_many_threads_all_come_back() -> None:
    """Eight threads drop what they were given while the owner goes on; nothing is lost and nothing counted twice."""
    pool = make_pool(64)
    run = chain("a", 8)
    store(pool, run)
    start = Barrier(9)

    def drop(handles: list[ImmutableBlocks]) -> None:
        start.wait(10)
        while handles:
            handles.pop()

    threads = [Thread(target=drop, args=([pool.match(run) for _ in range(16)],)) for _ in range(8)]
    for thread in threads:
        thread.start()
    start.wait(10)
    for number in range(64):
        store(pool, chain(f"other {number}", 3))
        assert pool.held + pool.available == pool.capacity
    for thread in threads:
        thread.join()
    pool.check_integrity()
    assert (pool.leaked_blocks, pool.held, pool.available) == (8 * 16 * 8, 0, 64)
