"""The remote tier dies, lags or repeats itself, and the block-manager loses nothing by it."""

from tests.unit.block_manager.world import OW, RT, MakeWorld, World

from blockyard.core.vocabulary import ItemStatus, JobKind, Tier
from blockyard.testing.blocks import chain
from blockyard.tiers.header import HeaderState

RUN = chain("a", 8)
KEYS = {bytes(key) for key in RUN}
OK = ItemStatus.OK


def test_a_remote_tier_that_dies_during_a_put_is_no_loss(make_world: MakeWorld) -> None:
    world: World = make_world().ready()
    world.connect("one").compute(RUN)
    for _ in range(3):
        world.submit(OW)
        world.workers[OW].work()
        world.deliver(OW)
    world.submit(RT)
    assert world.workers[RT].start() is not None
    world.restart(RT)
    world.settle()
    assert world.core.tables.pool(Tier.G2).held == 8, "sources stay pinned until the earlier life is proven over"
    world.attach(RT)
    world.tick(6.0)
    world.settle()
    assert world.announced(Tier.G4) == KEYS
    world.at_rest()


def test_a_remote_tier_that_is_proven_dead_holds_no_sources(make_world: MakeWorld) -> None:
    world: World = make_world().ready()
    world.connect("one").compute(RUN)
    for _ in range(3):
        world.submit(OW)
        world.workers[OW].work()
        world.deliver(OW)
    world.submit(RT)
    assert world.workers[RT].start() is not None
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
