"""Slots that ranks write and read themselves: what the node grants, keeps, and gives to others only after a proof."""

import dataclasses

import pytest
from tests.unit.block_manager.rank_kit import Ranks, digests, ranks_of, replace_arena, same
from tests.unit.block_manager.world import OW, MakeWorld, World

from blockyard.core.arena_writers import PATIENCE_SECONDS, RankId
from blockyard.core.errors import RequestError
from blockyard.core.vocabulary import EngineId, ItemStatus, Tier
from blockyard.testing.blocks import chain
from blockyard.testing.fake_slots import payload_of

RUN = chain("a", 2)
OTHER = chain("b", 2)
SLOTS = 16
OWN_SHARE = 2
"""An eighth of G2."""


@pytest.fixture
def world(make_world: MakeWorld) -> World:
    return make_world(g2=SLOTS, g4=False).ready()


def overdue(world: World) -> list[int]:
    """Ranks for which the arena is to be given up."""
    return [writer.process.rank.rank for writer in world.core.ranks.overdue]


@pytest.fixture
def ranks(world: World) -> Ranks:
    return ranks_of(world)


# --- stores ----------------------------------------------------------------------------------------------------------
def test_a_row_is_registered_when_all_shards_are_committed_and_sealed(world: World, ranks: Ranks) -> None:
    granted = ranks.reserve(2)
    ranks.write(granted, RUN)
    ranks.commit(granted, RUN, shards=0b01)
    world.settle()
    assert world.held(Tier.G2) == set()
    ranks.commit(granted, RUN, shards=0b10)
    assert world.held(Tier.G2) == set(), "not before its bytes are certified"
    world.settle()
    assert world.held(Tier.G2) == world.held(Tier.G3) == {digest[:16] for digest in digests(RUN)}
    world.at_rest()


def test_an_engine_gets_its_share_and_all_engines_theirs(world: World, ranks: Ranks) -> None:
    assert len(ranks.reserve(100).slots) == OWN_SHARE
    assert ranks.reserve(1).slots == ()
    others = [ranks_of(world, name) for name in ("f", "g")]
    assert [len(other.reserve(100).slots) for other in others] == [2, 0], "a quarter of G2 in all"
    assert world.core.ranks.grants.open_slots == 4


def test_nothing_is_granted_while_a_rank_is_missing_or_the_worker_is_away(world: World, ranks: Ranks) -> None:
    ranks.lose(1)
    assert ranks.reserve(1).slots == ()
    ranks.attach(1)
    world.lose(OW)
    assert ranks.reserve(1).slots == ()
    world.attach(OW)
    world.settle()
    assert len(ranks.reserve(1).slots) == 1


def test_slots_are_not_granted_to_engines_whose_memory_the_node_copies(world: World, ranks: Ranks) -> None:
    plain = world.connect("plain")
    with pytest.raises(RequestError, match="whose ranks copy"):
        world.core.decide(lambda kept: kept.grants.reserve(plain.session, 1))


def test_a_row_that_is_there_or_on_its_way_gives_its_slot_back(world: World, ranks: Ranks) -> None:
    ranks.store(RUN)
    twice = [ranks.reserve(1), ranks.reserve(1)]
    for granted in twice:
        ranks.write(granted, OTHER.slice(0, 1))
        ranks.commit(granted, OTHER.slice(0, 1))
    assert len(world.core.flights) == 1
    world.settle()
    again = ranks.reserve(2)
    ranks.write(again, RUN)
    ranks.commit(again, RUN)
    world.settle()
    assert len(world.held(Tier.G2)) == 3
    world.at_rest()


def test_a_shard_that_was_not_written_under_the_grant_fails_the_row_alone(world: World, ranks: Ranks) -> None:
    granted = ranks.reserve(2)
    ranks.write(granted, RUN)
    world.tiers[Tier.G2].slots[granted.slots[0]].generation -= 1
    ranks.commit(granted, RUN)
    world.settle()
    assert world.held(Tier.G2) == {RUN.digest(1)[:16]}
    world.at_rest()


def test_a_refused_commit_changes_nothing(world: World, ranks: Ranks) -> None:
    granted = ranks.reserve(2)
    with pytest.raises(RequestError, match="no such shard"):
        ranks.commit(granted, RUN, shards=0b100)
    with pytest.raises(RequestError, match="one slot per row"):
        ranks.commit(granted, RUN.slice(0, 1))
    other = ranks_of(world, "f")
    with pytest.raises(RequestError, match="the grant has ended"):
        other.commit(granted, RUN)
    assert world.core.ranks.grants.open_slots == 2
    ranks.write(granted, RUN)
    ranks.commit(granted, RUN)
    world.settle()
    world.at_rest()


