"""The remote tier dies, lags or repeats itself, and the block-manager loses nothing by it."""

from dataclasses import replace

from tests.unit.block_manager.world import GROUPS, OW, RT, MakeWorld, World

from blockyard.core.block_name import names_of
from blockyard.core.vocabulary import Availability, ItemStatus, JobKind, RequestId, Tier
from blockyard.runtime.http import Health
from blockyard.testing.blocks import chain
from blockyard.tiers.header import HeaderState
from blockyard_block_manager.lookups import local_sources
from blockyard_block_manager.readiness import Readiness

RUN = chain("a", 8)
KEYS = {bytes(key) for key in RUN}
OK = ItemStatus.OK


def with_a_put_under_way(make_world: MakeWorld) -> World:
    """Eight blocks in every local tier, on their way to the store."""
    world: World = make_world().ready()
    world.connect("one").compute(RUN)
    for _ in range(3):
        world.submit(OW)
        world.workers[OW].work()
        world.deliver(OW)
    world.submit(RT)
    assert world.workers[RT].start() is not None
    return world


def test_a_remote_tier_that_dies_during_a_put_is_no_loss(make_world: MakeWorld) -> None:
    world = with_a_put_under_way(make_world)
    world.restart(RT)
    world.settle()
    assert world.core.tables.pool(Tier.G2).held == 8, "sources stay pinned until the earlier life is proven over"
    world.attach(RT)
    world.tick(6.0)
    world.settle()
    assert world.announced(Tier.G4) == KEYS
    world.at_rest()


def test_a_remote_tier_that_is_proven_dead_holds_no_sources(make_world: MakeWorld) -> None:
    world = with_a_put_under_way(make_world)
    world.restart(RT)
    world.core.remote_proven_dead()
    world.settle()
    assert world.core.tables.pool(Tier.G2).held == 0


def test_a_remote_tier_left_running_when_g4_was_turned_off_is_waited_for(make_world: MakeWorld) -> None:
    """It is never attached, and may still write host memory for an earlier life."""
    world: World = make_world(g4=False, profile={"remote_runs": True})
    world.attach(OW)
    world.settle()
    world.connect("one").compute(RUN)
    world.settle()
    assert world.core.tables.serving
    assert world.held(Tier.G2) == set()
    world.core.remote_proven_dead()
    world.settle()
    assert world.held(Tier.G2) == KEYS
    world.at_rest()


def test_a_read_of_an_earlier_life_that_lands_after_the_listing_is_noticed(make_world: MakeWorld) -> None:
    world: World = make_world().ready()
    world.connect("one").compute(RUN)
    world.settle()
    for tier in (Tier.G3, Tier.G2):
        world.clear(tier)
    world.settle()
    world.core.reset(world.engines["one"].session)
    world.engines["one"].load(RUN)
    world.index.answer()
    world.submit(RT)  # queued at the remote tier, which goes on after its block-manager
    world.start_manager()
    world.attach(OW)
    world.settle_without_work()
    assert world.core.tables.serving
    assert world.core.tables.room(Tier.G2) == 0, "the remote tier may still write"
    assert world.workers[RT].work() == 1
    world.attach(RT)
    world.settle()
    assert world.core.tables.room(Tier.G2) == 16
    assert world.held(Tier.G2) == KEYS, "what it brought is whole, so it is kept"
    world.at_rest()


def test_results_are_taken_once_however_often_they_come(make_world: MakeWorld) -> None:
    world: World = make_world(g4=False).ready()
    world.connect("one").compute(RUN)
    world.submit(OW)
    world.workers[OW].work()
    results = world.workers[OW].results(everything=True)
    for result in [*results, *results]:
        world.core.result(result)
    assert world.counter("dropped_total", reason="unknown_result") == len(results)
    world.settle()
    world.at_rest()


def test_submits_that_get_lost_are_repeated_and_then_cancelled(make_world: MakeWorld) -> None:
    world: World = make_world(g4=False).ready()
    world.connect("one").compute(RUN)
    job = world.core.desk.take(OW)
    assert job is not None
    world.core.desk.table.sent(world.core.desk.table.unsettled(OW)[0])  # it never arrives
    assert job.kind is JobKind.G1_G2
    world.tick(0.25)
    world.settle()
    assert world.held(Tier.G2) == KEYS
    world.at_rest()


def test_a_copy_found_by_its_header_gives_way_to_the_one_just_written(make_world: MakeWorld) -> None:
    world: World = make_world(g4=False).ready()
    world.connect("one").compute(RUN)
    world.submit(OW)
    world.workers[OW].work()
    world.deliver(OW)
    world.submit(OW)
    job = world.workers[OW].start()  # a write to disk that outlives its block-manager
    assert job is not None
    world.start_manager()
    world.attach()
    world.list_inventory()
    world.submit(OW)
    again = world.workers[OW].start()  # the new life writes the same blocks
    assert again is not None
    world.workers[OW].finish(job)
    world.deliver(OW)
    assert world.list_inventory()
    assert world.held(Tier.G3) == KEYS
    world.workers[OW].finish(again)
    world.settle()
    assert world.announced(Tier.G3) == KEYS
    assert sum(slot.state is HeaderState.READY for slot in world.tiers[Tier.G3].slots) == 8
    world.at_rest()


