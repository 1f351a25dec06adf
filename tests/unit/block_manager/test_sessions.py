"""Hello, replacement and end of engines."""

from dataclasses import replace

import msgspec
import pytest
from tests.unit.block_manager.world import BLOCK_TOKENS, HELLO, MODEL, OW, MakeWorld

from blockyard.core.errors import (
    IdentityMismatchError,
    LayoutMismatchError,
    RequestError,
    UnknownSessionError,
    UnsupportedOperationError,
    UnsupportedVersionError,
)
from blockyard.core.vocabulary import EngineBlockId, Tier
from blockyard.testing.blocks import chain
from blockyard.wire.connector_channel import Group

FULL = Group(engine_block_tokens=BLOCK_TOKENS)
HALF = Group(engine_block_tokens=BLOCK_TOKENS // 2)
WINDOW = Group(group=1, kind="sliding_window", engine_block_tokens=BLOCK_TOKENS, window_tokens=64)


@pytest.mark.parametrize(
    ("changes", "error", "field"),
    [
        ({"version": 99}, UnsupportedVersionError, "theirs=99"),
        ({"identity": replace(MODEL, block_tokens=32)}, IdentityMismatchError, "block_tokens"),
        ({"identity": replace(MODEL, block_bytes=8_192)}, IdentityMismatchError, "block_bytes"),
        ({"identity": replace(MODEL, hash_version="")}, RequestError, "hash_version"),
        ({"identity": replace(MODEL, hash_version="x" * 200)}, RequestError, "hash_version"),
        ({"identity": replace(MODEL, hash_version="line\nbreak")}, RequestError, "hash_version"),
        ({"identity": replace(MODEL, group_spec="full,full")}, IdentityMismatchError, "group_spec"),
        ({"groups": (FULL, WINDOW)}, IdentityMismatchError, "group_spec"),
        ({"identity": replace(MODEL, engine_block_tokens=5)}, IdentityMismatchError, "engine_block_tokens"),
        ({"groups": (HALF,)}, IdentityMismatchError, "engine_block_tokens"),
        ({"ranks": 2}, IdentityMismatchError, "parallel_shape"),
        ({"identity": replace(MODEL, parallel_shape="canonical")}, IdentityMismatchError, "parallel_shape"),
        ({"groups": ()}, RequestError, "groups"),
        ({"groups": (msgspec.structs.replace(FULL, group=1),)}, RequestError, "groups"),
        ({"groups": (FULL, FULL)}, RequestError, "groups"),
        ({"groups": (msgspec.structs.replace(FULL, kind="mamba"),)}, UnsupportedOperationError, "kind"),
        ({"groups": (msgspec.structs.replace(FULL, window_tokens=64),)}, RequestError, "window_tokens"),
        ({"groups": (msgspec.structs.replace(WINDOW, group=0, window_tokens=0),)}, RequestError, "window_tokens"),
        ({"groups": (msgspec.structs.replace(FULL, engine_block_tokens=5),)}, LayoutMismatchError, "engine_block"),
        ({"groups": (msgspec.structs.replace(FULL, engine_block_tokens=0),)}, LayoutMismatchError, "engine_block"),
        ({"executor": "magic"}, UnsupportedOperationError, "executor"),
        ({"engine": ""}, RequestError, "engine"),
        ({"engine": "x" * 200}, RequestError, "engine"),
        ({"blocks": 0}, RequestError, "blocks"),
        ({"blocks": 1 << 32}, RequestError, "blocks"),
        ({"ranks": 0}, RequestError, "ranks"),
        ({"ranks": 65}, RequestError, "ranks"),
        ({"dp_rank": -1}, RequestError, "dp_rank"),
        ({"dp_rank": 1 << 20}, RequestError, "dp_rank"),
    ],
)
def test_an_engine_that_does_not_fit_is_refused_with_the_field(
    make_world: MakeWorld, changes: dict[str, object], error: type[Exception], field: str
) -> None:
    world = make_world(g4=False).ready()
    with pytest.raises(error, match=field):
        world.core.open_session(msgspec.structs.replace(HELLO, **changes))
    assert len(world.core.sessions) == 0


def test_an_engine_that_goes_takes_its_set_with_it(make_world: MakeWorld) -> None:
    world = make_world(g4=False).ready()
    one = world.connect("one")
    one.compute(chain("a", 4))
    world.core.close_session(one.session)
    assert world.announced(Tier.G1) == set()
    world.settle()
    world.at_rest()


def test_copies_from_an_engine_that_went_store_nothing_wrong(make_world: MakeWorld) -> None:
    world = make_world(g4=False).ready()
    one = world.connect("one")
    one.compute(chain("a", 4))
    world.submit(OW)
    world.core.close_session(one.session)
    world.tick()  # cancel goes out
    world.settle()
    assert world.held(Tier.G2) == set()
    world.at_rest()


def test_contents_of_another_engine_stay(make_world: MakeWorld) -> None:
    world = make_world(g4=False).ready()
    one, two = world.connect("one"), world.connect("two")
    one.compute(chain("a", 2))
    two.compute(chain("a", 2))
    world.core.close_session(one.session)
    assert len([item for item in world.events().held if item.tier is Tier.G1]) == 2
    world.check()


def test_a_closed_session_can_do_nothing(make_world: MakeWorld) -> None:
    world = make_world(g4=False).ready()
    one = world.connect("one")
    world.core.close_session(one.session)
    with pytest.raises(UnknownSessionError):
        one.compute(chain("a", 1))
    with pytest.raises(UnknownSessionError):
        world.core.deregister(one.session, [EngineBlockId(0)])
    world.core.close_session(one.session)
    world.check()


def test_mappings_are_never_used_twice(make_world: MakeWorld) -> None:
    world = make_world(g4=False).ready()
    numbers = set()
    for _ in range(3):
        for name in ("one", "two"):
            numbers.add(world.connect(name).session.mapping_number)
        world.start_manager()
        world.attach()
    assert len(numbers) == 6
