"""The values behind the fences: who still holds an event, which blocks rest, which copies are whole."""

from random import Random

import pytest

from blockyard.core.errors import BlockStateError, HandleConsumedError
from blockyard.core.vocabulary import EngineBlockId
from blockyard.testing.sim_device import SimDevice
from blockyard.tiers.device.events import EventPool
from blockyard.tiers.device.fences import Fence, Fences
from blockyard.tiers.device.freed_blocks import FreedBlocks
from blockyard.tiers.device.rank_ends import RankEnds

A, B = EngineBlockId(1), EngineBlockId(2)


def test_an_event_is_used_again_once_its_last_holder_released_it() -> None:
    device = SimDevice(Random(1))
    pool = EventPool(device.new_event, Fences())
    lease = pool.record(device.compute_stream)
    lease.hold()
    lease.release()
    assert pool.free == 0
    assert pool.record(device.compute_stream).event is not lease.event
    lease.release()
    assert pool.record(device.compute_stream).event is lease.event
    assert pool.made == 2


def test_a_released_event_is_neither_held_nor_released_again() -> None:
    device = SimDevice(Random(1))
    lease = EventPool(device.new_event, Fences()).record(device.compute_stream)
    lease.release()
    with pytest.raises(HandleConsumedError):
        lease.hold()
    with pytest.raises(HandleConsumedError):
        lease.release()


def test_blocks_freed_in_flight_rest_until_that_step_was_processed() -> None:
    freed = FreedBlocks(Fences())
    freed.freed([A])
    assert freed.may_touch([A])  # no step was in flight
    freed.step_scheduled()
    freed.freed([A])
    freed.step_scheduled()
    freed.freed([B])
    assert not freed.may_touch([A])
    freed.step_processed()
    assert freed.may_touch([A])
    assert not freed.may_touch([A, B])
    freed.step_processed()
    assert freed.may_touch([A, B])
    assert freed.resting == 0
    with pytest.raises(BlockStateError, match="no step"):
        freed.step_processed()


def test_a_block_that_is_freed_again_rests_for_the_later_step() -> None:
    freed = FreedBlocks(Fences())
    freed.step_scheduled()
    freed.freed([A])
    freed.step_scheduled()
    freed.freed([A])
    freed.step_processed()
    assert not freed.may_touch([A])


def test_a_copy_is_whole_once_when_every_rank_has_ended_it() -> None:
    ends: RankEnds[int] = RankEnds(2, Fences())
    assert not ends.ended(0, 7)
    assert not ends.ended(0, 7)
    assert not ends.ended(1, 8)
    assert ends.ended(1, 7)


def test_every_allocation_is_reuse_unless_a_test_takes_that_fence_out() -> None:
    assert Fences().reused([A], [B]) == (A, B)
    assert Fences([Fence.EVERY_ALLOCATION_COUNTS]).reused([A], [B]) == (A,)
