"""Loads: sources, sharing, damage, deadlines, and exact answers."""

import pytest
from tests.unit.block_manager.world import GROUPS, OW, RT, Engine, MakeWorld, World

from blockyard.core.block_name import names_of
from blockyard.core.chain_run import ChainRun
from blockyard.core.vocabulary import (
    EngineBlockId,
    ItemStatus,
    JobKind,
    LoadId,
    RequestId,
    Tier,
)
from blockyard.testing.blocks import chain
from blockyard.testing.fake_slots import payload_of

OK = ItemStatus.OK
RUN = chain("a", 4)


def filled(make_world: MakeWorld, *, g3: bool = True, g4: bool = True) -> tuple[World, Engine]:
    """A world whose node once computed ``RUN``, with a second engine that has nothing."""
    world: World = make_world(g4=g4).ready()
    world.connect("one").compute(RUN)
    world.settle()
    if not g3:
        world.clear(Tier.G3)
    return world, world.connect("two")


def empty_g2(world: World) -> None:
    done = world.clear(Tier.G2)
    world.settle()
    assert done


def loaded(world: World, load: LoadId) -> tuple[list[ItemStatus], list[Tier | None]]:
    outcome = world.outcomes[load]
    return list(outcome.status), list(outcome.sources)


def bytes_are_right(engine: Engine, run: ChainRun, first_block: int = 0) -> bool:
    return all(engine.memory.blocks[first_block + index] == payload_of(run.digest(index)) for index in range(len(run)))


def test_blocks_in_g2_are_copied_at_once(make_world: MakeWorld) -> None:
    world, two = filled(make_world)
    load = two.load(RUN)
    world.settle()
    assert loaded(world, load) == ([OK] * 4, [Tier.G2] * 4)
    assert bytes_are_right(two, RUN)
    world.at_rest()


def test_blocks_on_disk_come_through_g2_and_stay_there(make_world: MakeWorld) -> None:
    world, two = filled(make_world, g4=False)
    empty_g2(world)
    load = two.load(RUN)
    world.settle()
    assert loaded(world, load) == ([OK] * 4, [Tier.G3] * 4)
    assert bytes_are_right(two, RUN)
    assert world.held(Tier.G2) == world.held(Tier.G3)
    world.at_rest()


def test_blocks_of_the_shared_store_come_through_g2(make_world: MakeWorld) -> None:
    world, two = filled(make_world)
    world.clear(Tier.G3)
    empty_g2(world)
    load = two.load(RUN)
    world.settle()
    assert loaded(world, load) == ([OK] * 4, [Tier.G4] * 4)
    assert bytes_are_right(two, RUN)
    world.at_rest()


def test_each_block_comes_from_its_best_source(make_world: MakeWorld) -> None:
    world, two = filled(make_world)
    world.clear(Tier.G3)
    empty_g2(world)
    one = world.engines["one"]
    world.core.reset(one.session)
    one.compute(chain("b", 4), first_block=8)  # in no way part of the run
    world.settle()
    first = two.load(RUN.slice(0, 2))  # brings two blocks from the store into G2 and G3
    world.settle()
    load = two.load(chain("a", 5))
    world.settle()
    assert loaded(world, first)[1] == [Tier.G4] * 2
    statuses, sources = loaded(world, load)
    assert statuses == [OK] * 4 + [ItemStatus.NOT_FOUND]
    assert sources == [Tier.G2, Tier.G2, Tier.G4, Tier.G4, None]
    world.at_rest()


def test_two_loads_of_one_block_share_one_read(make_world: MakeWorld) -> None:
    world, two = filled(make_world)
    empty_g2(world)
    reads = world.counter("job_items_total", kind="g3_g2", status="ok")
    first, second = two.load(RUN, request="a"), world.engines["one"].load(RUN, first_block=8, request="b")
    world.settle()
    assert loaded(world, first) == loaded(world, second) == ([OK] * 4, [Tier.G3] * 4)
    assert world.counter("job_items_total", kind="g3_g2", status="ok") - reads == 4
    assert bytes_are_right(two, RUN)
    assert bytes_are_right(world.engines["one"], RUN, 8)
    world.at_rest()


def test_a_load_joins_a_store_that_is_under_way(make_world: MakeWorld) -> None:
    world = make_world().ready()
    one, two = world.connect("one"), world.connect("two")
    one.compute(RUN)
    load = two.load(RUN)
    world.settle()
    assert loaded(world, load) == ([OK] * 4, [Tier.G2] * 4)
    assert bytes_are_right(two, RUN)
    world.at_rest()


def test_a_store_that_fails_is_a_plain_miss_for_those_who_joined(make_world: MakeWorld) -> None:
    world = make_world().ready()
    one, two = world.connect("one"), world.connect("two")
    one.compute(RUN)
    one.memory.guards[2] += 1
    load = two.load(RUN)
    world.settle()
    assert loaded(world, load)[0] == [OK, OK, ItemStatus.NOT_FOUND, OK]
    assert world.outcomes[load].usable == 2
    world.at_rest()


