"""Stores: from engine memory down to the shared store, under eviction and failure."""

import pytest
from tests.unit.block_manager.world import OW, RT, MakeWorld

from blockyard.core.events import ClearedEvent, OffloadedEvent, RemovedEvent, StoredEvent
from blockyard.core.vocabulary import EventSeq, ItemStatus, JobKind, Tier
from blockyard.testing.blocks import chain
from blockyard.tiers.header import HeaderState
from blockyard.wire.event_codec import decode_event
from blockyard.wire.worker_channel import Job


def keys(name: str, count: int) -> set[bytes]:
    return {bytes(key) for key in chain(name, count)}


def test_a_registered_run_reaches_every_tier(make_world: MakeWorld) -> None:
    world = make_world().ready()
    world.connect("one").compute(chain("a", 8))
    world.settle()
    for tier in (Tier.G1, Tier.G2, Tier.G3, Tier.G4):
        assert world.announced(tier) == keys("a", 8)
    world.at_rest()


def test_stores_of_one_block_by_two_engines_are_one_copy(make_world: MakeWorld) -> None:
    world = make_world().ready()
    one, two = world.connect("one"), world.connect("two")
    one.compute(chain("a", 4))
    two.compute(chain("a", 4))
    world.settle()
    assert world.counter("job_items_total", kind="g1_g2", status="ok") == 4
    assert len(world.core.tables.pool(Tier.G2).registered()) == 4
    world.at_rest()


def test_a_block_reused_before_its_copy_is_not_stored(make_world: MakeWorld) -> None:
    world = make_world().ready()
    one = world.connect("one")
    one.compute(chain("a", 3))
    one.memory.guards[1] += 1
    world.settle()
    assert world.held(Tier.G2) == keys("a", 1) | (keys("a", 3) - keys("a", 2))
    assert world.counter("job_items_total", kind="g1_g2", status="source_changed") == 1
    world.at_rest()


def test_g3_and_g4_events_come_only_after_their_jobs(make_world: MakeWorld) -> None:
    world = make_world().ready()
    world.connect("one").compute(chain("a", 4))
    world.submit(OW)
    world.workers[OW].work()
    world.deliver(OW)
    assert world.announced(Tier.G2) == keys("a", 4)
    assert world.announced(Tier.G3) == world.announced(Tier.G4) == set()
    world.submit(OW)
    world.workers[OW].work()
    world.deliver(OW)
    assert world.announced(Tier.G3) == keys("a", 4)
    world.submit(RT)
    world.workers[RT].work()
    world.deliver(RT)
    assert world.announced(Tier.G4) == keys("a", 4)


def test_more_blocks_than_g2_has_slots_pass_through_it(make_world: MakeWorld) -> None:
    world = make_world(g2=4, g3=32).ready()
    world.connect("one").compute(chain("a", 20))
    world.settle()
    assert world.held(Tier.G3) == keys("a", 20)
    assert len(world.held(Tier.G2)) == 4
    world.at_rest()


def test_an_evicted_block_is_announced_as_removed_before_its_slot_is_written_again(make_world: MakeWorld) -> None:
    world = make_world(g2=4, g4=False).ready()
    one = world.connect("one")
    one.compute(chain("a", 4))
    world.settle()
    before = world.outbox.last_seq
    one.compute(chain("b", 2), first_block=10)
    events = [
        decode_event(message.payload).event for message in world.outbox.next_batch(EventSeq(before), 100).messages
    ]
    removed = next(event for event in events if isinstance(event, RemovedEvent))
    assert removed.tier is Tier.G2
    assert {bytes(key) for key in removed.keys} == {bytes(chain("a", 4).key(index)) for index in (2, 3)}
    world.settle()
    world.at_rest()


def test_g3_frees_slots_on_disk_before_it_grants_them_again(make_world: MakeWorld) -> None:
    world = make_world(g2=16, g3=8, g4=False).ready()
    one = world.connect("one")
    one.compute(chain("a", 8))
    world.settle()
    one.compute(chain("b", 4), first_block=20)
    world.submit(OW)
    world.workers[OW].work()
    world.deliver(OW)
    pool = world.core.tables.pool(Tier.G3)
    assert pool.await_free == 4
    assert world.announced(Tier.G3) == keys("a", 4)
    world.settle()
    assert world.held(Tier.G3) == keys("a", 4) | keys("b", 4)
    world.at_rest()


def test_a_failed_disk_write_stores_and_announces_nothing(make_world: MakeWorld) -> None:
    world = make_world(g4=False).ready()
    world.workers[OW].fault = lambda job, item: ItemStatus.IO_ERROR if job.kind is JobKind.G2_G3 else None
    world.connect("one").compute(chain("a", 4))
    world.settle()
    assert world.held(Tier.G3) == set()
    assert world.held(Tier.G2) == keys("a", 4)
    world.at_rest()


