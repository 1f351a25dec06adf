"""A worker that is there but does not answer: nothing is planned on it, and nothing waits for it."""

from tests.unit.block_manager.world import OW, RT, Engine, MakeWorld, World

from blockyard.core.block_name import names_of
from blockyard.core.vocabulary import (
    Availability,
    ItemStatus,
    JobSeq,
    LoadId,
    Tier,
    WorkerRole,
)
from blockyard.testing.blocks import chain
from blockyard_block_manager.lookups import local_sources

OK = ItemStatus.OK
RUN = chain("a", 4)


def loaded(world: World, load: LoadId) -> tuple[list[ItemStatus], list[Tier | None]]:
    outcome = world.outcomes[load]
    return list(outcome.status), list(outcome.sources)


def hand_over_unanswered(world: World, role: WorkerRole) -> None:
    """Jobs go out to a worker that takes nothing in."""
    while (job := world.core.desk.take(role)) is not None:
        world.core.desk.table.sent(JobSeq(job.seq))


def hang(world: World, two: Engine) -> LoadId:
    """The offload-worker stops: the first load that needs it finds out."""
    load = two.load(RUN, ttl_ms=2_000)
    hand_over_unanswered(world, OW)
    world.clock.advance(1)
    return load


def test_while_the_offload_worker_hangs_local_blocks_are_unknown_and_nothing_is_planned_on_it(
    make_world: MakeWorld,
) -> None:
    world: World = make_world(g4=False).ready()
    world.connect("one").compute(RUN)
    world.settle()
    two = world.connect("two")
    first = hang(world, two)
    orders = len(world.core.desk.open_orders())
    assert local_sources(world.core, world.scope(), names_of(RUN)) == [Availability.UNKNOWN] * 4
    second = two.load(RUN, first_block=8, request="s")
    assert loaded(world, second) == ([ItemStatus.UNKNOWN] * 4, [None] * 4)
    two.compute(chain("b", 2), first_block=16)
    assert len(world.core.desk.open_orders()) == orders
    assert first not in world.outcomes, "its copy may still be made: nothing settles by time"
    world.clock.advance(30)
    world.tick()
    world.settle()
    assert first in world.outcomes
    assert local_sources(world.core, world.scope(), names_of(RUN)) == [Availability.G2] * 4
    third = two.load(RUN, first_block=8, request="t")
    world.settle()
    assert loaded(world, third) == ([OK] * 4, [Tier.G2] * 4)
    assert {name.key for name in names_of(chain("b", 2))} <= world.held(Tier.G2), "the store had only waited"
    world.at_rest()


def test_while_the_remote_tier_hangs_no_pack_is_planned_on_it(make_world: MakeWorld) -> None:
    world: World = make_world(g4=True).ready()
    engine = world.connect("one")
    engine.compute(RUN)
    while not world.workers[RT].queued and not any(o.order.role is RT for o in world.core.desk.open_orders()):
        world.submit(OW)
        world.workers[OW].work()
        world.deliver(OW)
    hand_over_unanswered(world, RT)
    world.clock.advance(1)
    orders = sum(opened.order.role is RT for opened in world.core.desk.open_orders())
    engine.compute(chain("b", 4), first_block=8)
    for _ in range(5):
        world.submit(OW)
        world.workers[OW].work()
        world.deliver(OW)
    assert sum(opened.order.role is RT for opened in world.core.desk.open_orders()) == orders
    world.tick(0.5)
    world.settle()
    assert len(world.announced(Tier.G4)) == 8
    world.at_rest()
