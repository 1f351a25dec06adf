"""Offload and onboard behaviours of NVIDIA Dynamo KVBM, its numbers 51 to 58, as they hold here."""

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.block_manager.world import BLOCK_TOKENS, MODEL, OW, RT, Engine, MakeWorld, World

from blockyard.core.chain_run import ChainRun
from blockyard.core.errors import ConfigurationError
from blockyard.core.offload_plan import OffloadRules
from blockyard.core.use_counts import DECAY_SECONDS
from blockyard.core.vocabulary import EngineBlockId, ItemStatus, JobKind, LoadId, RequestId, Tier
from blockyard.runtime.settings import G3Section, NodeSettings
from blockyard.testing.blocks import chain
from blockyard.testing.fake_slots import payload_of
from blockyard.wire.connector_channel import Group

OK = ItemStatus.OK
RUN = chain("a", 4)


def keys(run: ChainRun) -> set[bytes]:
    return {bytes(key) for key in run}


def loaded(world: World, load: LoadId) -> tuple[list[ItemStatus], list[Tier | None]]:
    outcome = world.outcomes[load]
    return list(outcome.status), list(outcome.sources)


def lose(world: World, tier: Tier, run: ChainRun, *indexes: int) -> None:
    """Blocks leave one tier, as if they had been evicted there."""
    pool = world.core.tables.pool(tier)
    rows = [row for row in pool.find([run.key(index) for index in indexes]) if row is not None]
    for slots in world.core.tables.drop(tier, pool.facts(rows)):
        world.core._freer.free(tier, slots)
    world.settle()


def in_every_tier(make_world: MakeWorld) -> tuple[World, Engine]:
    """A node that once computed ``RUN``, and a second engine that has nothing."""
    world: World = make_world().ready()
    world.connect("one").compute(RUN)
    world.settle()
    world.core.reset(world.engines["one"].session)
    return world, world.connect("two")


# --- 51 ---------------------------------------------------------------------------------------------------------------
def test_51_a_full_target_gets_nothing_and_the_source_stays(make_world: MakeWorld) -> None:
    world: World = make_world(g2=8, g3=4, g4=False, profile={"max_items": 4}).ready()
    one = world.connect("one")
    one.compute(RUN)
    world.settle()
    leases = world.connect("two").session
    pool = world.core.tables.pool(Tier.G3)
    with pool.pin_all(list(RUN)):
        one.compute(chain("b", 4), first_block=10)
        world.settle()
        assert world.held(Tier.G3) == keys(RUN)
        assert world.held(Tier.G2) == keys(RUN) | keys(chain("b", 4))
    world.core.release(leases, RequestId("r"))  # any later section goes on with what waits
    world.settle()
    assert world.held(Tier.G3) == keys(chain("b", 4)), "here it waits for room and is not given up"
    world.at_rest()


def test_51_what_the_target_holds_is_not_transferred_again(make_world: MakeWorld) -> None:
    world: World = make_world(g4=False).ready()
    world.connect("one").compute(RUN)
    world.settle()
    world.connect("two").compute(RUN)
    world.settle()
    for kind in ("g1_g2", "g2_g3"):
        assert world.counter("job_items_total", kind=kind, status="ok") == 4
    world.at_rest()


def test_51_a_source_that_is_freed_before_its_turn_is_skipped(make_world: MakeWorld) -> None:
    world: World = make_world(g4=False).ready()
    one = world.connect("one")
    world.lose(OW)
    one.compute(RUN)
    world.core.deregister(one.session, [EngineBlockId(3)])
    world.ready()
    assert world.held(Tier.G2) == keys(RUN.slice(0, 3))
    assert world.counter("job_items_total", kind="g1_g2", status="source_changed") == 0
    world.at_rest()


