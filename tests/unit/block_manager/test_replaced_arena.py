"""Another arena while the remote-tier has the old one: what it has under way there, and what it is told until it knows.

Slots of both arenas have the same numbers and their generations go on, so only headers tell them apart.
"""

import pytest
from tests.unit.block_manager.rank_kit import attach_remote_tier, digests, replace_arena
from tests.unit.block_manager.world import OW, RT, Engine, MakeWorld, World

from blockyard.core.vocabulary import ItemStatus, Tier
from blockyard.testing.blocks import chain
from blockyard.testing.fake_slots import payload_of

RUN = chain("a", 4)


@pytest.fixture
def world(make_world: MakeWorld) -> World:
    return make_world(g2=16).ready()


def right_rows(engine: Engine) -> int:
    """How many of the rows of the run lie in the engine's memory."""
    return sum(engine.memory.blocks[index] == payload_of(digest) for index, digest in enumerate(digests(RUN)))


def rests(world: World) -> None:
    """Everything that still waits comes to its end, and tables and headers agree."""
    world.settle()
    for _ in range(4):
        world.tick(5.0)
        world.settle()
    world.at_rest()


@pytest.fixture
def loader(world: World) -> Engine:
    """An engine that finds the run in the shared store only."""
    world.connect("one").compute(RUN)
    rests(world)
    world.core.close_session(world.engines.pop("one").session)
    world.clear(Tier.G3)
    world.clear(Tier.G2)
    rests(world)
    assert world.held(Tier.G2) == world.held(Tier.G3) == set()
    return world.connect("two")


@pytest.mark.parametrize("attaches_first", [True, False])
def test_rows_that_land_in_the_old_arena_are_not_found_in_the_new_one(
    world: World, loader: Engine, attaches_first: bool
) -> None:
    load = loader.load(RUN)
    world.index.answer()
    world.submit(RT)
    job = world.workers[RT].start()
    assert job is not None
    replace_arena(world)
    if attaches_first:
        attach_remote_tier(world)
    world.workers[RT].finish(job)
    world.settle()
    assert (right_rows(loader), world.held(Tier.G2)) == (0, set())
    assert ItemStatus.OK not in world.outcomes[load].status
    if not attaches_first:
        attach_remote_tier(world)
    again = loader.load(RUN, request="again")
    world.settle()
    assert world.outcomes[again].status == (ItemStatus.OK,) * 4
    assert right_rows(loader) == 4
    rests(world)


def test_a_job_that_the_remote_tier_begins_before_it_has_the_new_arena_brings_nothing_into_it(
    world: World, loader: Engine
) -> None:
    replace_arena(world)
    world.list_inventory()
    loader.load(RUN)
    world.settle()
    assert right_rows(loader) == 0, "the bytes lie in the old arena"
    attach_remote_tier(world)
    rests(world)
    again = loader.load(RUN, request="again")
    world.settle()
    assert world.outcomes[again].status == (ItemStatus.OK,) * 4
    assert right_rows(loader) == 4
    rests(world)


def test_what_is_put_from_the_old_arena_is_what_was_there(world: World) -> None:
    world.connect("one").compute(RUN)
    world.submit(OW)
    world.workers[OW].work()
    world.deliver(OW)
    world.tick(5.0)
    world.submit(RT)
    job = world.workers[RT].start()
    assert job is not None
    replace_arena(world)
    world.connect("other").compute(chain("b", 8), first_block=8)
    world.submit(OW)
    world.workers[OW].work()
    world.deliver(OW)
    world.workers[RT].finish(job)
    attach_remote_tier(world)
    rests(world)
    world.clear(Tier.G2)
    world.clear(Tier.G3)
    rests(world)
    loader = world.connect("two")
    load = loader.load(RUN)
    world.settle()
    found = [status is ItemStatus.OK for status in world.outcomes[load].status]
    assert found.count(True) == right_rows(loader) > 0
