"""Restarts of block-manager, offload-worker and remote tier: who is believed, and what is kept."""

import pytest
from tests.unit.block_manager.world import OW, RT, MakeWorld, World

from blockyard.core.block_name import names_of
from blockyard.core.vocabulary import Availability, ItemStatus, Tier
from blockyard.testing.blocks import chain
from blockyard.testing.fake_slots import FakeTier
from blockyard.tiers.header import HeaderState
from blockyard_block_manager.lookups import local_sources
from blockyard_block_manager.recovery import TiersResizedError

RUN = chain("a", 8)
KEYS = {bytes(key) for key in RUN}
OK = ItemStatus.OK


def filled(make_world: MakeWorld, **parameters: object) -> World:
    world: World = make_world(**parameters).ready()
    world.connect("one").compute(RUN)
    world.settle()
    return world


def look(world: World) -> set[Availability]:
    return set(local_sources(world.core, world.scope(), names_of(RUN)))


# --- block-manager ------------------------------------------------------------------------------------------------
def test_a_new_block_manager_knows_nothing_until_the_inventory_is_compared(make_world: MakeWorld) -> None:
    world = filled(make_world)
    world.start_manager()
    assert look(world) == {Availability.UNKNOWN}
    world.attach()
    assert look(world) == {Availability.UNKNOWN}
    world.settle()
    assert look(world) == {Availability.G2}
    assert world.announced(Tier.G2) == world.announced(Tier.G3) == KEYS
    world.at_rest()


def test_a_new_life_announces_from_the_empty_set(make_world: MakeWorld) -> None:
    world = filled(make_world)
    world.start_manager()
    world.attach()
    world.settle()
    assert world.events().epoch == world.core.profile.epoch
    assert world.announced(Tier.G1) == set()
    engine = world.connect("one")
    engine.compute(RUN)
    assert world.announced(Tier.G1) == KEYS
    world.settle()
    world.at_rest()


def test_blocks_found_again_are_loaded_with_the_right_bytes(make_world: MakeWorld) -> None:
    world = filled(make_world)
    world.start_manager()
    world.attach()
    world.settle()
    engine = world.connect("two")
    load = engine.load(RUN)
    world.settle()
    assert set(world.outcomes[load].status) == {OK}
    assert all(engine.memory.blocks[index].endswith(RUN.digest(index)) for index in range(8))
    world.at_rest()


def test_slots_freed_in_an_earlier_life_are_granted_above_their_headers(make_world: MakeWorld) -> None:
    world = filled(make_world, g4=False)
    done = world.clear(Tier.G2)
    world.settle()
    assert done
    world.start_manager()
    world.attach()
    world.settle()
    world.connect("one").compute(chain("b", 16))
    world.settle()
    assert len(world.held(Tier.G2)) == 16
    assert world.counter("job_items_total", kind="g1_g2", status="skipped") == 0
    world.at_rest()


def test_blocks_found_again_go_on_to_the_tiers_that_do_not_have_them(make_world: MakeWorld) -> None:
    world: World = make_world()
    world.attach(OW)
    world.core.remote_proven_dead()
    world.settle()
    world.connect("one").compute(RUN)
    world.settle()
    assert world.store.packs == {}
    world.start_manager()
    world.attach()
    world.settle()
    assert len(world.store.packs) == 2
    world.at_rest()


def test_what_the_store_has_already_is_not_put_again(make_world: MakeWorld) -> None:
    world = filled(make_world)
    world.start_manager()
    world.attach()
    world.settle()
    assert world.announced(Tier.G4) == KEYS
    assert world.counter("jobs_total", kind="g4_put", end="result") == 0
    world.at_rest()


def test_a_job_that_outlives_its_block_manager_keeps_its_slots_out_of_circulation(make_world: MakeWorld) -> None:
    world: World = make_world(g2=4, g4=False).ready()
    world.connect("one").compute(chain("a", 2))
    world.submit(OW)
    job = world.workers[OW].start()
    assert job is not None
    world.start_manager()
    world.attach()
    world.settle_without_work()
    assert world.core.tables.room(Tier.G2) == 2
    world.workers[OW].finish(job)
    world.settle()
    assert world.core.tables.room(Tier.G2) == 4
    world.at_rest()


def test_writes_into_engine_memory_of_an_earlier_life_are_waited_for(make_world: MakeWorld) -> None:
    world = filled(make_world)
    world.engines["one"].load(RUN, first_block=20)
    world.submit(OW)
    job = world.workers[OW].start()
    assert job is not None
    world.start_manager()
    assert not world.core.recovery.engine_writes_settled
    world.attach()
    assert not world.core.recovery.engine_writes_settled
    world.workers[OW].finish(job)
    world.deliver(OW)
    assert world.core.recovery.engine_writes_settled
    world.settle()
    world.at_rest()


def test_commands_of_an_earlier_life_have_no_effect(make_world: MakeWorld) -> None:
    world: World = make_world(g4=False).ready()
    world.connect("one").compute(RUN)
    world.submit(OW)  # queued at the worker, not started
    world.start_manager()
    world.attach()
    world.settle()
    assert world.held(Tier.G2) == set()
    assert all(slot.state is HeaderState.EMPTY for slot in world.tiers[Tier.G2].slots)
    world.at_rest()