def test_a_damaged_disk_copy_leaves_and_the_store_serves_instead(make_world: MakeWorld) -> None:
    world, two = filled(make_world)
    empty_g2(world)
    slot = world.core.tables.pool(Tier.G3).find([RUN.key(1)])[0]
    assert slot is not None
    world.tiers[Tier.G3].slots[slot].damage()
    load = two.load(RUN)
    assert world.submit(OW)
    world.workers[OW].work()
    world.deliver(OW)
    assert bytes(RUN.key(1)) not in world.announced(Tier.G3)
    world.settle()
    assert loaded(world, load) == ([OK] * 4, [Tier.G3, Tier.G4, Tier.G3, Tier.G3])
    assert bytes_are_right(two, RUN)
    world.at_rest()


def test_a_damaged_disk_copy_without_another_source_is_told_as_corrupt(make_world: MakeWorld) -> None:
    world, two = filled(make_world, g4=False)
    empty_g2(world)
    slot = world.core.tables.pool(Tier.G3).find([RUN.key(0)])[0]
    assert slot is not None
    world.tiers[Tier.G3].slots[slot].damage()
    load = two.load(RUN)
    world.settle()
    assert loaded(world, load)[0] == [ItemStatus.CORRUPT, OK, OK, OK]
    assert world.outcomes[load].usable == 0
    assert two.memory.blocks[0] == b""
    world.at_rest()


def test_a_damaged_host_copy_leaves_and_the_disk_serves_instead(make_world: MakeWorld) -> None:
    world, two = filled(make_world, g4=False)
    slot = world.core.tables.pool(Tier.G2).find([RUN.key(2)])[0]
    assert slot is not None
    world.tiers[Tier.G2].slots[slot].damage()
    load = two.load(RUN)
    world.settle()
    assert loaded(world, load) == ([OK] * 4, [Tier.G2, Tier.G2, Tier.G3, Tier.G2])
    assert bytes_are_right(two, RUN)
    world.at_rest()


@pytest.mark.parametrize("tier", [Tier.G2, Tier.G3])
def test_a_slot_that_holds_another_block_than_the_table_says_leaves_it(make_world: MakeWorld, tier: Tier) -> None:
    """It would be a hit that fails, again and again."""
    world, two = filled(make_world)
    if tier is Tier.G3:
        empty_g2(world)
    slot = world.core.tables.pool(tier).find([RUN.key(1)])[0]
    assert slot is not None
    world.tiers[tier].slots[slot].digest = bytes(32)
    load = two.load(RUN)
    assert world.submit(OW)
    world.workers[OW].work()
    world.deliver(OW)
    assert bytes(RUN.key(1)) not in world.announced(tier)
    world.settle()
    assert loaded(world, load)[0] == [OK] * 4
    assert bytes_are_right(two, RUN)
    two.load(RUN, first_block=20)
    world.settle()
    world.at_rest()


def test_a_damaged_pack_is_retracted(make_world: MakeWorld) -> None:
    world, two = filled(make_world)
    world.clear(Tier.G3)
    empty_g2(world)
    (pack,) = world.store.packs
    digest, payload = world.store.packs[pack][1]
    world.store.packs[pack][1] = (digest, payload[:-1] + b"\0")
    load = two.load(RUN)
    world.settle()
    assert loaded(world, load)[0] == [OK, ItemStatus.CORRUPT, OK, OK]
    assert bytes(RUN.key(1)) not in world.announced(Tier.G4)
    world.at_rest()


def test_a_lost_pack_is_retracted(make_world: MakeWorld) -> None:
    world, two = filled(make_world)
    world.clear(Tier.G3)
    empty_g2(world)
    world.store.packs.clear()
    load = two.load(RUN)
    world.settle()
    assert loaded(world, load)[0] == [ItemStatus.NOT_FOUND] * 4
    assert world.announced(Tier.G4) == set()
    world.at_rest()


def test_slow_stages_are_given_up_at_their_deadline_and_the_rest_is_copied(make_world: MakeWorld) -> None:
    world, two = filled(make_world)
    world.clear(Tier.G3)
    empty_g2(world)
    world.engines["one"].compute(RUN.slice(0, 2))
    world.settle()
    load = two.load(RUN, ttl_ms=1_000)
    world.index.answer()
    world.submit(RT)
    world.workers[RT].start()  # the store takes its time
    world.tick(0.9)
    world.submit(OW)
    world.workers[OW].work()
    world.deliver(OW)
    assert loaded(world, load)[0] == [OK, OK, ItemStatus.TIMEOUT, ItemStatus.TIMEOUT]
    for job in world.workers[RT].running:
        world.workers[RT].finish(job)
    world.settle()
    world.tick(1.0)
    world.settle()
    world.at_rest()