def test_a_put_of_an_earlier_life_that_hangs_holds_up_nobody(make_world: MakeWorld) -> None:
    """It only reads the arena."""
    world = with_a_put_under_way(make_world)
    world.start_manager()
    world.attach()
    world.settle_without_work()
    assert world.core.tables.room(Tier.G2) == 8, "the others are pinned: the store lacks them, so they are put again"
    world.settle()
    world.at_rest()


OLD = chain("b", 8)
LATE = slice(0, 3)
"""What of ``RUN`` a hanging read brings, over blocks of ``OLD``."""


class _HangingRead:
    """A read from the store that began no slot yet when its block-manager died: the headers name evicted blocks."""

    def __init__(self, make_world: MakeWorld) -> None:
        self.world: World = make_world(g2=8).ready()
        world = self.world
        for run in (RUN, OLD):
            world.connect("one").compute(run)
            world.settle()
        world.clear(Tier.G3)
        world.settle()
        world.core.reset(world.engines["one"].session)
        world.engines["one"].load(RUN.slice(LATE.start, LATE.stop))
        world.index.answer()
        slots = world.tiers[Tier.G2].slots
        before = [replace(slot) for slot in slots]
        world.submit(RT)
        job = world.workers[RT].start()
        assert job is not None
        self._job = job
        self._begun = {place: replace(slot) for place, slot in enumerate(slots) if slot != before[place]}
        assert len(self._begun) == LATE.stop
        for place in self._begun:
            slots[place].state, slots[place].generation = before[place].state, before[place].generation
        self.evicted = {bytes(slots[place].digest[:16]) for place in self._begun}
        world.start_manager()

    def offload_only(self) -> None:
        """Everything happens but at the remote tier."""
        for _ in range(8):
            self.world.list_inventory()
            self.world.submit(OW)
            self.world.workers[OW].work()
            self.world.deliver(OW)

    def land(self) -> None:
        """The store answers at last."""
        for place, begun in self._begun.items():
            slot = self.world.tiers[Tier.G2].slots[place]
            assert slot.generation < begun.generation, "nobody was granted the slot meanwhile"
            slot.state, slot.generation = begun.state, begun.generation
        self.world.workers[RT].finish(self._job)
        self.world.settle()


def test_only_the_slots_of_a_hanging_read_of_an_earlier_life_wait_for_it(make_world: MakeWorld) -> None:
    hanging = _HangingRead(make_world)
    world = hanging.world
    world.attach(OW)
    hanging.offload_only()
    assert world.held(Tier.G2) >= hanging.evicted, "their headers are whole still"
    world.attach(RT)
    hanging.offload_only()
    assert world.core.tables.room(Tier.G2) == 5
    assert not world.held(Tier.G2) & hanging.evicted
    fresh = chain("c", 5)
    world.connect("one").compute(fresh)
    hanging.offload_only()
    assert world.held(Tier.G2) == {bytes(key) for key in fresh}, "all others are granted meanwhile"
    hanging.land()
    assert {bytes(key) for key in list(RUN)[LATE]} <= world.held(Tier.G2)
    assert world.core.tables.room(Tier.G2) == 8
    world.at_rest()


def test_a_hanging_read_that_ends_without_a_write_leaves_the_old_blocks(make_world: MakeWorld) -> None:
    hanging = _HangingRead(make_world)
    world = hanging.world
    world.attach()
    hanging.offload_only()
    assert not world.held(Tier.G2) & hanging.evicted
    world.restart(RT)
    world.attach(RT)
    world.settle()
    assert world.held(Tier.G2) >= hanging.evicted
    world.at_rest()


def test_a_slot_that_somebody_reads_and_a_hanging_read_may_write_is_waited_for(make_world: MakeWorld) -> None:
    hanging = _HangingRead(make_world)
    world = hanging.world
    world.attach(OW)
    hanging.offload_only()
    session = world.connect("one").session
    named = [name for name in names_of(OLD) if bytes(name.key) in hanging.evicted]
    assert world.core.reserve(session, RequestId("r"), named, GROUPS, 60_000)
    health = Health()
    readiness = Readiness(health, world.metrics, world.core)
    world.attach(RT)
    hanging.offload_only()
    readiness.update()
    assert world.core.tables.room(Tier.G2) == 0
    assert "may still write for an earlier life" in {check.name: check.detail for check in health.checks}["remote-tier"]
    world.core.release(session, RequestId("r"))
    hanging.land()
    readiness.update()
    assert {check.name: check.detail for check in health.checks}["remote-tier"] == ""
    assert not world.held(Tier.G2) & hanging.evicted, "their bytes are gone"
    assert world.core.tables.room(Tier.G2) == 8
    world.at_rest()


def test_what_lies_below_g2_is_no_hit_while_no_slot_may_be_granted_for_it(make_world: MakeWorld) -> None:
    world: World = make_world(g2=8).ready()
    for run in (RUN, OLD):
        world.connect("one").compute(run)
        world.settle()
    world.start_manager()
    world.attach(OW)
    world.settle()
    assert set(local_sources(world.core, world.scope(), names_of(OLD))) == {Availability.G2}
    assert set(local_sources(world.core, world.scope(), names_of(RUN))) == {Availability.UNKNOWN}
    assert set(local_sources(world.core, world.scope(), names_of(chain("z", 2)))) == {Availability.MISS}
    world.attach(RT)
    world.settle()
    assert set(local_sources(world.core, world.scope(), names_of(RUN))) == {Availability.G3}
