"""Families on a node: the rows of one key in several groups leave in one section, announced together."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.block_manager.world import BLOCK_TOKENS, MODEL, OW, Engine, MakeWorld, World

from blockyard.core.block_facts import BlockFacts
from blockyard.core.block_name import names_of
from blockyard.core.events import BlockScope, RemovedEvent
from blockyard.core.eviction.lru import LruPolicy
from blockyard.core.outbox import Outbox
from blockyard.core.stored_key import stored_keys
from blockyard.core.vocabulary import (
    BlockId,
    ContentKey,
    EngineBlockId,
    Epoch,
    EventSeq,
    Generation,
    GroupId,
    Guard,
    ItemStatus,
    JobKind,
    RequestId,
    Tier,
)
from blockyard.testing.blocks import IDENTITY, chain
from blockyard.testing.clock import FakeClock
from blockyard.tiers.header import HeaderState
from blockyard.wire.connector_channel import Group
from blockyard.wire.event_codec import decode_event, encode_event
from blockyard.wire.worker_channel import Job
from blockyard_block_manager.event_log import EventLog
from blockyard_block_manager.node_tables import NodeTables

FULL, WINDOW = GroupId(0), GroupId(1)
RUN = chain("family", 3)
SCOPE = BlockScope(IDENTITY, block_tokens=16)
TWO_GROUPS: dict[str, Any] = {
    "groups": (
        Group(engine_block_tokens=BLOCK_TOKENS),
        Group(group=1, kind="sliding_window", engine_block_tokens=BLOCK_TOKENS, window_tokens=2 * BLOCK_TOKENS),
    ),
    "identity": replace(MODEL, group_spec=f"full,sliding_window:{2 * BLOCK_TOKENS}"),
}


class Node:
    """Tables of G2 and G3, and what they announced."""

    def __init__(self, slots: int = 6) -> None:
        self.outbox = Outbox("node", Epoch(1), 1 << 20, encode_event)
        self.tables = NodeTables(
            EventLog(self.outbox, "node"), 16, FakeClock(), dict.fromkeys((Tier.G2, Tier.G3), LruPolicy)
        )
        self.left: list[tuple[ContentKey, GroupId]] = []
        self.evicted = 0
        self.tables.on_left = lambda tier, blocks: self.left.extend(blocks)
        self.tables.on_evicted = self._evicted
        for tier in (Tier.G2, Tier.G3):
            self.tables.open(tier, slots)
        self.tables.grants_open = self.tables.serving = True

    def _evicted(self, tier: Tier, blocks: Sequence[BlockFacts]) -> None:
        self.evicted += len(blocks)

    def store(self, group: GroupId, tier: Tier = Tier.G2) -> tuple[BlockId, ...]:
        blocks = self.tables.grant(tier, len(RUN))
        names = names_of(RUN)
        committed = self.tables.commit(
            tier, blocks, names, replace(SCOPE, group=group), [ItemStatus.OK] * len(names), Tier.G1
        )
        with committed.blocks as held:
            return held.ids

    def removed(self) -> list[tuple[GroupId, tuple[ContentKey, ...]]]:
        messages = self.outbox.next_batch(EventSeq(0), 100).messages
        events = [decode_event(message.payload).event for message in messages]
        return [(event.group, event.keys) for event in events if isinstance(event, RemovedEvent)]


@pytest.fixture
def node() -> Node:
    return Node()


@pytest.mark.parametrize("tier", [Tier.G2, Tier.G3])
def test_a_damaged_block_takes_its_relatives_out_of_the_tier(node: Node, tier: Tier) -> None:
    full, window = node.store(FULL, tier), node.store(WINDOW, tier)
    pool = node.tables.pool(tier)
    family = node.tables.condemn_family(tier, window[1], pool.generation(window[1]))
    assert family.damaged.ids == (window[1],)
    assert [slots.ids for slots in family.relatives] == [(full[1],)]
    assert node.removed() == [(WINDOW, (RUN.key(1),)), (FULL, (RUN.key(1),))]
    assert node.left == [(RUN.key(1), WINDOW), (RUN.key(1), FULL)]
    for group in (FULL, WINDOW):
        assert node.tables.holds(tier, RUN.keys(), group) == [True, False, True]
    family.damaged.release()
    family.relatives[0].release()


def test_a_relative_that_is_held_leaves_the_table_and_its_slot_follows_later(node: Node) -> None:
    full, window = node.store(FULL), node.store(WINDOW)
    pool = node.tables.pool(Tier.G2)
    with pool.pin_all([RUN.key(0)], WINDOW):
        family = node.tables.condemn_family(Tier.G2, full[0], pool.generation(full[0]))
        assert family.damaged.ids == (full[0],)
        assert [len(slots) for slots in family.relatives] == [0]
        assert pool.is_doomed(window[0])
        assert node.tables.holds(Tier.G2, [RUN.key(0)], WINDOW) == [False]
    doomed = node.tables.drain_doomed(Tier.G2)
    assert doomed is not None
    assert doomed.ids == (window[0],)
    doomed.release()
    family.damaged.release()


def test_a_block_that_is_another_one_by_now_takes_nobody_along(node: Node) -> None:
    full, _ = node.store(FULL), node.store(WINDOW)
    pool = node.tables.pool(Tier.G2)
    earlier = Generation(pool.generation(full[0]) - 1)
    family = node.tables.condemn_family(Tier.G2, full[0], earlier)
    assert len(family.damaged) == 0
    assert family.relatives == ()
    assert pool.inactive == 6
    assert node.removed() == []


def test_a_grant_that_evicts_a_block_announces_its_family_and_remembers_both_headers(node: Node) -> None:
    full, window = node.store(FULL), node.store(WINDOW)
    granted = node.tables.grant(Tier.G2, 1)
    assert granted.ids == (full[2],)
    assert node.removed() == [(FULL, (RUN.key(2),)), (WINDOW, (RUN.key(2),))]
    assert {stale.block for stale in node.tables.stale_headers()} == {full[2], window[2]}
    assert node.evicted == 2
    assert node.tables.room(Tier.G2) == 5, "the slot of the relative is free, the other families are idle"
    granted.release()


def test_room_on_disk_is_made_family_by_family(node: Node) -> None:
    node.store(FULL, Tier.G3)
    node.store(WINDOW, Tier.G3)
    with node.tables.evict(Tier.G3, 1) as doomed:
        assert len(doomed) == 2
    assert node.removed() == [(FULL, (RUN.key(2),)), (WINDOW, (RUN.key(2),))]
    assert node.evicted == 2


def test_damage_that_a_load_finds_takes_the_family_out_and_frees_both_slots(make_world: MakeWorld) -> None:
    world: World = make_world(g4=False, g3=8).ready()
    engine = world.connect("one", **TWO_GROUPS)
    for group in (FULL, WINDOW):
        world.core.register(engine.session, engine.fill(RUN, first_block=8 * group, group=group))
    world.settle()
    with world.core.tables.evict(Tier.G3, 8):
        pass  # no second copy that the load could fall back to

    def damaged(job: Job, item: int) -> ItemStatus | None:
        """The first row of the load is found to be damaged in G2."""
        return ItemStatus.CORRUPT if job.kind is JobKind.G2_G1 and item == 0 else None

    world.workers[OW].fault = damaged
    pages = [EngineBlockId(page) for page in range(32, 35)]
    guards = [Guard(engine.memory.guards[page]) for page in pages]
    load = world.core.open_load(
        engine.session, RequestId("r"), engine.scope(), names_of(RUN), pages, guards, 10_000, world.finished
    )
    world.settle()
    assert world.outcomes[load].usable == 0
    for group in (FULL, WINDOW):
        assert world.core.tables.holds(Tier.G2, RUN.keys(), group) == [False, True, True]
    pool = world.core.tables.pool(Tier.G2)
    assert (pool.inactive, pool.await_free) == (4, 0)
    states = Counter(slot.state for slot in world.tiers[Tier.G2].slots)
    assert [states[state] for state in (HeaderState.READY, HeaderState.BAD, HeaderState.FREE)] == [4, 1, 1]


def test_rows_of_both_groups_go_to_the_shared_store_and_come_back_from_it(make_world: MakeWorld) -> None:
    world: World = make_world(g4=True).ready()
    engine = world.connect("one", **TWO_GROUPS)
    for group in (WINDOW, FULL):
        world.core.register(engine.session, engine.fill(RUN, first_block=8 * group, group=group))
    world.settle()
    world.tick(60.0)
    world.settle()
    stored = {(item.group, item.key) for item in world.events().held if item.tier is Tier.G4}
    assert stored == {(group, key) for group in (FULL, WINDOW) for key in RUN.keys()}
    assert set(world.store.index) == {key for group in (FULL, WINDOW) for key in stored_keys(RUN, group)}

    for tier in (Tier.G2, Tier.G3):
        world.clear(tier)
    world.settle()
    for group in (FULL, WINDOW):
        assert load(world, engine, group) == [ItemStatus.OK] * 3


def test_what_the_store_lost_of_one_group_is_put_again_for_that_group(make_world: MakeWorld) -> None:
    world: World = make_world(g4=True).ready()
    engine = world.connect("one", **TWO_GROUPS)
    for group in (WINDOW, FULL):
        world.core.register(engine.session, engine.fill(RUN, first_block=8 * group, group=group))
    world.settle()
    world.tick(60.0)
    world.settle()
    for tier in (Tier.G2, Tier.G3):
        world.clear(tier)
    world.settle()
    lost = next(pack for pack, group in world.store.groups.items() if group == WINDOW)
    del world.store.packs[lost]
    assert load(world, engine, WINDOW) == [ItemStatus.NOT_FOUND] * 3
    assert load(world, engine, FULL) == [ItemStatus.OK] * 3
    held = {(item.group, item.key) for item in world.events().held if item.tier is Tier.G4}
    assert held == {(FULL, key) for key in RUN.keys()}
    world.core.register(engine.session, engine.fill(RUN, first_block=8, group=WINDOW))
    world.settle()
    world.tick(60.0)
    world.settle()
    assert lost in world.store.packs


def load(world: World, engine: Engine, group: GroupId) -> list[ItemStatus]:
    """Rows of one group into pages that hold nothing."""
    pages = [EngineBlockId(page) for page in range(32, 35)]
    for page in pages:
        engine.memory.guards[page] += 1
        engine.memory.blocks[page] = b""
    guards = [Guard(engine.memory.guards[page]) for page in pages]
    number = world.core.open_load(
        engine.session, RequestId("r"), engine.scope(group), names_of(RUN), pages, guards, 10_000, world.finished
    )
    world.settle()
    return list(world.outcomes[number].status)
