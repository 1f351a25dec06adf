"""Clears that are swept in slices: gone at once for everybody, done when the last slot is free."""

import asyncio
import contextlib
from collections.abc import Sequence

import pytest
from tests.unit.block_manager.test_clear_scopes import OURS, THEIRS, THEM, US, clear, compute, keys, shared
from tests.unit.block_manager.test_onboard import OK, loaded
from tests.unit.block_manager.world import GROUPS, OW, MakeWorld, World

from blockyard.core.clear_scope import EVERYTHING, ClearScope
from blockyard.core.events import ClearedEvent
from blockyard.core.eviction.base import PolicyFactory
from blockyard.core.eviction.lineage import LineagePolicy
from blockyard.core.eviction.lru import LruPolicy
from blockyard.core.vocabulary import ContentKey, EventSeq, GroupId, Tier
from blockyard.testing.blocks import chain
from blockyard.wire.event_codec import decode_event
from blockyard_block_manager.section_waiters import SectionWaiters
from blockyard_block_manager.sweeper import sweep_cleared

RUN = chain("a", 8)
LATE = chain("c", 4)
SLICES = {"sweep_part": 2}


def filled(make_world: MakeWorld, **parameters: object) -> World:
    world: World = make_world(g4=False, profile=SLICES, **parameters).ready()
    world.connect("one").compute(RUN)
    world.settle()
    return world


def sweep(world: World) -> int:
    """Sweep all that is to be swept; returns the number of slices."""
    slices = 0
    while world.core.clearing.unswept:
        world.core.sweep()
        slices += 1
    return slices


@pytest.mark.parametrize("tier", [Tier.G2, Tier.G3])
def test_blocks_are_gone_before_they_are_swept_and_a_clear_is_done_after_that(
    make_world: MakeWorld, tier: Tier
) -> None:
    world = filled(make_world)
    before = world.outbox.last_seq
    done = world.clear(tier)
    assert world.core.tables.pool(tier).unswept == 6
    assert world.announced(tier) == world.held(tier) == set()
    assert not any(world.core.tables.holds(tier, list(RUN), GROUPS[0]))
    if tier is Tier.G2:
        assert [world.core.tables.name_in_g2(key, GROUPS[0]) for key in RUN] == [None] * 8
        assert world.core.tables.named((key, GROUPS[0]) for key in RUN) == {}
    world.settle()
    assert done == [], "headers of what is not swept are not free"
    assert sweep(world) == 3
    world.settle()
    assert [(counts.removed, counts.headers_freed) for counts in done] == [(8, 8)]
    [message] = world.outbox.next_batch(EventSeq(before), 100).messages
    assert isinstance(decode_event(message.payload).event, ClearedEvent)
    world.at_rest()


def test_blocks_that_are_stored_again_before_they_are_swept_stay(make_world: MakeWorld) -> None:
    world = filled(make_world, g2=24)
    left: list[tuple[ContentKey, GroupId]] = []
    tell = world.core.tables.on_left

    def note(tier: Tier, blocks: Sequence[tuple[ContentKey, GroupId]]) -> None:
        left.extend(blocks)
        tell(tier, blocks)

    world.core.tables.on_left = note
    done = world.clear(Tier.G2)
    world.core.reset(world.engines["one"].session)
    world.engines["one"].compute(RUN.slice(2, 6), first_block=10)
    world.settle()
    assert world.held(Tier.G2) == world.announced(Tier.G2) == keys(RUN.slice(2, 6))
    assert {(key, GROUPS[0]) for key in RUN.slice(2, 6)} <= set(left), "those who keep something about them start anew"
    sweep(world)
    world.settle()
    assert world.held(Tier.G2) == keys(RUN.slice(2, 6))
    assert set(world.core.tables.in_g2()) == {(key, GROUPS[0]) for key in RUN.slice(2, 6)}
    assert [(counts.removed, counts.headers_freed) for counts in done] == [(8, 8)]
    assert sorted(left) == sorted((key, GROUPS[0]) for key in RUN)
    world.at_rest()


