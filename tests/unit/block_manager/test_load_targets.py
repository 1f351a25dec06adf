"""A memory block is either registered or the target of a load, never both: its bytes have one name at a time."""

import pytest
from tests.unit.block_manager.world import Engine, MakeWorld, World

from blockyard.core.block_name import names_of
from blockyard.core.errors import RequestError
from blockyard.core.vocabulary import EngineBlockId, Guard, LoadId, RequestId
from blockyard.testing.blocks import chain

RUN, OTHER = chain("a", 4), chain("b", 4)
BLOCKS = [EngineBlockId(block) for block in range(4)]


def stored(make_world: MakeWorld) -> tuple[World, Engine]:
    """A node that holds ``RUN``, and an engine with empty memory."""
    world: World = make_world().ready()
    world.connect("one").compute(RUN)
    world.settle()
    return world, world.connect("two")


def open_raw(world: World, engine: Engine) -> LoadId:
    """Open a load of ``RUN`` as an engine would that forgot to give its blocks up."""
    guards = [Guard(engine.memory.guards[block]) for block in BLOCKS]
    return world.core.open_load(
        engine.session, RequestId("r"), world.scope(), names_of(RUN), BLOCKS, guards, 10_000, world.finished
    )


def test_a_load_into_registered_blocks_is_refused_and_changes_nothing(make_world: MakeWorld) -> None:
    """Else the store that still reads those blocks would take the loaded bytes for the registered content."""
    world, two = stored(make_world)
    two.compute(OTHER)
    with pytest.raises(RequestError, match="deregister"):
        open_raw(world, two)
    assert len(world.core.loads) == 0
    assert len(two.session.g1) == 4
    world.settle()


def test_a_target_of_an_open_load_cannot_be_registered_until_the_load_has_ended(make_world: MakeWorld) -> None:
    world, two = stored(make_world)
    load = open_raw(world, two)
    with pytest.raises(RequestError, match="before its load has ended"):
        two.compute(OTHER)
    assert len(two.session.g1) == 0
    world.settle()
    assert load in world.outcomes
    two.compute(RUN)
    assert len(two.session.g1) == 4
    world.settle()


def test_two_loads_never_share_a_target(make_world: MakeWorld) -> None:
    world, two = stored(make_world)
    open_raw(world, two)
    with pytest.raises(RequestError, match="another open load"):
        open_raw(world, two)
    world.settle()
    open_raw(world, two)
    world.settle()
