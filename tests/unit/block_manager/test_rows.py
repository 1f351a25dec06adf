"""Rows of several pages, models with several groups, and tickets of stores."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.block_manager.world import BLOCK_TOKENS, MODEL, OW, Engine, MakeWorld, World

from blockyard.core.block_name import names_of
from blockyard.core.chain_run import ChainRun
from blockyard.core.errors import RequestError
from blockyard.core.kv_groups import NO_PAGE
from blockyard.core.vocabulary import Availability, EngineBlockId, GroupId, Guard, ItemStatus, LoadId, RequestId, Tier
from blockyard.testing.blocks import chain
from blockyard.testing.fake_slots import parts_of, payload_of
from blockyard.wire.connector_channel import Group
from blockyard_block_manager import offloader
from blockyard_block_manager.lookups import local_sources

RUN = chain("a", 3)
FULL, WINDOW = GroupId(0), GroupId(1)
QUARTERS = {
    "groups": (Group(engine_block_tokens=BLOCK_TOKENS // 4),),
    "identity": replace(MODEL, engine_block_tokens=BLOCK_TOKENS // 4),
}
"""Four pages per row."""
TWO_GROUPS = {
    "groups": (
        Group(engine_block_tokens=BLOCK_TOKENS // 2),
        Group(group=1, kind="sliding_window", engine_block_tokens=BLOCK_TOKENS, window_tokens=2 * BLOCK_TOKENS),
    ),
    "identity": replace(
        MODEL,
        engine_block_tokens=BLOCK_TOKENS // 2,
        group_spec=f"full@{BLOCK_TOKENS // 2},sliding_window:{2 * BLOCK_TOKENS}@{BLOCK_TOKENS}",
    ),
}


def connected(make_world: MakeWorld, changes: dict[str, Any], **profile: Any) -> Engine:
    world: World = make_world(g4=False, profile=profile).ready()
    return world.connect("one", **changes)


def load(engine: Engine, run: ChainRun, pages: list[int], group: GroupId = FULL, request: str = "r") -> LoadId:
    ids = [EngineBlockId(page) for page in pages]
    guards = [Guard(0 if page == NO_PAGE else engine.memory.guards[page]) for page in pages]
    world = engine.world
    return world.core.open_load(
        engine.session,
        RequestId(request),
        engine.scope(group),
        names_of(run),
        ids,
        guards,
        10_000,
        world.finished,
    )


class Told:
    """Counts how often a ticket was settled."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self) -> None:
        self.times += 1


# --- pages --------------------------------------------------------------------------------------------------------
def test_a_row_is_stored_and_loaded_with_all_its_pages(make_world: MakeWorld) -> None:
    engine = connected(make_world, QUARTERS)
    world = engine.world
    assert engine.compute(RUN) == list(range(12))
    world.settle()
    assert len(world.held(Tier.G2)) == 3
    opened = load(engine, RUN, list(range(20, 32)))
    world.settle()
    assert world.outcomes[opened].status == (ItemStatus.OK,) * 3
    for index in range(3):
        assert engine.memory.row(range(20 + 4 * index, 24 + 4 * index)) == payload_of(RUN.digest(index))
    world.at_rest()


def test_pages_that_the_engine_has_no_use_for_are_left_alone(make_world: MakeWorld) -> None:
    engine = connected(make_world, QUARTERS)
    world = engine.world
    engine.compute(RUN)
    world.settle()
    opened = load(engine, RUN, [NO_PAGE, NO_PAGE, *range(20, 26), *[NO_PAGE] * 4])
    assert engine.session.load_targets == set(range(20, 26))
    world.settle()
    assert world.outcomes[opened].status == (ItemStatus.OK,) * 3
    assert sorted(engine.memory.written) == list(range(20, 26))
    assert engine.memory.blocks[20:22] == parts_of(payload_of(RUN.digest(0)), 4)[2:]
    assert engine.session.load_targets == set()


