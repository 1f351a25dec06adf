"""What the node's tables announce besides what their own verbs remove."""

from dataclasses import replace

import pytest

from blockyard.core.block_name import names_of
from blockyard.core.events import BlockScope, RemovedEvent
from blockyard.core.eviction.lru import LruPolicy
from blockyard.core.outbox import Outbox
from blockyard.core.pins import PinKind, PinOwner
from blockyard.core.vocabulary import Epoch, EventSeq, GroupId, ItemStatus, Tier
from blockyard.testing.blocks import IDENTITY, chain
from blockyard.testing.clock import FakeClock
from blockyard.wire.event_codec import decode_event, encode_event
from blockyard_block_manager.event_log import EventLog
from blockyard_block_manager.node_tables import NodeTables

LEASE = PinOwner(PinKind.LEASE, "session 1 request 1")


@pytest.mark.parametrize("tier", [Tier.G2, Tier.G3])
def test_blocks_that_leave_by_the_end_of_a_pin_are_announced(tier: Tier) -> None:
    outbox = Outbox("node", Epoch(1), 1 << 20, encode_event)
    tables = NodeTables(EventLog(outbox, "node"), 16, FakeClock(), dict.fromkeys((Tier.G2, Tier.G3), LruPolicy))
    tables.open(tier, 4)
    tables.grants_open = tables.serving = True
    run = chain("a", 2)
    names = names_of(run)
    scope = replace(BlockScope(IDENTITY, block_tokens=16), group=GroupId(1))
    blocks = tables.grant(tier, len(run))
    held = tables.commit(tier, blocks, names, scope, [ItemStatus.OK] * len(names), Tier.G1).blocks
    held.reset_on_release(True)
    tables.pins.add(LEASE, held)
    assert tables.pins.release(LEASE) == 1
    assert tables.in_g2() == []
    messages = outbox.next_batch(EventSeq(0), 100).messages
    removed = [event for message in messages if isinstance(event := decode_event(message.payload).event, RemovedEvent)]
    assert [(event.tier, event.group, event.keys) for event in removed] == [(tier, GroupId(1), tuple(run.keys()))]
