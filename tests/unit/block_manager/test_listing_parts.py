"""Inventories that are compared with the tables part by part, and what follows for all of G2."""

from tests.unit.block_manager.world import OW, RT, MakeWorld, World

from blockyard.core.block_name import names_of
from blockyard.core.vocabulary import Availability, Tier
from blockyard.testing.blocks import chain
from blockyard_block_manager.lookups import local_sources

RUN = chain("a", 8)
KEYS = {bytes(key) for key in RUN}


def filled(make_world: MakeWorld, **parameters: object) -> World:
    world: World = make_world(g4=False, profile={"listing_part": 3}, **parameters).ready()
    world.connect("one").compute(RUN)
    world.settle()
    return world


def look(world: World) -> set[Availability]:
    return set(local_sources(world.core, world.scope(), names_of(RUN)))


def test_everything_found_again_is_offered_to_the_lower_tiers_part_by_part(make_world: MakeWorld) -> None:
    world: World = make_world(profile={"listing_part": 3})
    world.attach(OW)
    world.core.remote_proven_dead()
    world.settle()
    world.connect("one").compute(RUN)
    world.settle()
    world.clear(Tier.G3)
    world.settle()
    world.start_manager()
    world.attach()
    for _ in range(4):
        world.settle()
        world.tick(0.02)
    assert len(world.store.packs) == 2
    assert world.held(Tier.G3) == KEYS
    assert world.counter("dropped_total", reason="g3_queue_full") == 0
    world.at_rest()


def test_blocks_found_again_are_evicted_from_the_end_of_their_chain(make_world: MakeWorld) -> None:
    world = filled(make_world, g2=8)
    world.start_manager()
    world.attach()
    world.settle()
    world.connect("one").compute(chain("b", 3))
    world.settle()
    assert world.held(Tier.G2) == {bytes(key) for key in (*RUN.slice(0, 5), *chain("b", 3))}
    world.at_rest()


def test_a_comparison_that_ends_in_the_middle_is_made_again(make_world: MakeWorld) -> None:
    world = filled(make_world)
    world.start_manager()
    world.attach()
    listing = world.core.recovery.begin_listing()
    steps = world.core.compare(listing, {tier: world.workers[OW].inventory(tier) for tier in listing.tiers})
    next(steps)
    assert look(world) == {Availability.UNKNOWN}
    world.lose(OW)
    assert list(steps) == []
    assert look(world) == {Availability.UNKNOWN}
    world.attach()
    world.settle()
    assert look(world) == {Availability.G2}
    assert world.announced(Tier.G2) == world.announced(Tier.G3) == KEYS
    world.at_rest()


def test_only_what_is_in_doubt_is_listed_again(make_world: MakeWorld) -> None:
    """The disk tells nothing new once the remote tier is there: it writes host memory only."""
    world: World = make_world()
    world.attach(OW)
    assert world.core.recovery.begin_listing().tiers == (Tier.G2, Tier.G3)
    assert world.list_inventory()
    world.attach(RT)
    assert world.core.recovery.begin_listing().tiers == (Tier.G2,)