# --- ends of ranks ---------------------------------------------------------------------------------------------------
def test_slots_of_a_lost_rank_wait_for_all_ranks_of_its_engine(world: World, ranks: Ranks) -> None:
    granted = ranks.reserve(2)
    ranks.commit(granted, RUN, shards=0b01)
    ranks.lose(0)
    assert ranks.attachments == {}, "the other one is to attach anew as well"
    assert world.core.ranks.grants.quarantined_slots == 2
    ranks.die(0)
    assert world.core.ranks.grants.quarantined_slots == 2
    ranks.attach(0, started=200)
    assert ranks.reserve(1).slots == ()
    ranks.attach(1)
    assert world.core.ranks.grants.quarantined_slots == 0
    with pytest.raises(RequestError, match="the grant has ended"):
        ranks.commit(granted, RUN, shards=0b10)
    world.settle()
    assert world.held(Tier.G2) == set(), "a row with one shard is none"
    world.at_rest()


def test_a_session_that_ends_leaves_its_slots_to_the_proof_about_its_ranks(world: World, ranks: Ranks) -> None:
    ranks.reserve(2)
    ranks.end_session()
    assert world.core.ranks.grants.quarantined_slots == 2
    ranks.die(0)
    ranks.die(1)
    assert world.core.ranks.grants.quarantined_slots == len(world.core.ranks.writers) == 0
    world.at_rest()


def test_a_rank_that_holds_nothing_is_forgotten_with_its_connection(world: World, ranks: Ranks) -> None:
    ranks.store(RUN)
    ranks.lose(0)
    assert len(world.core.ranks.writers) == 1
    assert world.core.ranks.overdue == ()


def test_a_writer_that_neither_attaches_nor_dies_is_overdue_and_only_then(world: World, ranks: Ranks) -> None:
    ranks.reserve(1)
    ranks.lose(0)
    world.tick(PATIENCE_SECONDS / 2)
    assert overdue(world) == []
    ranks.attach(1)
    world.tick(PATIENCE_SECONDS / 2)
    assert overdue(world) == [0]
    replace_arena(world)
    assert overdue(world) == []
    assert len(world.core.ranks.writers) == world.core.ranks.grants.quarantined_slots == 0
    world.at_rest()


def test_others_are_granted_slots_and_load_while_a_writer_stands_still(world: World, ranks: Ranks) -> None:
    frozen = ranks.reserve(2)
    ranks.end_session()
    other = ranks_of(world, "f")
    for round_ in range(SLOTS):
        run = chain(f"round {round_}", 2)
        granted = other.reserve(2)
        assert not set(granted.slots) & set(frozen.slots)
        other.write(granted, run)
        ranks.write(frozen, RUN)  # it goes on at any moment
        other.commit(granted, run)
        world.settle()
        load = other.stage(run)
        world.settle()
        assert same([other.seen(slot) for slot, _ in other.places(load)], run)
        other.close(load)
    assert world.core.ranks.grants.quarantined_slots == 2


def test_nothing_is_granted_before_a_writer_of_an_earlier_life_is_settled(world: World, ranks: Ranks) -> None:
    process = ranks.process(0)
    world.start_manager()
    world.core.decide(lambda kept: kept.inherit(process))
    world.ready()
    assert not world.core.tables.grants_open
    world.tick(PATIENCE_SECONDS)
    assert [writer.process for writer in world.core.ranks.overdue] == [process]
    world.core.decide(lambda kept: kept.dead(process))
    assert not world.core.tables.grants_open, "not before the headers were listed again"
    world.settle()
    assert world.core.tables.grants_open


# --- staged loads ----------------------------------------------------------------------------------------------------
def test_rows_of_a_staged_load_stay_pinned_until_it_is_closed(world: World, ranks: Ranks) -> None:
    ranks.store(RUN)
    load = ranks.stage(RUN)
    world.settle()
    assert world.outcomes[load].status == (ItemStatus.OK, ItemStatus.OK)
    places = ranks.places(load)
    world.connect("filler").compute(chain("c", SLOTS))
    world.settle()
    assert same([ranks.seen(slot) for slot, _ in places], RUN)
    assert (len(world.core.ranks.staged), world.core.ranks.staged.rows) == (1, 2)
    ranks.close(load)
    ranks.close(load)
    assert world.core.ranks.staged.rows == 0
    world.at_rest()


def test_only_its_engine_closes_a_staged_load(world: World, ranks: Ranks) -> None:
    ranks.store(RUN)
    load = ranks.stage(RUN)
    world.settle()
    ranks_of(world, "f").close(load)
    assert world.core.ranks.staged.rows == 2


@pytest.mark.parametrize("first_gone", [0, 1])
def test_pins_of_a_staged_load_outlive_its_session_until_each_rank_is_proven_to_read_no_more(
    world: World, ranks: Ranks, first_gone: int
) -> None:
    ranks.store(RUN)
    load = ranks.stage(RUN)
    world.settle()
    places = ranks.places(load)
    ranks.end_session()
    assert ranks.attachments == {}
    for gone in (first_gone, 1 - first_gone):
        world.connect("filler").compute(chain(f"c{gone}", SLOTS))
        world.settle()
        assert same([ranks.seen(slot) for slot, _ in places], RUN), "a frozen rank still finds the right rows"
        ranks.die(gone)
    assert world.core.ranks.staged.rows == 0
    world.at_rest()