def test_an_issued_copy_into_engine_memory_delays_the_answer_beyond_the_deadline(make_world: MakeWorld) -> None:
    world, two = filled(make_world)
    load = two.load(RUN, ttl_ms=500)
    world.submit(OW)
    job = world.workers[OW].start()
    assert job is not None
    world.tick(5.0)
    assert load not in world.outcomes
    world.workers[OW].finish(job)
    world.deliver(OW)
    assert loaded(world, load)[0] == [OK] * 4
    assert two.memory.written == [0, 1, 2, 3]
    world.settle()
    world.at_rest()


def test_an_unanswered_index_is_unknown_and_never_a_miss(make_world: MakeWorld) -> None:
    world, two = filled(make_world)
    world.lose(RT)
    load = two.load(chain("a", 5))
    world.settle()
    assert loaded(world, load)[0] == [OK] * 4 + [ItemStatus.UNKNOWN]
    world.attach(RT)
    world.settle()
    world.at_rest()


def test_a_load_without_an_offload_worker_is_unknown_at_once(make_world: MakeWorld) -> None:
    world, two = filled(make_world)
    world.lose(OW)
    load = two.load(RUN)
    assert loaded(world, load)[0] == [ItemStatus.UNKNOWN] * 4


def test_a_closed_load_frees_its_pins_and_ends_without_a_copy(make_world: MakeWorld) -> None:
    world, two = filled(make_world)
    world.clear(Tier.G3)
    empty_g2(world)
    load = two.load(RUN)
    world.core.close_load(two.session, load)
    assert not world.core.loads.is_open(two.session, load)
    world.settle()
    assert two.memory.written == []
    world.at_rest()


def test_a_load_closed_during_its_copy_ends_when_the_copy_has(make_world: MakeWorld) -> None:
    world, two = filled(make_world)
    load = two.load(RUN)
    world.submit(OW)
    job = world.workers[OW].start()
    assert job is not None
    world.core.close_load(two.session, load)
    world.tick()
    assert world.core.loads.is_open(two.session, load)
    world.workers[OW].finish(job)
    world.deliver(OW)
    assert not world.core.loads.is_open(two.session, load)
    world.at_rest()


def test_blocks_beyond_the_room_in_g2_fail_for_want_of_space(make_world: MakeWorld) -> None:
    world = make_world(g2=4, g3=32, g4=False).ready()
    world.connect("one").compute(chain("a", 8))
    world.settle()
    empty_g2(world)
    two = world.connect("two")
    load = two.load(chain("a", 8))
    world.settle()
    assert loaded(world, load)[0] == [OK] * 4 + [ItemStatus.NO_SPACE] * 4
    assert world.outcomes[load].usable == 4
    world.at_rest()


def test_a_guard_raised_during_a_load_keeps_the_block_untouched(make_world: MakeWorld) -> None:
    world, two = filled(make_world)
    load = two.load(RUN)
    two.memory.guards[3] += 1
    world.settle()
    assert loaded(world, load)[0] == [OK, OK, OK, ItemStatus.SKIPPED]
    assert two.memory.blocks[3] == b""
    world.at_rest()


def test_a_load_ends_when_its_engine_goes(make_world: MakeWorld) -> None:
    world, two = filled(make_world)
    empty_g2(world)
    two.load(RUN)
    world.core.close_session(two.session)
    assert len(world.core.loads) == 0
    world.settle()
    world.at_rest()


def test_loaded_blocks_are_evicted_tail_first(make_world: MakeWorld) -> None:
    world = make_world(g2=6, g3=32, g4=False).ready()
    one = world.connect("one")
    one.compute(chain("a", 4))
    world.settle()
    one.load(chain("a", 4), first_block=20)
    world.settle()
    one.compute(chain("b", 4), first_block=8)
    world.settle()
    held = [bytes(key) in world.held(Tier.G2) for key in chain("a", 4)]
    assert held == [True, True, False, False]


def test_a_lease_passes_to_its_load(make_world: MakeWorld) -> None:
    world, two = filled(make_world)

    held = world.core.reserve(two.session, RequestId("r"), names_of(RUN), GROUPS, 5_000)
    assert held == 4
    assert len(world.core.leases) == 1
    two.load(RUN, request="r")
    assert len(world.core.leases) == 0
    assert world.core.tables.pool(Tier.G2).held == 4
    world.settle()
    world.at_rest()


def test_hits_and_their_denominators_are_counted(make_world: MakeWorld) -> None:
    world, two = filled(make_world)
    two.load(chain("a", 5))
    world.settle()
    assert world.counter("load_blocks_total", tier="g2", status="ok") == 4
    assert world.counter("load_blocks_total", tier="none", status="not_found") == 1
    assert world.counter("job_items_total", kind=JobKind.G2_G1.name.lower(), status="ok") == 4
    assert two.memory.written == [EngineBlockId(block) for block in range(4)]