def test_a_store_has_no_more_pages_than_a_job_may_name(make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offloader, "MAX_PAGES_PER_CALL", 8)
    engine = connected(make_world, QUARTERS)
    engine.compute(RUN)
    assert engine.world.submit(OW) == 2, "two rows of four pages, and the third"
    engine.world.settle()
    assert len(engine.world.held(Tier.G2)) == 3
    engine.world.at_rest()


def test_a_row_of_which_one_page_was_reused_stores_nothing(make_world: MakeWorld) -> None:
    engine = connected(make_world, QUARTERS)
    engine.compute(RUN)
    engine.memory.guards[6] += 1
    engine.world.settle()
    assert engine.world.held(Tier.G2) == {bytes(RUN.key(0)), bytes(RUN.key(2))}
    engine.world.at_rest()


def test_deregistering_a_page_ends_its_row(make_world: MakeWorld) -> None:
    engine = connected(make_world, QUARTERS)
    world = engine.world
    engine.compute(RUN)
    world.core.deregister(engine.session, [EngineBlockId(6)])
    assert len(engine.session.g1) == 2
    assert world.announced(Tier.G1) == {bytes(RUN.key(0)), bytes(RUN.key(2))}
    world.check()


def test_a_row_over_pages_of_another_one_ends_that_one(make_world: MakeWorld) -> None:
    engine = connected(make_world, QUARTERS)
    world = engine.world
    engine.compute(RUN)
    other = chain("b", 1)
    engine.compute(other, first_block=6)
    assert world.announced(Tier.G1) == {bytes(RUN.key(0)), bytes(other.key(0))}
    world.settle()
    world.check()


def test_a_load_into_a_page_of_a_row_is_refused(make_world: MakeWorld) -> None:
    engine = connected(make_world, QUARTERS)
    engine.compute(RUN)
    with pytest.raises(RequestError, match="block=5"):
        load(engine, chain("b", 1), [20, 21, 5, NO_PAGE])
    assert engine.session.load_targets == set()


def test_what_an_engine_holds_is_offered_in_parts(make_world: MakeWorld) -> None:
    engine = connected(make_world, {}, listing_part=2)
    world = engine.world
    engine.compute(chain("a", 5))
    world.settle()
    world.clear(Tier.G2)
    world.settle()
    assert world.held(Tier.G2) == set()
    world.core.ranks_attached(engine.session, 0)
    world.core.ranks_attached(engine.session, 1)
    world.map_engines()
    assert sum(opened.order.count for opened in world.core.desk.open_orders()) < 5, "nobody waits for all of it"
    world.core.deregister(engine.session, [EngineBlockId(4)])
    world.settle()
    assert world.held(Tier.G2) == {bytes(key) for key in chain("a", 4)}
    world.at_rest()


# --- groups -------------------------------------------------------------------------------------------------------
def both_groups(make_world: MakeWorld) -> Engine:
    """An engine that holds the full rows of a run, and the window's last two."""
    engine = connected(make_world, TWO_GROUPS)
    world = engine.world
    world.core.register(engine.session, engine.fill(RUN, first_block=0, group=0))
    world.core.register(engine.session, engine.fill(RUN, first_block=30, group=1)[1:])
    world.settle()
    return engine


def test_groups_of_one_key_are_different_blocks(make_world: MakeWorld) -> None:
    engine = both_groups(make_world)
    world = engine.world
    found = [local_sources(world.core, engine.scope(group), names_of(RUN)) for group in (FULL, WINDOW)]
    assert found == [[Availability.G2] * 3, [Availability.MISS, Availability.G2, Availability.G2]]
    full = load(engine, RUN, list(range(10, 16)), FULL)
    window = load(engine, RUN, list(range(40, 43)), WINDOW, request="w")
    world.settle()
    assert world.outcomes[full].status == (ItemStatus.OK,) * 3
    assert world.outcomes[window].status == (ItemStatus.NOT_FOUND, ItemStatus.OK, ItemStatus.OK)
    assert engine.memory.blocks[42] == payload_of(RUN.digest(2))
    assert engine.memory.row([14, 15]) == payload_of(RUN.digest(2))
    world.at_rest()