def test_a_damaged_row_is_no_part_of_a_staged_load(world: World, ranks: Ranks) -> None:
    ranks.store(RUN)
    for block in world.core.tables.pool(Tier.G3).registered():
        world.tiers[Tier.G3].slots[block.block].damage()
    slots = world.tiers[Tier.G2].slots
    next(slot for slot in slots if slot.payload == payload_of(RUN.digest(1))).damage()
    load = ranks.stage(RUN)
    world.settle()
    assert world.outcomes[load].status[0] is ItemStatus.OK
    assert world.outcomes[load].status[1] is not ItemStatus.OK
    assert world.held(Tier.G2) == {RUN.digest(0)[:16]}
    ranks.close(load)
    world.settle()
    world.at_rest()


@pytest.mark.parametrize("comes_back", [False, True])
def test_a_rank_that_is_away_when_its_load_is_checked_hears_of_no_slot(
    world: World, ranks: Ranks, comes_back: bool
) -> None:
    ranks.store(RUN)
    load = ranks.stage(RUN)
    world.submit(OW)
    ranks.lose(0)
    if comes_back:
        ranks.attach(0)
    world.settle()
    found = ItemStatus.OK if comes_back else ItemStatus.UNKNOWN
    assert world.outcomes[load].status == (found, found)
    assert world.core.ranks.staged.rows == (2 if comes_back else 0)
    assert len(ranks.places(load)) == (2 if comes_back else 0)
    ranks.end_session()
    ranks.die(0)
    ranks.die(1)
    world.at_rest()


def test_a_load_that_its_engine_gave_up_pins_nothing(world: World, ranks: Ranks) -> None:
    ranks.store(RUN)
    load = ranks.stage(RUN)
    world.submit(OW)
    ranks.close(load)
    world.settle()
    assert ItemStatus.OK not in world.outcomes[load].status
    world.at_rest()


def test_the_metrics_say_what_ranks_hold_and_who_may_write(world: World, ranks: Ranks) -> None:
    def shown(state: str) -> float:
        world.core.update_gauges()
        return world.counter("rank_blocks", state=state)

    ranks.store(RUN)
    ranks.stage(RUN)
    world.settle()
    ranks.reserve(2)
    assert (shown("open"), shown("quarantined"), shown("staged")) == (2, 0, 2)
    assert world.counter("arena_writers", state="attached") == 2
    ranks.end_session()
    assert (shown("open"), shown("quarantined"), shown("staged")) == (0, 2, 2)
    assert world.counter("arena_writers", state="detached") == 2
    replace_arena(world)
    assert (shown("open"), shown("quarantined"), shown("staged")) == (0, 0, 0)
    assert world.counter("arena_writers", state="detached") == 0
    assert world.counter("arenas_given_up_total") == 1


# --- another arena ---------------------------------------------------------------------------------------------------
def test_another_arena_ends_grants_pins_and_writers_and_starts_empty(world: World, ranks: Ranks) -> None:
    ranks.store(RUN)
    load = ranks.stage(RUN)
    world.settle()
    granted = ranks.reserve(2)
    replace_arena(world)
    assert world.held(Tier.G2) == set()
    assert (world.core.ranks.staged.rows, world.core.ranks.grants.open_slots) == (0, 0)
    assert ranks.reserve(1).slots == (), "before its ranks have the new one"
    with pytest.raises(RequestError, match="the grant has ended"):
        ranks.commit(granted, OTHER)
    ranks.close(load)
    ranks.attachments.clear()
    for rank in range(2):
        ranks.attach(rank)
    ranks.store(OTHER)
    again = ranks.stage(RUN)
    world.settle()
    assert same([ranks.seen(slot) for slot, _ in ranks.places(again)], RUN), "from the disk"
    ranks.close(again)
    world.at_rest()


def test_rows_that_were_being_sealed_in_the_old_arena_are_not_found_in_the_new_one(world: World, ranks: Ranks) -> None:
    granted = ranks.reserve(2)
    ranks.write(granted, RUN)
    ranks.commit(granted, RUN)
    world.submit(OW)
    replace_arena(world)
    assert world.held(Tier.G2) == set()
    world.at_rest()


def test_stores_of_other_engines_under_way_do_not_fail_because_of_another_arena(world: World, ranks: Ranks) -> None:
    plain = world.connect("plain")
    plain.compute(OTHER)
    world.submit(OW)
    replace_arena(world)
    plain.compute(chain("c", 2), first_block=4)
    world.settle()
    assert {digest[:16] for digest in digests(chain("c", 2))} <= world.held(Tier.G2)
    world.at_rest()


def test_writers_are_told_apart_by_engine_rank_and_start(ranks: Ranks) -> None:
    process = ranks.process(0)
    assert process != dataclasses.replace(process, started=process.started + 1)
    assert process.rank == RankId(EngineId("e"), 0, 0)
