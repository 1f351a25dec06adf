"""Slots on their way back: few jobs at a time, and never given up."""

from tests.unit.block_manager.world import OW, MakeWorld, World

from blockyard.core.vocabulary import ItemStatus, JobKind, Tier
from blockyard.testing.blocks import chain
from blockyard.tiers.header import HeaderState
from blockyard.wire.worker_channel import Job
from blockyard_block_manager.slot_freer import OPEN_JOBS, RETRY_SECONDS

SLOTS = 3 * OPEN_JOBS


def full_of_single_jobs(make_world: MakeWorld) -> World:
    world: World = make_world(g4=False, g2=SLOTS, g3=SLOTS, profile={"max_items": 1}).ready()
    world.connect("one").compute(chain("a", SLOTS))
    world.settle()
    return world


def test_a_large_clear_has_few_jobs_at_a_time(make_world: MakeWorld) -> None:
    world = full_of_single_jobs(make_world)
    done = world.clear(Tier.G2)
    rounds = 0
    while not done:
        assert 0 < len(world.core.desk.open_orders()) <= OPEN_JOBS
        world.submit(OW)
        world.workers[OW].work()
        world.deliver(OW)
        rounds += 1
    assert rounds == SLOTS / OPEN_JOBS
    assert (done[0].removed, done[0].headers_freed) == (SLOTS, SLOTS)
    world.at_rest()


def test_a_clear_of_one_tier_does_not_hold_up_the_other(make_world: MakeWorld) -> None:
    world = full_of_single_jobs(make_world)
    world.clear(Tier.G2)
    world.clear(Tier.G3)
    tiers = {opened.order.target_tier for opened in world.core.desk.open_orders()}
    assert tiers == {Tier.G2, Tier.G3}


def test_headers_that_cannot_be_written_are_tried_again_after_a_rest(make_world: MakeWorld) -> None:
    world = full_of_single_jobs(make_world)

    def broken(job: Job, item: int) -> ItemStatus | None:
        return ItemStatus.IO_ERROR if job.kind is JobKind.FREE else None

    world.workers[OW].fault = broken
    done = world.clear(Tier.G2)
    world.settle()
    assert world.core.desk.open_orders() == []
    world.tick(RETRY_SECONDS / 2)
    assert world.core.desk.open_orders() == [], "too early"
    world.workers[OW].fault = lambda job, item: None
    world.tick(RETRY_SECONDS / 2)
    world.settle()
    assert done[0].headers_freed == SLOTS
    assert all(slot.state is not HeaderState.READY for slot in world.tiers[Tier.G2].slots)
    world.at_rest()


def test_slots_wait_for_a_worker_that_is_away(make_world: MakeWorld) -> None:
    world = full_of_single_jobs(make_world)
    world.core.reset(world.engines["one"].session)
    done = world.clear(Tier.G2)
    world.submit(OW)
    world.restart(OW)
    world.tick(RETRY_SECONDS)
    assert done == []
    world.attach()
    world.settle()
    assert done
    assert all(slot.state is not HeaderState.READY for slot in world.tiers[Tier.G2].slots)
    world.at_rest()


def test_a_damaged_block_that_another_load_holds_gets_its_bad_header_when_that_load_ends(make_world: MakeWorld) -> None:
    world: World = make_world(g4=False, g3=8).ready()
    run = chain("a", 3)
    engine = world.connect("one")
    engine.compute(run)
    world.settle()
    pool = world.core.tables.pool(Tier.G2)
    slot = pool.find([run.key(1)])[0]
    assert slot is not None
    world.tiers[Tier.G2].slots[slot].damage()
    with pool.pin_all([run.key(1)]):
        engine.load(run, first_block=8)
        world.settle()
        assert pool.is_doomed(slot)
        assert world.tiers[Tier.G2].slots[slot].state is HeaderState.READY
    world.core.tick()
    world.settle()
    assert world.tiers[Tier.G2].slots[slot].state is HeaderState.BAD
    assert pool.is_doomed(slot) is False
    world.at_rest()


def test_a_slot_that_was_damaged_once_is_freed_like_any_other_the_next_time(make_world: MakeWorld) -> None:
    world: World = make_world(g4=False, g2=1, g3=8).ready()
    engine = world.connect("one")
    engine.compute(chain("a", 1))
    world.settle()
    (slot,) = world.tiers[Tier.G2].slots
    states = [slot.state]
    slot.damage()
    engine.load(chain("a", 1), first_block=8)
    world.settle()
    states.append(slot.state)
    engine.compute(chain("b", 1), first_block=16)
    world.settle()
    states.append(slot.state)
    world.clear(Tier.G2)
    world.settle()
    states.append(slot.state)
    assert states == [HeaderState.READY, HeaderState.BAD, HeaderState.READY, HeaderState.FREE]
    world.at_rest()
