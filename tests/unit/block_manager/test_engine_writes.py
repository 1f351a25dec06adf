"""When an engine that comes back may use the memory blocks of a load that it lost."""

from tests.unit.block_manager.world import OW, MakeWorld

from blockyard.testing.blocks import chain
from blockyard_block_manager.engine_writes import engine_writes_settled


def test_a_copy_of_an_ended_session_is_waited_for(make_world: MakeWorld) -> None:
    """The block-manager lives on, only the connection was lost: the copy into the engine goes on."""
    world = make_world(g4=False).ready()
    one = world.connect("one")
    run = chain("a", 2)
    one.compute(run)
    world.settle()
    one.load(run, first_block=8)
    assert world.submit(OW) == 1
    again = world.connect("one")
    assert again.session is not one.session
    assert not engine_writes_settled(world.core)
    world.tick()  # cancel goes out
    world.settle()
    assert engine_writes_settled(world.core)
    world.at_rest()


def test_loads_of_living_sessions_are_not_waited_for(make_world: MakeWorld) -> None:
    world = make_world(g4=False).ready()
    one, two = world.connect("one"), world.connect("two")
    run = chain("a", 2)
    one.compute(run)
    world.settle()
    two.load(run, first_block=8)
    world.submit(OW)
    assert engine_writes_settled(world.core)
    world.settle()


def test_nothing_is_settled_before_the_worker_has_answered(make_world: MakeWorld) -> None:
    assert not engine_writes_settled(make_world(g4=False).core)