def test_a_lease_holds_what_is_there_in_each_group_and_counts_what_all_have(make_world: MakeWorld) -> None:
    engine = both_groups(make_world)
    world, request = engine.world, RequestId("r")
    assert world.core.reserve(engine.session, request, names_of(RUN), (FULL, WINDOW), 5_000) == 0
    assert world.core.tables.pool(Tier.G2).held == 5
    tail = names_of(RUN, (1, 2))
    assert world.core.reserve(engine.session, request, tail, (FULL, WINDOW), 5_000) == 2
    assert world.core.tables.pool(Tier.G2).held == 4
    assert world.core.reserve(engine.session, request, tail, (FULL,), 5_000) == 2
    assert world.core.tables.pool(Tier.G2).held == 2
    world.core.release(engine.session, request)
    world.at_rest()


def test_a_load_of_one_group_leaves_the_lease_of_the_others(make_world: MakeWorld) -> None:
    engine = both_groups(make_world)
    world, request = engine.world, RequestId("r")
    world.core.reserve(engine.session, request, names_of(RUN), (FULL, WINDOW), 5_000)
    load(engine, RUN, list(range(10, 16)), FULL)
    world.settle()
    assert world.core.tables.pool(Tier.G2).held == 2
    world.core.release(engine.session, request)
    world.at_rest()


def test_a_session_that_ends_takes_its_leases_of_all_groups_along(make_world: MakeWorld) -> None:
    engine = both_groups(make_world)
    world = engine.world
    world.core.reserve(engine.session, RequestId("r/0"), names_of(RUN), (FULL, WINDOW), 5_000)
    world.core.close_session(engine.session)
    world.settle()
    world.at_rest()


# --- tickets ------------------------------------------------------------------------------------------------------
def register(engine: Engine, told: Told, run: ChainRun = RUN, first_block: int = 0) -> None:
    world = engine.world
    world.core.register(engine.session, engine.fill(run, first_block), on_stores_settled=told)


def test_a_ticket_is_settled_when_the_last_store_of_its_rows_has_ended(make_world: MakeWorld) -> None:
    engine = connected(make_world, {}, max_items=2)
    told, world = Told(), engine.world
    register(engine, told)
    world.submit(OW)
    first, second = world.workers[OW].start(), world.workers[OW].start()
    assert first is not None
    assert second is not None
    world.workers[OW].finish(first)
    world.deliver(OW)
    assert told.times == 0
    world.workers[OW].finish(second)
    world.deliver(OW)
    assert told.times == 1
    world.settle()
    world.at_rest()


def test_a_ticket_of_rows_that_nobody_wants_is_settled_at_once(make_world: MakeWorld) -> None:
    engine = connected(make_world, {})
    told = Told()
    engine.compute(RUN)
    engine.world.settle()
    register(engine, told, first_block=8)
    assert told.times == 1


def test_a_second_ticket_waits_for_the_store_that_the_first_one_began(make_world: MakeWorld) -> None:
    engine = connected(make_world, {})
    world, first, second, other = engine.world, Told(), Told(), Told()
    rows = engine.fill(RUN)
    world.core.register(engine.session, rows, on_stores_settled=first)
    world.core.register(engine.session, rows, on_stores_settled=second)
    register(engine, other, first_block=8)
    assert (first.times, second.times, other.times) == (0, 0, 1), "the same content elsewhere in memory is not read"
    world.settle()
    assert (first.times, second.times, other.times) == (1, 1, 1)