# --- 52 ---------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("pages", [1, 2, 4])
@pytest.mark.parametrize("tier", [Tier.G2, Tier.G3, Tier.G4])
def test_52_a_round_trip_over_any_tier_brings_the_same_bytes(make_world: MakeWorld, tier: Tier, pages: int) -> None:
    world: World = make_world().ready()
    tokens = BLOCK_TOKENS // pages
    layout: dict[str, Any] = {
        "groups": (Group(engine_block_tokens=tokens),),
        "identity": replace(MODEL, engine_block_tokens=tokens),
    }
    one = world.connect("one", **layout)
    world.core.register(one.session, one.fill(RUN))
    world.settle()
    world.core.reset(one.session)
    for upper in (Tier.G2, Tier.G3):
        if upper < tier:
            lose(world, upper, RUN, 0, 1, 2, 3)
    two = world.connect("two", **layout)
    rows = two.fill(chain("other", 4))
    targets = [page for row in rows for page in row.pages]
    guards = [guard for row in rows for guard in row.guards]
    names = [row.name for row in one.fill(RUN, first_block=20)]
    load = world.core.open_load(
        two.session, RequestId("r"), two.scope(), names, targets, guards, 10_000, world.finished
    )
    world.settle()
    assert loaded(world, load) == ([OK] * 4, [tier] * 4)
    read = b"".join(two.memory.blocks[page] for page in targets)
    assert read == b"".join(payload_of(digest.digest) for digest in names)
    world.at_rest()


# --- 53 ---------------------------------------------------------------------------------------------------------------
def test_53_nothing_to_load_is_loaded_at_once(make_world: MakeWorld) -> None:
    world, two = in_every_tier(make_world)
    load = two.load(RUN.slice(0, 0))
    assert loaded(world, load) == ([], [])
    world.at_rest()


def test_53_the_first_use_is_refused_the_second_admitted_and_after_a_while_refused_again(
    make_world: MakeWorld,
) -> None:
    world: World = make_world(g4=False, profile={"disk_rules": OffloadRules(least_uses=2)}).ready()
    one = world.connect("one")
    one.compute(RUN)
    world.settle()
    assert world.held(Tier.G3) == set()
    world.tick(DECAY_SECONDS)
    two = world.connect("two")
    two.compute(RUN)
    world.settle()
    assert world.held(Tier.G3) == set(), "the first use is forgotten"
    world.connect("three").compute(RUN)
    world.settle()
    assert world.held(Tier.G3) == keys(RUN)
    world.at_rest()


# --- 54 ---------------------------------------------------------------------------------------------------------------
def test_54_a_threshold_cuts_a_request_at_its_first_block_below(make_world: MakeWorld) -> None:
    world: World = make_world(g4=False, profile={"disk_rules": OffloadRules(least_uses=3)}).ready()
    one = world.connect("one")
    one.compute(RUN)
    world.settle()
    for number, index in enumerate([0, 1, 3, 0, 1, 3]):
        one.load(RUN.slice(index, index + 1), first_block=10, request=str(number))
        world.settle()
    assert world.held(Tier.G3) == keys(RUN.slice(0, 2)), "the last is used enough, and stands behind one that is not"
    world.at_rest()


# --- 55 ---------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("field", ["least_uses", "bytes_per_day", "commit_interval_ms"])
@pytest.mark.parametrize("value", ["many", "-1", ""])
def test_55_a_wrong_number_is_refused_by_name_and_never_replaced(field: str, value: str) -> None:
    with pytest.raises(ValueError, match=field):
        G3Section.model_validate({field: value})


def test_55_a_budget_below_one_block_is_refused_by_name() -> None:
    with pytest.raises((ConfigurationError, ValueError), match="bytes_per_day"):
        NodeSettings.model_validate({"g3": {"bytes_per_day": "1KiB"}})


