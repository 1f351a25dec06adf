"""Clears against everything under way, and leases."""

import pytest
from tests.unit.block_manager.world import GROUPS, OW, MakeWorld, World

from blockyard.core.block_name import names_of
from blockyard.core.errors import NotReadyError, UnsupportedOperationError
from blockyard.core.events import ClearedEvent
from blockyard.core.vocabulary import EventSeq, ItemStatus, RequestId, Tier
from blockyard.testing.blocks import chain
from blockyard.tiers.header import HeaderState
from blockyard.wire.event_codec import decode_event

RUN = chain("a", 8)
KEYS = {bytes(key) for key in RUN}


def filled(make_world: MakeWorld, **parameters: object) -> World:
    world: World = make_world(**{"g4": False, **parameters}).ready()
    world.connect("one").compute(RUN)
    world.settle()
    return world


# --- clear --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("tier", [Tier.G2, Tier.G3])
def test_a_cleared_tier_is_empty_at_once_and_for_good(make_world: MakeWorld, tier: Tier) -> None:
    world = filled(make_world)
    done = world.clear(tier)
    assert world.announced(tier) == world.held(tier) == set()
    assert done == [], "headers are not free yet"
    world.settle()
    assert (done[0].removed, done[0].headers_freed) == (8, 8)
    assert all(slot.state is not HeaderState.READY for slot in world.tiers[tier].slots)
    world.core.reset(world.engines["one"].session)
    world.clear(Tier.G2)  # G3 would be filled from it again
    world.settle()
    world.start_manager()
    world.attach()
    world.settle()
    assert world.held(tier) == set()
    world.at_rest()


def test_a_clear_is_one_event(make_world: MakeWorld) -> None:
    world = filled(make_world)
    before = world.outbox.last_seq
    world.clear(Tier.G2)
    world.settle()
    messages = world.outbox.next_batch(EventSeq(before), 100).messages
    assert [type(decode_event(message.payload).event) for message in messages] == [ClearedEvent]


def test_blocks_in_use_are_cleared_when_their_use_ends(make_world: MakeWorld) -> None:
    world = filled(make_world)
    engine = world.engines["one"]
    load = engine.load(RUN, first_block=20)
    world.submit(OW)
    job = world.workers[OW].start()
    assert job is not None
    done = world.clear(Tier.G2)
    assert world.held(Tier.G2) == set()
    world.settle_without_work()
    assert done == []
    world.workers[OW].finish(job)
    world.settle()
    assert set(world.outcomes[load].status) == {ItemStatus.OK}, "a copy that had begun is still good"
    assert (done[0].pinned, done[0].headers_freed) == (8, 8)
    world.at_rest()


def test_blocks_on_their_way_in_are_doomed(make_world: MakeWorld) -> None:
    world: World = make_world(g4=False).ready()
    world.connect("one").compute(RUN)
    world.submit(OW)
    job = world.workers[OW].start()
    assert job is not None
    done = world.clear(Tier.G2)
    world.workers[OW].finish(job)
    world.deliver(OW)
    assert world.announced(Tier.G2) == set()
    world.settle()
    assert done[0].doomed == 8
    assert all(slot.state is not HeaderState.READY for slot in world.tiers[Tier.G2].slots)
    assert world.counter("dropped_total", reason="late_doomed") == 8
    world.at_rest()


def test_stores_that_had_not_begun_are_dropped(make_world: MakeWorld) -> None:
    world: World = make_world(g4=False).ready()
    world.connect("one").compute(RUN)
    done = world.clear(Tier.G2)
    world.settle()
    assert done[0].dropped == 8
    assert world.held(Tier.G2) == set()
    world.at_rest()


def test_stores_that_wait_for_room_are_dropped(make_world: MakeWorld) -> None:
    world: World = make_world(g4=False, g2=4).ready()
    world.connect("one").compute(RUN)
    done = world.clear(Tier.G2)
    world.settle()
    assert done[0].dropped == 8
    assert world.held(Tier.G2) == set()
    assert world.counter("dropped_total", reason="cleared") == 4
    world.at_rest()


def test_copies_evicted_earlier_cannot_come_back_after_a_clear(make_world: MakeWorld) -> None:
    world = filled(make_world, g2=8)
    engine = world.engines["one"]
    engine.compute(chain("b", 4), first_block=20)
    for block in range(20, 24):
        engine.memory.guards[block] += 1  # the copies fail, so the evicted blocks' headers stay
    world.settle()
    assert sum(slot.state is HeaderState.READY for slot in world.tiers[Tier.G2].slots) == 8
    done = world.clear(Tier.G2)
    world.settle()
    assert done[0].headers_freed == 8
    assert all(slot.state is not HeaderState.READY for slot in world.tiers[Tier.G2].slots)
    world.at_rest()


def test_what_a_worker_wrote_before_it_died_does_not_outlive_a_clear(make_world: MakeWorld) -> None:
    world: World = make_world(g4=False).ready()
    world.connect("one").compute(RUN)
    world.submit(OW)
    job = world.workers[OW].start()
    assert job is not None
    done = world.clear(Tier.G2)
    world.workers[OW].finish(job)  # the result never arrives
    world.core.close_session(world.engines["one"].session)
    world.restart(OW)
    world.attach()
    world.settle()
    assert done
    assert world.announced(Tier.G2) == set()
    assert all(slot.state is not HeaderState.READY for slot in world.tiers[Tier.G2].slots)
    world.at_rest()