def test_what_is_let_go_before_it_is_swept_leaves_nothing_behind(make_world: MakeWorld) -> None:
    world = filled(make_world)
    engine = world.engines["one"]
    engine.load(RUN, first_block=20)
    world.submit(OW)
    done = world.clear(Tier.G2)
    world.settle()
    sweep(world)
    world.settle()
    assert [counts.pinned for counts in done] == [8]
    assert world.core.tables.in_g2() == []
    world.at_rest()


def test_everything_can_be_cleared_while_a_part_is_swept(make_world: MakeWorld) -> None:
    world, engine = shared(make_world, profile=SLICES, g2=24)
    first = clear(world, Tier.G2, ClearScope(tenant=US))
    assert world.held(Tier.G2) == keys(THEIRS)
    world.core.reset(engine.session)
    compute(engine, OURS, US, first_block=20)
    world.settle()
    assert world.held(Tier.G2) == keys(OURS) | keys(THEIRS)
    second = clear(world, Tier.G2, EVERYTHING)
    assert world.held(Tier.G2) == world.announced(Tier.G2) == set()
    compute(engine, THEIRS, THEM, first_block=10)
    sweep(world)
    world.settle()
    assert [counts.removed for counts in first] == [4]
    assert [counts.removed for counts in second] == [8]
    assert world.held(Tier.G2) == keys(THEIRS)
    world.at_rest()


@pytest.mark.parametrize("eviction", [LruPolicy, LineagePolicy], ids=["lru", "lineage"])
def test_a_load_gets_the_slots_of_others_while_a_tenant_is_swept(
    make_world: MakeWorld, eviction: PolicyFactory
) -> None:
    world: World = make_world(g4=False, g2=8, profile={**SLICES, "g2_eviction": eviction}).ready()
    engine = world.connect("one")
    for number, (run, tenant) in enumerate([(LATE, THEM), (OURS, US), (THEIRS, THEM)]):
        compute(engine, run, tenant, first_block=10 * number)
        world.settle()
    done = clear(world, Tier.G2, ClearScope(tenant=US))
    assert world.core.tables.pool(Tier.G2).unswept == 2, "the oldest blocks of the order"
    assert world.core.tables.room(Tier.G2) == 4
    victims = world.core.tables.next_victims(Tier.G2, 8)
    assert {block.key for block in victims} == keys(THEIRS)
    load = engine.load(LATE, first_block=40)
    world.settle()
    assert loaded(world, load)[0] == [OK] * 4
    assert world.core.tables.pool(Tier.G2).unswept == 2
    assert world.held(Tier.G2) == world.announced(Tier.G2) == keys(LATE)
    sweep(world)
    world.settle()
    assert [counts.headers_freed for counts in done] == [4]
    world.at_rest()


def test_the_set_of_an_engine_that_is_gone_leaves_with_one_event_and_is_swept(make_world: MakeWorld) -> None:
    world = filled(make_world)
    session, before = world.engines["one"].session, world.outbox.last_seq
    world.core.close_session(session)
    [message] = world.outbox.next_batch(EventSeq(before), 100).messages
    event = decode_event(message.payload).event
    assert isinstance(event, ClearedEvent)
    assert (event.owner, event.tier) == (session.owner, Tier.G1)
    assert len(session.g1) == 0
    assert sweep(world) == 4


async def test_the_task_of_the_node_sweeps_and_lets_others_run_between_slices(make_world: MakeWorld) -> None:
    world = filled(make_world)
    waiters = SectionWaiters()
    world.core.on_section_end = waiters.section_ended
    task = asyncio.create_task(sweep_cleared(world.core, waiters))
    await asyncio.sleep(0)
    world.clear(Tier.G2)
    seen = [world.core.tables.pool(Tier.G2).unswept]
    async with asyncio.timeout(10):
        while world.core.clearing.unswept:
            await asyncio.sleep(0)
            seen.append(world.core.tables.pool(Tier.G2).unswept)
    assert {6, 4, 2, 0} == set(seen)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