# --- 56 ---------------------------------------------------------------------------------------------------------------
def test_56_one_failed_object_of_a_batch_is_named_and_the_others_are_readable(make_world: MakeWorld) -> None:
    world, two = in_every_tier(make_world)
    for tier in (Tier.G2, Tier.G3):
        lose(world, tier, RUN, 0, 1, 2, 3)
    world.workers[RT].fault = lambda job, item: (
        ItemStatus.IO_ERROR if job.kind is JobKind.G4_GET and item == 2 else None
    )
    load = two.load(RUN)
    world.settle()
    assert loaded(world, load)[0] == [OK, OK, ItemStatus.IO_ERROR, OK]
    assert world.outcomes[load].usable == 2
    world.workers[RT].fault = lambda job, item: None
    again = two.load(RUN, first_block=10)
    world.settle()
    assert loaded(world, again) == ([OK] * 4, [Tier.G2, Tier.G2, Tier.G4, Tier.G2])
    world.at_rest()


# --- 57, 58 -----------------------------------------------------------------------------------------------------------
def test_57_a_store_that_has_not_begun_is_withdrawn_at_once(make_world: MakeWorld) -> None:
    world: World = make_world(g4=False).ready()
    one = world.connect("one")
    world.lose(OW)
    told: list[int] = []
    world.core.register(one.session, one.fill(RUN), on_stores_settled=lambda: told.append(1))
    assert told == []
    world.core.close_session(one.session)
    assert told == [1]
    world.ready()
    assert world.held(Tier.G2) == set()
    assert world.counter("jobs_total", kind="g1_g2", end="result") == 0
    world.at_rest()


def test_57_a_store_that_has_begun_drains_and_is_confirmed_once(make_world: MakeWorld) -> None:
    world: World = make_world(g4=False).ready()
    one = world.connect("one")
    told: list[int] = []
    world.core.register(one.session, one.fill(RUN), on_stores_settled=lambda: told.append(1))
    world.submit(OW)
    job = world.workers[OW].start()
    assert job is not None
    world.core.close_session(one.session)
    assert told == [], "its memory may still be read"
    world.settle()
    assert told == [1]
    world.at_rest()


def test_58_the_same_block_is_under_way_once(make_world: MakeWorld) -> None:
    world: World = make_world(g4=False).ready()
    engines = [world.connect(name) for name in ("one", "two", "three")]
    told: list[int] = []
    for engine in engines:
        world.core.register(engine.session, engine.fill(RUN), on_stores_settled=lambda: told.append(1))
    assert len(world.core.desk.open_orders()) == 1
    world.settle()
    assert world.counter("job_items_total", kind="g1_g2", status="ok") == 4
    assert told == [1, 1, 1]
    world.at_rest()


# --- prefixes over all tiers ------------------------------------------------------------------------------------------
def test_a_prefix_is_assembled_from_all_tiers_without_a_stop_at_a_change(make_world: MakeWorld) -> None:
    world, two = in_every_tier(make_world)
    lose(world, Tier.G2, RUN, 1, 3)
    lose(world, Tier.G3, RUN, 3)
    load = two.load(RUN)
    world.settle()
    assert loaded(world, load) == ([OK] * 4, [Tier.G2, Tier.G3, Tier.G2, Tier.G4])
    assert world.outcomes[load].usable == 4
    world.at_rest()


def test_a_source_that_fails_leads_to_the_next_and_only_then_to_recompute(make_world: MakeWorld) -> None:
    world, two = in_every_tier(make_world)
    lose(world, Tier.G2, RUN, 0, 1, 2, 3)
    world.workers[OW].fault = lambda job, item: ItemStatus.IO_ERROR if job.kind is JobKind.G3_G2 and item else None
    world.workers[RT].fault = lambda job, item: (
        ItemStatus.IO_ERROR if job.kind is JobKind.G4_GET and item == 1 else None
    )
    load = two.load(RUN)
    world.settle()
    assert loaded(world, load) == ([OK, OK, ItemStatus.IO_ERROR, OK], [Tier.G3, Tier.G4, None, Tier.G4])
    assert world.outcomes[load].usable == 2
    world.at_rest()