def test_of_two_copies_in_one_tier_the_newer_stays(make_world: MakeWorld) -> None:
    world = filled(make_world, g4=False)
    slots = world.tiers[Tier.G3].slots
    used = next(index for index, slot in enumerate(slots) if slot.state is HeaderState.READY)
    spare = next(index for index, slot in enumerate(slots) if slot.state is HeaderState.EMPTY)
    for name in ("state", "digest", "parent", "position", "identity", "tenant", "payload", "checksum"):
        setattr(slots[spare], name, getattr(slots[used], name))
    slots[spare].generation = slots[used].generation + 5
    world.start_manager()
    world.attach()
    world.settle()
    assert world.held(Tier.G3) == KEYS
    assert slots[used].state is HeaderState.FREE
    world.at_rest()


# --- offload-worker -----------------------------------------------------------------------------------------------
def test_without_its_worker_everything_is_unknown_and_nothing_is_removed(make_world: MakeWorld) -> None:
    world = filled(make_world)
    world.lose(OW)
    assert look(world) == {Availability.UNKNOWN}
    assert world.announced(Tier.G2) == world.announced(Tier.G3) == KEYS


def test_a_reconnect_to_the_same_life_answers_at_once(make_world: MakeWorld) -> None:
    world = filled(make_world)
    world.lose(OW)
    world.attach(OW)
    assert look(world) == {Availability.G2}
    world.settle()
    world.at_rest()


def test_jobs_of_a_dead_worker_settle_as_lost_when_its_next_life_answers(make_world: MakeWorld) -> None:
    world: World = make_world(g4=False).ready()
    one = world.connect("one")
    one.compute(RUN)
    world.submit(OW)
    world.restart(OW)
    assert world.core.tables.pool(Tier.G2).mutable == 8, "only the next life proves that the earlier one is over"
    world.attach(OW)
    assert world.core.tables.pool(Tier.G2).mutable == 0
    assert world.counter("jobs_total", kind="g1_g2", end="lost") == 1
    world.settle()
    assert world.held(Tier.G2) == KEYS, "the engine still has the blocks: they are stored again"
    world.at_rest()


def test_what_a_dead_worker_had_written_is_found_by_its_header(make_world: MakeWorld) -> None:
    world: World = make_world(g4=False).ready()
    world.connect("one").compute(RUN)
    world.submit(OW)
    world.workers[OW].work()  # written, but the result never arrives
    world.core.close_session(world.engines["one"].session)
    world.restart(OW)
    world.attach(OW)
    world.settle()
    assert world.held(Tier.G2) == KEYS
    world.at_rest()


def test_blocks_without_their_headers_leave_with_events(make_world: MakeWorld) -> None:
    world = filled(make_world, g4=False)
    gone = world.core.tables.pool(Tier.G2).find([RUN.key(3)])[0]
    assert gone is not None
    world.restart(OW)
    world.tiers[Tier.G2].slots[gone].state = HeaderState.WRITING
    world.attach(OW)
    world.core.close_session(world.engines["one"].session)
    world.settle()
    assert world.announced(Tier.G2) == KEYS - {bytes(RUN.key(3))}
    world.at_rest()


def test_a_new_arena_starts_empty_and_the_disk_still_serves(make_world: MakeWorld) -> None:
    world = filled(make_world)
    world.core.reset(world.engines["one"].session)
    world.tiers[Tier.G2] = FakeTier.of("other arena", 16)
    world.restart(OW)
    world.attach(OW)
    world.lose(RT)
    world.attach(RT)
    world.settle()
    assert world.announced(Tier.G2) == set()
    assert look(world) == {Availability.G3}
    load = world.engines["one"].load(RUN)
    world.settle()
    assert set(world.outcomes[load].status) == {OK}
    world.at_rest()


def test_late_results_for_a_replaced_arena_register_nothing(make_world: MakeWorld) -> None:
    world = filled(make_world)
    for tier in (Tier.G3, Tier.G2):
        world.clear(tier)
    world.settle()
    world.core.reset(world.engines["one"].session)
    world.engines["one"].load(RUN)
    world.index.answer()
    world.submit(RT)
    job = world.workers[RT].start()
    assert job is not None
    old = world.tiers[Tier.G2]
    world.tiers[Tier.G2] = FakeTier.of("other arena", 16)
    world.restart(OW)
    world.attach(OW)
    world.tiers[Tier.G2], new = old, world.tiers[Tier.G2]
    world.workers[RT].finish(job)  # into the old arena
    world.tiers[Tier.G2] = new
    world.settle()
    assert world.held(Tier.G2) == set()
    world.tick(20.0)
    world.settle()
    world.at_rest()


def test_tiers_of_another_size_need_a_new_life(make_world: MakeWorld) -> None:
    world = filled(make_world, g4=False)
    world.tiers[Tier.G2] = FakeTier.of("other arena", 32)
    world.restart(OW)
    with pytest.raises(TiersResizedError):
        world.attach(OW)


def test_free_headers_lost_with_a_worker_are_written_by_the_next(make_world: MakeWorld) -> None:
    world = filled(make_world, g4=False)
    done = world.clear(Tier.G3)
    world.submit(OW)
    world.restart(OW)
    assert not done
    world.attach(OW)
    world.settle()
    assert done
    assert all(slot.state is not HeaderState.READY for slot in world.tiers[Tier.G3].slots[:8])
    world.at_rest()