def test_a_second_ticket_waits_for_the_store_of_its_row_that_waits_itself(make_world: MakeWorld) -> None:
    world: World = make_world(g4=False).ready()
    engine, other = world.connect("one"), world.connect("two")
    first, second = Told(), Told()
    world.core.ranks_attached(engine.session, 0)  # stores of this engine wait
    rows = engine.fill(RUN)
    world.core.register(engine.session, rows, on_stores_settled=first)
    other.compute(RUN)
    world.submit(OW)
    world.core.register(engine.session, rows, on_stores_settled=second)
    assert (first.times, second.times) == (0, 0), "the store of the other engine may still fail"
    world.core.ranks_attached(engine.session, 1)
    world.map_engines()
    world.settle()
    assert (first.times, second.times) == (1, 1)
    world.at_rest()


def test_a_store_may_end_after_a_later_one_of_the_same_memory(make_world: MakeWorld) -> None:
    engine = connected(make_world, {})
    first, second, world = Told(), Told(), engine.world
    register(engine, first)
    world.submit(OW)
    job = world.workers[OW].start()
    assert job is not None
    world.core.deregister(engine.session, [EngineBlockId(page) for page in range(3)])
    register(engine, second, chain("b", 3))
    world.lose(OW)  # ends what was not handed over, and nothing else
    assert (first.times, second.times) == (0, 1)
    world.core.reset(engine.session)
    world.workers[OW].finish(job)
    world.attach(OW)
    world.settle()
    assert (first.times, second.times) == (1, 1)
    world.at_rest()


def _cleared(engine: Engine) -> None:
    engine.world.clear(Tier.G2)


def _rank_lost(engine: Engine) -> None:
    engine.world.core.ranks_attached(engine.session, 0)


def _gone(engine: Engine) -> None:
    engine.world.core.close_session(engine.session)


def _reused(engine: Engine) -> None:
    engine.memory.guards[:3] = [100] * 3


def _worker_lost(engine: Engine) -> None:
    engine.world.restart(OW)
    engine.world.attach(OW)
    engine.world.map_engines()


@pytest.mark.parametrize("happens", [_cleared, _rank_lost, _gone, _reused, _worker_lost])
def test_a_ticket_is_settled_once_whatever_becomes_of_the_stores_under_way(
    make_world: MakeWorld, happens: Callable[[Engine], None]
) -> None:
    engine = connected(make_world, {})
    told, world = Told(), engine.world
    register(engine, told)
    world.submit(OW)
    world.workers[OW].start()
    happens(engine)
    world.tick()
    world.settle()
    world.map_engines()
    world.settle()
    assert told.times == 1
    world.at_rest()


@pytest.mark.parametrize("happens", [_cleared, _rank_lost, _gone])
def test_a_ticket_is_settled_when_stores_that_wait_are_given_up(
    make_world: MakeWorld, happens: Callable[[Engine], None]
) -> None:
    world: World = make_world(g4=False, g2=4, profile={"lease_share": 1.0}).ready()
    engine, told = world.connect("one"), Told()
    engine.compute(chain("b", 4))
    world.settle()
    other = world.connect("two")
    world.core.reserve(other.session, RequestId("r"), names_of(chain("b", 4)), (FULL,), 5_000)
    register(engine, told, first_block=8)
    world.submit(OW)
    assert told.times == 0
    happens(engine)
    assert told.times == 1
    world.core.release(other.session, RequestId("r"))
    world.settle()
    assert told.times == 1


def test_a_row_that_is_dropped_from_the_backlog_settles_its_ticket(make_world: MakeWorld) -> None:
    engine = connected(make_world, {}, backlog_blocks=2)
    told, later, world = Told(), Told(), engine.world
    world.lose(OW)
    register(engine, told, chain("a", 2))
    register(engine, later, chain("b", 2), first_block=8)
    assert (told.times, later.times) == (1, 0)
    register(engine, Told(), chain("c", 2), first_block=8)
    assert later.times == 1, "its memory holds something else now"