def test_a_damaged_g2_copy_is_condemned_when_it_is_read_for_a_lower_tier(make_world: MakeWorld) -> None:
    world = make_world(g4=False).ready()
    world.connect("one").compute(chain("a", 3))
    world.submit(OW)
    world.workers[OW].work()
    world.deliver(OW)
    damaged = world.core.tables.pool(Tier.G2).find([chain("a", 3).key(1)])[0]
    assert damaged is not None
    world.tiers[Tier.G2].slots[damaged].damage()
    world.settle()
    assert world.held(Tier.G2) == keys("a", 3) - {bytes(chain("a", 2).key(1))}
    assert world.tiers[Tier.G2].slots[damaged].state is HeaderState.BAD
    world.at_rest()


def test_the_tail_of_a_chain_is_put_when_it_rests(make_world: MakeWorld) -> None:
    world = make_world().ready()
    world.connect("one").compute(chain("a", 6))
    world.settle()
    assert world.announced(Tier.G4) == keys("a", 4)
    world.tick(2.5)
    world.settle()
    assert world.announced(Tier.G4) == keys("a", 6)
    world.at_rest()


def test_a_failed_put_is_tried_again_later(make_world: MakeWorld) -> None:
    world = make_world().ready()
    world.workers[RT].fault = lambda job, item: ItemStatus.UNKNOWN
    world.connect("one").compute(chain("a", 4))
    world.settle()
    assert world.announced(Tier.G4) == set()
    world.workers[RT].fault = lambda job, item: None
    world.tick(6.0)
    world.settle()
    assert world.announced(Tier.G4) == keys("a", 4)
    world.at_rest()


def test_without_a_remote_tier_local_tiers_go_on(make_world: MakeWorld) -> None:
    world = make_world()
    world.attach(OW)
    world.settle()
    one = world.connect("one")
    one.compute(chain("a", 4))
    world.settle()
    assert world.held(Tier.G2) == set(), "the remote tier may still write the arena"
    world.core.remote_proven_dead()
    world.settle()
    assert world.held(Tier.G3) == keys("a", 4)
    world.at_rest()


def test_what_engines_registered_while_the_worker_was_away_is_stored_later(make_world: MakeWorld) -> None:
    world = make_world(g4=False)
    one = world.connect("one")
    one.compute(chain("a", 4))
    assert world.announced(Tier.G1) == keys("a", 4)
    world.attach()
    world.settle()
    assert world.held(Tier.G3) == keys("a", 4)
    world.at_rest()


def test_deregistered_and_replaced_memory_leaves_with_events(make_world: MakeWorld) -> None:
    world = make_world(g4=False).ready()
    one = world.connect("one")
    blocks = one.compute(chain("a", 3))
    world.core.deregister(one.session, blocks[2:])
    assert world.announced(Tier.G1) == keys("a", 2)
    one.compute(chain("b", 1))  # into the memory block of the first
    assert world.announced(Tier.G1) == keys("b", 1) | (keys("a", 2) - keys("a", 1))
    world.settle()
    world.core.reset(one.session)
    events = [decode_event(message.payload).event for message in world.outbox.next_batch(EventSeq(0), 1_000).messages]
    assert isinstance(events[-1], ClearedEvent)
    assert world.announced(Tier.G1) == set()
    world.at_rest()


def test_a_copy_names_where_it_came_from(make_world: MakeWorld) -> None:
    world = make_world().ready()
    world.connect("one").compute(chain("a", 4))
    world.settle()
    events = [decode_event(message.payload).event for message in world.outbox.next_batch(EventSeq(0), 1_000).messages]
    copies = [(event.from_tier, event.to_tier) for event in events if isinstance(event, OffloadedEvent)]
    assert sorted(copies) == [(Tier.G1, Tier.G2), (Tier.G2, Tier.G3), (Tier.G2, Tier.G4)]
    assert [event.tier for event in events if isinstance(event, StoredEvent)] == [Tier.G1]


@pytest.mark.parametrize("queue_limit", [1, 3])
def test_waiting_stores_are_bounded_and_counted(make_world: MakeWorld, queue_limit: int) -> None:
    world = make_world(g2=16, g4=False, profile={"queue_limit": queue_limit, "max_items": 1}).ready()
    world.connect("one").compute(chain("a", 8))
    assert world.counter("dropped_total", reason="job_queue_full") == 8 - queue_limit
    world.settle()
    assert len(world.held(Tier.G2)) == queue_limit
    world.at_rest()


def test_jobs_name_blocks_by_their_full_digest(make_world: MakeWorld) -> None:
    world = make_world(g4=False).ready()
    world.connect("one").compute(chain("a", 2))
    job = world.core.desk.take(OW)
    assert isinstance(job, Job)
    assert job.items.digests == chain("a", 2).digests
    assert job.items.parents == bytes(16) + bytes(chain("a", 2).key(0))
