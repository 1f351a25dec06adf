"""What the node's tables announce, and in which order. Numbers are those of KVBM's behaviours."""

from dataclasses import replace

import pytest

from blockyard.core.block_name import names_of
from blockyard.core.chain_run import ChainRun
from blockyard.core.events import BlockScope, KvEvent, OffloadedEvent, RemovedEvent
from blockyard.core.eviction.lru import LruPolicy
from blockyard.core.handles import ImmutableBlocks
from blockyard.core.outbox import Outbox
from blockyard.core.pins import PinKind, PinOwner
from blockyard.core.vocabulary import Epoch, EventSeq, GroupId, ItemStatus, Tier
from blockyard.testing.blocks import IDENTITY, chain
from blockyard.testing.clock import FakeClock
from blockyard.wire.event_codec import decode_event, encode_event
from blockyard_block_manager.event_log import EventLog
from blockyard_block_manager.node_tables import NodeTables

LEASE = PinOwner(PinKind.LEASE, "session 1 request 1")


RUN = chain("a", 3)
SCOPE = replace(BlockScope(IDENTITY, block_tokens=16), group=GroupId(1))
FORTY = chain("long", 40)


class Node:
    """Tables of G2 and G3, and what they announced."""

    def __init__(self, slots: int = 4) -> None:
        self.outbox = Outbox("node", Epoch(1), 1 << 20, encode_event)
        self.tables = NodeTables(
            EventLog(self.outbox, "node"), 16, FakeClock(), dict.fromkeys((Tier.G2, Tier.G3), LruPolicy)
        )
        for tier in (Tier.G2, Tier.G3):
            self.tables.open(tier, slots)
        self.tables.grants_open = self.tables.serving = True

    def hold(self, run: ChainRun, tier: Tier = Tier.G2, origin: Tier = Tier.G1) -> ImmutableBlocks:
        names = names_of(run)
        blocks = self.tables.grant(tier, len(run))
        return self.tables.commit(tier, blocks, names, SCOPE, [ItemStatus.OK] * len(names), origin).blocks

    def evict(self, tier: Tier, count: int) -> None:
        self.tables.evict(tier, count).release()

    def events(self) -> list[KvEvent]:
        messages = self.outbox.next_batch(EventSeq(0), 100).messages
        return [decode_event(message.payload).event for message in messages]


@pytest.fixture
def node() -> Node:
    return Node()


@pytest.mark.parametrize("tier", [Tier.G2, Tier.G3])
def test_blocks_that_leave_by_the_end_of_a_pin_are_announced(node: Node, tier: Tier) -> None:
    held = node.hold(RUN, tier)
    held.reset_on_release(True)
    node.tables.pins.add(LEASE, held)
    assert node.tables.pins.release(LEASE) == 1
    assert node.tables.in_g2() == []
    removed = [event for event in node.events() if isinstance(event, RemovedEvent)]
    assert [(event.tier, event.group, event.keys) for event in removed] == [(tier, GroupId(1), tuple(RUN.keys()))]


def test_45_blocks_are_announced_from_the_head_and_their_removal_from_the_tail_each_change_in_its_place(
    node: Node,
) -> None:
    for _ in range(2):
        node.hold(RUN).release()
        node.evict(Tier.G2, 3)
    stored, removed = tuple(RUN.keys()), tuple(reversed(RUN.keys()))
    assert [
        (type(event), event.keys if isinstance(event, RemovedEvent) else event.blocks.keys)
        for event in node.events()
        if isinstance(event, RemovedEvent | OffloadedEvent)
    ] == [(OffloadedEvent, stored), (RemovedEvent, removed)] * 2
    assert len(node.events()) == 4


def test_45_every_position_is_announced() -> None:
    """No policy leaves positions out: consumers would take what is there for a miss."""
    node = Node(slots=len(FORTY))
    node.hold(FORTY).release()
    (event,) = node.events()
    assert isinstance(event, OffloadedEvent)
    assert event.blocks.positions == tuple(range(len(FORTY)))


def test_46_a_block_in_two_tiers_leaves_one_and_that_tier_is_announced(node: Node) -> None:
    node.hold(RUN).release()
    node.hold(RUN, Tier.G3, Tier.G2).release()
    announced = len(node.events())
    node.evict(Tier.G2, 3)
    (event,) = node.events()[announced:]
    assert isinstance(event, RemovedEvent)
    assert (event.tier, event.keys) == (Tier.G2, tuple(reversed(RUN.keys())))
    assert node.tables.holds(Tier.G3, RUN.keys(), SCOPE.group) == [True] * 3
