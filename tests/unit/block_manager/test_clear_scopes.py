"""Clears of one model or tenant, and of all tiers, against everything under way."""

from dataclasses import replace

import pytest
from tests.unit.block_manager.world import OW, Engine, MakeWorld, World

from blockyard.core.chain_run import ChainRun
from blockyard.core.clear_scope import ClearScope
from blockyard.core.errors import NotReadyError
from blockyard.core.events import ClearedEvent
from blockyard.core.vocabulary import EventSeq, JobKind, TenantDigest, Tier
from blockyard.testing.blocks import chain
from blockyard.tiers.header import HeaderState
from blockyard.wire.event_codec import decode_event
from blockyard_block_manager.clearing import ClearCounts

OURS, THEIRS = chain("a", 4), chain("b", 4)
US, THEM = TenantDigest(bytes([1]) * 16), TenantDigest(bytes([2]) * 16)


def keys(run: ChainRun) -> set[bytes]:
    return {bytes(key) for key in run}


def compute(engine: Engine, run: ChainRun, tenant: TenantDigest, first_block: int = 0) -> None:
    """An engine computes blocks of a tenant."""
    rows = engine.fill(run, first_block)
    engine.world.core.register(engine.session, [replace(row, scope=replace(row.scope, tenant=tenant)) for row in rows])


def shared(make_world: MakeWorld, **sizes: object) -> tuple[World, Engine]:
    """A node of two tenants."""
    world: World = make_world(g4=False, **sizes).ready()
    engine = world.connect("one")
    compute(engine, OURS, US)
    compute(engine, THEIRS, THEM, first_block=10)
    world.settle()
    return world, engine


def clear(world: World, tier: Tier, scope: ClearScope) -> list[ClearCounts]:
    done: list[ClearCounts] = []
    world.core.clear(tier, done.append, scope)
    return done


@pytest.mark.parametrize("tier", [Tier.G2, Tier.G3])
def test_a_tenant_leaves_a_tier_for_good_and_the_others_stay(make_world: MakeWorld, tier: Tier) -> None:
    world, engine = shared(make_world)
    before = world.outbox.last_seq
    done = clear(world, tier, ClearScope(tenant=US))
    assert world.held(tier) == world.announced(tier) == keys(THEIRS)
    [message] = world.outbox.next_batch(EventSeq(before), 100).messages
    event = decode_event(message.payload).event
    assert isinstance(event, ClearedEvent)
    assert (event.tier, event.identity, event.tenant) == (tier, None, US)
    world.settle()
    assert [(counts.removed, counts.headers_freed) for counts in done] == [(4, 4)]
    world.core.reset(engine.session)
    other = Tier.G3 if tier is Tier.G2 else Tier.G2
    clear(world, other, ClearScope(tenant=US))
    world.settle()
    world.start_manager()
    world.attach()
    world.settle()
    assert world.held(tier) == keys(THEIRS), "headers of the others are untouched"
    world.at_rest()


def test_stores_of_others_that_wait_or_are_under_way_go_on(make_world: MakeWorld) -> None:
    world: World = make_world(g2=16, g4=False).ready()
    engine = world.connect("one")
    compute(engine, OURS, US)
    compute(engine, THEIRS, THEM, first_block=10)
    world.submit(OW)
    done = clear(world, Tier.G2, ClearScope(tenant=US))
    world.settle()
    assert world.held(Tier.G2) == keys(THEIRS)
    assert [(counts.removed, counts.doomed) for counts in done] == [(0, 4)]
    ready = [slot for slot in world.tiers[Tier.G2].slots if slot.state is HeaderState.READY]
    assert len(ready) == 4
    world.at_rest()


def test_rows_that_wait_for_a_worker_are_dropped_by_tenant(make_world: MakeWorld) -> None:
    world, engine = shared(make_world, g2=32)
    compute(engine, chain("c", 2), US, first_block=20)
    compute(engine, chain("d", 2), THEM, first_block=30)
    done = clear(world, Tier.G2, ClearScope(tenant=US))
    world.settle()
    assert world.held(Tier.G2) == keys(THEIRS) | keys(chain("d", 2))
    assert done[0].dropped == 2
    world.at_rest()


def test_copies_to_disk_of_others_go_on(make_world: MakeWorld) -> None:
    world: World = make_world(g4=False, profile={"g3_open_jobs": 1}).ready()
    engine = world.connect("one")
    compute(engine, OURS, US)
    compute(engine, THEIRS, THEM, first_block=10)
    world.submit(OW)
    world.workers[OW].work()
    world.deliver(OW)
    waiting = [opened.order.kind for opened in world.core.desk.open_orders()]
    assert waiting == [JobKind.G2_G3], "one at the worker's door, the other in the queue"
    done = clear(world, Tier.G3, ClearScope(tenant=THEM))
    world.settle()
    assert world.held(Tier.G3) == keys(OURS)
    assert done[0].dropped == 4
    world.at_rest()


def test_a_model_leaves_with_all_its_tenants(make_world: MakeWorld) -> None:
    world, engine = shared(make_world)
    done = clear(world, Tier.G2, ClearScope(identity=engine.session.identity))
    assert world.held(Tier.G2) == set()
    world.settle()
    assert done[0].removed == 8
    world.at_rest()


def test_all_tiers_are_cleared_in_one_section(make_world: MakeWorld) -> None:
    world, _ = shared(make_world)
    done: list[ClearCounts] = []
    operations = world.core.clear_all(done.append, ClearScope(tenant=THEM))
    assert world.held(Tier.G2) == world.held(Tier.G3) == keys(OURS)
    assert [operation.tier for operation in operations] == [Tier.G2, Tier.G3]
    assert not any(operation.done for operation in operations)
    world.settle()
    assert [counts.removed for counts in done] == [4, 4]
    assert all(operation.done for operation in operations)
    world.at_rest()


def test_a_clear_of_all_tiers_that_one_of_them_cannot_have_changes_nothing(make_world: MakeWorld) -> None:
    world: World = make_world()
    world.attach(OW)
    world.settle()
    with pytest.raises(NotReadyError):
        world.core.clear_all(lambda counts: None)
    assert not world.core.desk.open_orders()
