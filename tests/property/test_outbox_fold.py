"""Fold of the events in an outbox equals the set they were made from; holes are exactly what was overwritten."""

import random

import pytest

from blockyard.core.events import (
    BlockColumns,
    BlockScope,
    ClearedEvent,
    EventOwner,
    KvEvent,
    OffloadedEvent,
    OwnerKind,
    RemovedEvent,
    StoredEvent,
)
from blockyard.core.outbox import Outbox
from blockyard.core.vocabulary import ROOT_KEY, ContentKey, Epoch, EventSeq, GroupId, IdentityDigest, TenantDigest, Tier
from blockyard.testing.event_fold import EventFold, HeldBlock
from blockyard.wire.event_codec import decode_event, encode_event

OWNERS = (EventOwner(OwnerKind.ENGINE, "engine-0"), EventOwner(OwnerKind.NODE, "node-a"))
TIERS = (Tier.G2, Tier.G3)
IDENTITIES = tuple(IdentityDigest(bytes([number]) * 32) for number in (1, 2))
TENANTS = tuple(TenantDigest(bytes([number]) * 16) for number in (0, 5))
KEYS = tuple(ContentKey(number.to_bytes(16, "big")) for number in range(1, 30))


class Shelf:
    """The truth: which blocks are held, changed at random, each change announced."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.held: dict[HeldBlock, TenantDigest] = {}

    def change(self) -> KvEvent | None:
        pick = self.chance.choice
        owner, tier, identity, tenant = pick(OWNERS), pick(TIERS), pick(IDENTITIES), pick(TENANTS)
        keys = tuple(self.chance.sample(KEYS, self.chance.randint(1, 6)))
        roll = self.chance.random()
        if roll < 0.03:
            return self.clear(pick((owner, None)), pick((tier, None)), pick((identity, None)), pick((tenant, None)))
        blocks = [HeldBlock(owner, GroupId(0), tier, identity, key) for key in keys]
        if roll < 0.4:
            gone = tuple(block.key for block in blocks if self.held.pop(block, None) is not None)
            return RemovedEvent(owner, tier, identity, gone) if gone else None
        fresh = tuple(block.key for block in blocks if block not in self.held)
        if not fresh:
            return None
        self.held.update((block, tenant) for block in blocks if block.key in fresh)
        columns = BlockColumns.of(fresh, (ROOT_KEY,) * len(fresh), (0,) * len(fresh))
        scope = BlockScope(identity, tenant, GroupId(0), 16)
        if roll < 0.6:
            return OffloadedEvent(owner, Tier.G1, tier, scope, columns)
        return StoredEvent(owner, tier, scope, columns)

    def clear(
        self,
        owner: EventOwner | None,
        tier: Tier | None,
        identity: IdentityDigest | None,
        tenant: TenantDigest | None,
    ) -> KvEvent:
        self.held = {
            block: of
            for block, of in self.held.items()
            if (owner is not None and block.owner != owner)
            or (tier is not None and block.tier is not tier)
            or (identity is not None and block.identity != identity)
            or (tenant is not None and of != tenant)
        }
        return ClearedEvent(owner, tier, identity, tenant)


@pytest.mark.parametrize("seed", range(20))
def test_fold_of_all_events_is_the_set_at_every_point(seed: int) -> None:
    shelf, fold = Shelf(random.Random(seed)), EventFold()
    outbox = Outbox("node-a", Epoch(3), 1 << 20, encode_event)
    for _ in range(150):
        event = shelf.change()
        if event is None:
            continue
        outbox.append(event)
        for message in outbox.next_batch(EventSeq(fold.cursor), 100).messages:
            fold.receive(decode_event(message.payload))
        assert fold.held == frozenset(shelf.held)
    assert fold.cursor == outbox.last_seq
    assert fold.gaps == outbox.overwritten == 0


@pytest.mark.parametrize("seed", range(20))
def test_numbers_that_never_come_are_exactly_the_overwritten_ones(seed: int) -> None:
    chance = random.Random(seed)
    shelf, fold = Shelf(chance), EventFold()
    outbox = Outbox("node-a", Epoch(3), 6_000, encode_event)
    missed = 0
    for _ in range(300):
        event = shelf.change()
        if event is not None:
            outbox.append(event)
        if chance.random() < 0.05:  # the bus is away most of the time
            batch = outbox.next_batch(EventSeq(fold.cursor), chance.randint(1, 50))
            missed += batch.missed
            for message in batch.messages:
                fold.receive(decode_event(message.payload))
            outbox.mark_published(EventSeq(fold.cursor))
        assert outbox.size_bytes <= 6_000
    rest = outbox.next_batch(EventSeq(fold.cursor), 1_000)
    for message in rest.messages:
        fold.receive(decode_event(message.payload))

    assert outbox.overwritten > 0
    assert fold.gaps == missed + rest.missed == outbox.overwritten
    assert fold.cursor == outbox.last_seq
