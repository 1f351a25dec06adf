"""What makes a new inventory necessary wakes the link that asks for it: nothing else would while nothing is granted."""

from tests.unit.block_manager.world import OW, RT, MakeWorld, World


def watch(world: World) -> list[int]:
    """Workers whose links are woken from now on."""
    woken: list[int] = []
    world.core.desk.on_work = woken.append
    return woken


def test_a_remote_tier_that_attaches_after_the_listing_wakes_the_other_link(make_world: MakeWorld) -> None:
    world = make_world()
    world.attach(OW)
    assert world.list_inventory()
    woken = watch(world)
    world.attach(RT)
    assert OW in woken
    assert world.list_inventory()
    assert world.core.tables.grants_open


def test_a_remote_tier_that_is_proven_dead_does_so_too(make_world: MakeWorld) -> None:
    world = make_world()
    world.attach(OW)
    assert world.list_inventory()
    woken = watch(world)
    world.core.remote_proven_dead()
    assert OW in woken
    assert world.list_inventory()
    assert world.core.tables.grants_open


def test_nobody_is_woken_without_need(make_world: MakeWorld) -> None:
    world = make_world().ready()
    woken = watch(world)
    world.core.tick()
    assert woken == []
