"""Whatever a caller gives to a pool, its handles, its registry or a hint: a typed error, and nothing changed."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from tests.unit.core.state_of import pool_state

from blockyard.core.block_facts import AdoptedBlock, StagedColumns
from blockyard.core.clear_scope import ClearScope
from blockyard.core.errors import BlockNotFoundError, BlockyardError
from blockyard.core.eviction.retention import Retention
from blockyard.core.handles import CompleteBlocks, ImmutableBlocks, MutableBlocks
from blockyard.core.name_columns import NameColumns
from blockyard.core.pool import BlockPool
from blockyard.core.vocabulary import ROOT_KEY, BlockId, Generation, GroupId, Tier
from blockyard.testing.blocks import IDENTITY, chain, columns, key, make_pool

FREE = BlockId(7)


@dataclass(frozen=True)
class Scene:
    """A pool of eight rows of two shards: two inactive, one held, two being written, one complete, two free."""

    pool: BlockPool
    held: ImmutableBlocks
    mutable: MutableBlocks
    complete: CompleteBlocks


def whole(pool: BlockPool, name: str, blocks: int) -> CompleteBlocks:
    mutable = pool.allocate(blocks).blocks
    mutable.written(0)
    mutable.written(1)
    return mutable.stage(columns(chain(name, blocks)))


@pytest.fixture
def scene() -> Iterator[Scene]:
    pool = make_pool(8, shards=2)
    whole(pool, "inactive", 2).register().blocks.release()
    held = whole(pool, "held", 1).register().blocks
    mutable = pool.allocate(2).blocks
    mutable.written(0, [0])
    complete = whole(pool, "complete", 1)
    pool.registry.attach(key("held"), "one of many")
    pool.hint([key("inactive")], Retention(5))
    with held, mutable, complete:
        yield Scene(pool, held, mutable, complete)


def record(**fields: Any) -> AdoptedBlock:
    """A stored block; row 6 holds nothing."""
    names = {"block": 6, "key": key("z"), "parent": ROOT_KEY, "position": 0, "identity": IDENTITY}
    return AdoptedBlock(**{"generation": 3, **names, **fields})


def names(**fields: Any) -> StagedColumns:
    """Names of two blocks."""
    keys = {"keys": [key("y"), key("z")], "parents": [ROOT_KEY, ROOT_KEY], "positions": [0, 0]}
    return StagedColumns(**{**keys, "identity": IDENTITY, **fields})


NO_COUNTS: dict[str, Any] = {
    "negative": -1,
    "true": True,
    "float": 1.5,
    "nan": math.nan,
    "infinity": math.inf,
    "text": "1",
    "none": None,
}
NO_ROWS: dict[str, Any] = {"too large": 8, **NO_COUNTS}
NO_U64: dict[str, Any] = {"too large": 2**64, **NO_COUNTS}
NO_KEYS: dict[str, Any] = {"empty": b"", "short": b"x", "long": bytes(17)}

Act = Callable[[Scene, Any], object]
TAKES_A_COUNT: dict[str, Act] = {
    "allocate": lambda scene, count: scene.pool.allocate(count),
    "evict": lambda scene, count: scene.pool.evict(count),
    "sweep": lambda scene, count: scene.pool.sweep(count),
    "capacity": lambda scene, count: make_pool(count),
    "shards": lambda scene, count: make_pool(2, shards=count),
    "priority": lambda scene, count: scene.pool.hint([key("held")], Retention(count)),
    "shard": lambda scene, count: scene.mutable.written(count),
    "index of written": lambda scene, count: scene.mutable.written(1, [count]),
    "index of staged": lambda scene, count: scene.mutable.stage(names(), [count]),
    "index of split": lambda scene, count: scene.held.split([count]),
    "group of names": lambda scene, count: names(group=count),
    "position of names": lambda scene, count: names(positions=[0, count]),
    "group of a stored block": lambda scene, count: scene.pool.adopt([record(group=count)]),
    "position of a stored block": lambda scene, count: scene.pool.adopt([record(position=count)]),
}
TAKES_A_ROW: dict[str, Act] = {
    "take": lambda scene, row: scene.pool.take([FREE, row]),
    "facts": lambda scene, row: scene.pool.facts([row]),
    "registered_in": lambda scene, row: scene.pool.registered_in([row]),
    "generation": lambda scene, row: scene.pool.generation(row),
    "state": lambda scene, row: scene.pool.state(row),
    "is_doomed": lambda scene, row: scene.pool.is_doomed(row),
    "relatives": lambda scene, row: scene.pool.relatives(row),
    "adopt": lambda scene, row: scene.pool.adopt([record(), record(block=row, key=key("y"))]),
    "set_generation": lambda scene, row: scene.pool.set_generation(row, Generation(9)),
    "remember_generation": lambda scene, row: scene.pool.remember_generation(row, Generation(9)),
    "condemn": lambda scene, row: scene.pool.condemn(row, Generation(1)),
    "cut": lambda scene, row: scene.pool.cut(elsewhere=[row]),
    "cut of a part": lambda scene, row: scene.pool.cut(ClearScope(IDENTITY), elsewhere=[row]),
}
TAKES_A_GENERATION: dict[str, Act] = {
    "adopt": lambda scene, value: scene.pool.adopt([record(generation=value)]),
    "set_generation": lambda scene, value: scene.pool.set_generation(FREE, value),
    "remember_generation": lambda scene, value: scene.pool.remember_generation(scene.held.ids[0], value),
}
TAKES_A_KEY: dict[str, Act] = {
    "name": lambda scene, value: names(keys=[key("y"), value]),
    "parent": lambda scene, value: names(parents=[ROOT_KEY, value]),
    "tenant": lambda scene, value: names(tenant=value),
    "identity": lambda scene, value: names(identity=value),
    "key of a stored block": lambda scene, value: scene.pool.adopt([record(), record(block=7, key=value)]),
    "parent of a stored block": lambda scene, value: scene.pool.adopt([record(parent=value)]),
    "identity of a stored block": lambda scene, value: scene.pool.adopt([record(identity=value)]),
    "pin_all": lambda scene, value: scene.pool.pin_all([key("held"), value]),
    "attach": lambda scene, value: scene.pool.registry.attach(value, 1),
}
TAKES_A_TIME: dict[str, Act] = {
    "hint": lambda scene, value: scene.pool.hint([key("held")], Retention(5, value)),
}
BAD_TIMES: dict[str, Any] = {
    "zero": 0,
    **{name: value for name, value in NO_COUNTS.items() if name not in ("float", "none")},
}
REFUSED: dict[str, Act] = {
    "more blocks than there are": lambda scene, _: scene.pool.allocate(9),
    "more free blocks than there are": lambda scene, _: scene.pool.allocate(4, evict=False),
    "a row taken twice": lambda scene, _: scene.pool.take([FREE, FREE]),
    "a row that is held": lambda scene, _: scene.pool.take([FREE, scene.held.ids[0]]),
    "a stored block in a held row": lambda scene, _: scene.pool.adopt([record(), record(block=scene.held.ids[0])]),
    "two stored blocks in one row": lambda scene, _: scene.pool.adopt([record(), record(key=key("y"))]),
    "a free row": lambda scene, _: scene.pool.facts([scene.held.ids[0], FREE]),
    "a generation of a held row": lambda scene, _: scene.pool.set_generation(scene.held.ids[0], Generation(9)),
    "a later grant of a free row": lambda scene, _: scene.pool.remember_generation(FREE, Generation(9)),
    "a pool in use": lambda scene, _: scene.pool.reset_inactive(),
    "a key that is not there": lambda scene, _: scene.pool.pin_all([key("held"), key("nowhere")]),
    "an index named twice": lambda scene, _: scene.mutable.written(0, [0, 0]),
    "a row staged twice": lambda scene, _: scene.mutable.stage(names(), [0, 0]),
    "a row that is not written": lambda scene, _: scene.mutable.stage(names()),
    "names for other rows": lambda scene, _: scene.mutable.stage(columns(chain("z", 3))),
    "columns of several lengths": lambda scene, _: names(positions=[0]),
    "a position beyond all chains": lambda scene, _: names(positions=range(2**32 - 1, 2**32 + 1)),
    "one value in the place of many": lambda scene, _: scene.pool.registry.attach_unique(key("held"), "one"),
    "a second pool of a tier": lambda scene, _: make_pool(1, registry=scene.pool.registry),
    "a tier that is there": lambda scene, _: scene.pool.registry.enter(Tier.G2, NameColumns(1)),
}
KINDS = (
    (TAKES_A_COUNT, NO_COUNTS),
    (TAKES_A_ROW, NO_ROWS),
    (TAKES_A_GENERATION, NO_U64),
    (TAKES_A_KEY, NO_KEYS),
    (TAKES_A_TIME, BAD_TIMES),
    (REFUSED, {"": None}),
)
CASES = [
    pytest.param(act, value, id=f"{verb}: {name}")
    for acts, values in KINDS
    for verb, act in acts.items()
    for name, value in values.items()
]


@pytest.mark.parametrize(("act", "value"), CASES)
def test_what_cannot_be_done_is_refused_with_fields_and_changes_nothing(scene: Scene, act: Act, value: object) -> None:
    before = pool_state(scene.pool)
    written = (scene.mutable._of_all, dict(scene.mutable._of_some))
    with pytest.raises(BlockyardError) as caught:
        act(scene, value)
    assert caught.value.fields
    assert pool_state(scene.pool) == before
    assert (scene.mutable._of_all, scene.mutable._of_some) == written
    assert (len(scene.held), len(scene.mutable), len(scene.complete)) == (1, 2, 1)
    scene.pool.check_integrity()


@pytest.mark.parametrize("value", NO_KEYS.values(), ids=NO_KEYS)
@pytest.mark.parametrize("verb", ["match", "match_scattered", "scan", "find", "hint", "end_session", "put_first"])
def test_keys_that_name_nothing_are_not_found(scene: Scene, verb: str, value: Any) -> None:
    before = pool_state(scene.pool)
    found: Any = getattr(scene.pool, verb)(*([[value], Retention(5)] if verb == "hint" else [[value]]))
    assert found in (0, None, [None]) or not len(getattr(found, "blocks", found))
    assert pool_state(scene.pool) == before


@pytest.mark.parametrize("value", [[1], 5], ids=["list", "number"])
@pytest.mark.parametrize(
    "verb", ["match", "match_scattered", "scan", "pin_all", "find", "hint", "end_session", "put_first"]
)
@pytest.mark.parametrize("swept", [False, True])
def test_lookups_of_what_is_no_key_at_all_change_nothing(scene: Scene, verb: str, value: Any, swept: bool) -> None:
    """Keys are not looked at one by one, which would cost more than the lookup: what has no hash is a ``TypeError``."""
    if swept:
        scene.pool.cut()
    call = getattr(scene.pool, verb)
    arguments = (Retention(5),) if verb == "hint" else ()
    for keys in ([key("inactive"), value], [*chain("inactive", 2), *[value] * 7]):
        before = pool_state(scene.pool)
        try:
            found = call(keys, *arguments)
        except (TypeError, BlockNotFoundError):
            assert pool_state(scene.pool) == before
        else:
            assert value == 5, "a number is a key of nothing"
            blocks = getattr(found, "blocks", found)
            if isinstance(blocks, ImmutableBlocks):
                blocks.release()


def test_a_group_that_nobody_has_is_empty(scene: Scene) -> None:
    assert len(scene.pool.match([key("held")], GroupId(-1))) == 0
    assert scene.pool.registry.holds(Tier.G4, [key("held")], GroupId(0)) == [False]