def test_g2_is_not_cleared_while_a_writer_of_an_earlier_life_is_unaccounted_for(make_world: MakeWorld) -> None:
    world = filled(make_world, g4=True)
    world.start_manager()
    world.attach(OW)
    world.settle()
    with pytest.raises(NotReadyError, match="remote tier"):
        world.clear(Tier.G2)
    assert world.clear(Tier.G3) == []
    world.attach()
    world.settle()
    assert world.clear(Tier.G2) == []
    world.settle()
    world.at_rest()


def test_what_a_job_of_an_earlier_life_brings_after_a_clear_is_not_kept(make_world: MakeWorld) -> None:
    world: World = make_world(g4=False).ready()
    world.connect("one").compute(RUN)
    world.submit(OW)
    job = world.workers[OW].start()
    assert job is not None
    world.start_manager()
    world.attach()
    world.settle_without_work()
    done = world.clear(Tier.G2)
    world.settle_without_work()
    assert done == [], "the earlier life's job may still write"
    world.workers[OW].finish(job)
    world.settle()
    assert done
    assert world.announced(Tier.G2) == set()
    assert all(slot.state is not HeaderState.READY for slot in world.tiers[Tier.G2].slots)
    world.at_rest()


def test_what_is_stored_after_a_clear_stays(make_world: MakeWorld) -> None:
    world = filled(make_world)
    world.clear(Tier.G2)
    world.engines["one"].compute(chain("b", 3), first_block=20)
    world.settle()
    assert world.held(Tier.G2) == {bytes(key) for key in chain("b", 3)}
    world.at_rest()


@pytest.mark.parametrize("tier", [Tier.G1, Tier.G4])
def test_tiers_of_others_are_refused_with_what_to_do(make_world: MakeWorld, tier: Tier) -> None:
    world = filled(make_world)
    with pytest.raises(UnsupportedOperationError, match="reset|purge"):
        world.clear(tier)


def test_a_clear_without_its_worker_is_refused_and_changes_nothing(make_world: MakeWorld) -> None:
    world = filled(make_world)
    world.lose(OW)
    with pytest.raises(NotReadyError):
        world.clear(Tier.G2)
    assert world.announced(Tier.G2) == KEYS


# --- leases -------------------------------------------------------------------------------------------------------
def reserve(world: World, request: str, blocks: int = 8, ttl_ms: int = 5_000) -> int:
    session = world.engines["one"].session
    return world.core.reserve(session, RequestId(request), names_of(RUN)[:blocks], GROUPS, ttl_ms)


def test_leased_blocks_are_not_evicted(make_world: MakeWorld) -> None:
    world = filled(make_world, g2=16)
    assert reserve(world, "r") == 8
    world.engines["one"].compute(chain("b", 16), first_block=20)
    world.settle()
    assert world.held(Tier.G2) >= KEYS
    world.core.release(world.engines["one"].session, RequestId("r"))
    world.settle()
    world.at_rest()


def test_a_repeated_reserve_renews_and_replaces(make_world: MakeWorld) -> None:
    world = filled(make_world)
    reserve(world, "r", ttl_ms=1_000)
    world.tick(0.8)
    assert reserve(world, "r", blocks=3, ttl_ms=1_000) == 3
    world.tick(0.8)
    assert world.core.tables.pool(Tier.G2).held == 3
    world.tick(0.3)
    world.at_rest()


def test_a_lease_ends_by_release_twice_without_harm(make_world: MakeWorld) -> None:
    world = filled(make_world)
    reserve(world, "r")
    for _ in range(2):
        world.core.release(world.engines["one"].session, RequestId("r"))
    world.at_rest()


def test_leases_end_with_their_session(make_world: MakeWorld) -> None:
    world = filled(make_world)
    reserve(world, "a")
    reserve(world, "b", blocks=2)
    world.core.close_session(world.engines["one"].session)
    world.settle()
    world.at_rest()


def test_leases_hold_at_most_their_share_of_a_tier(make_world: MakeWorld) -> None:
    world = filled(make_world, g2=8, g3=32)
    assert reserve(world, "a", blocks=3) == 3
    assert reserve(world, "b") == 1, "half of eight slots, and three are leased"
    assert reserve(world, "a", blocks=2) == 2
    assert reserve(world, "b") == 2


def test_a_lease_spans_g2_and_g3_and_ends_at_the_first_gap(make_world: MakeWorld) -> None:
    world = filled(make_world)
    world.clear(Tier.G2)
    world.settle()
    world.engines["one"].load(RUN.slice(0, 3), first_block=20)
    world.settle()
    assert reserve(world, "r") == 8
    assert (world.core.tables.pool(Tier.G2).held, world.core.tables.pool(Tier.G3).held) == (3, 5)


def test_nothing_is_leased_while_the_tables_cannot_say(make_world: MakeWorld) -> None:
    world = filled(make_world)
    world.lose(OW)
    assert reserve(world, "r") == 0
