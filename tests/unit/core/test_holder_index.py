"""Who holds what, and how far each engine gets: cases with names; the property test compares with plain sets."""

import math
from time import process_time
from typing import Any

import pytest

from blockyard.core.errors import RequestError
from blockyard.core.events import (
    BlockColumns,
    BlockScope,
    ClearedEvent,
    EventOwner,
    KvEvent,
    OwnerKind,
    PublishedEvent,
    RemovedEvent,
    StoredEvent,
)
from blockyard.core.holder_index import HolderIndex
from blockyard.core.prefix_match import PrefixMatch
from blockyard.core.tier_digest import NOTHING_HELD, TierDigest
from blockyard.core.vocabulary import ROOT_KEY, ContentKey, Epoch, EventSeq, GroupId, IdentityDigest, TenantDigest, Tier

IDENTITY = IdentityDigest(b"i" * 32)
CHAIN = tuple(ContentKey(bytes([number]) * 12 + bytes(4)) for number in range(1, 9))
LEFT = EventOwner(OwnerKind.ENGINE, "left")
RIGHT = EventOwner(OwnerKind.ENGINE, "right", dp_rank=1)
NODE = EventOwner(OwnerKind.NODE, "node-a")
SHARED = EventOwner(OwnerKind.SHARED, "g4")


class Fed:
    """An index, and publishers that number what they say."""

    def __init__(self, max_blocks: int = 1_000) -> None:
        self.index = HolderIndex(max_blocks)
        self.seqs: dict[str, int] = {}
        self.index.credit("node-a", (LEFT, RIGHT))

    def say(self, event: KvEvent, instance: str = "node-a") -> None:
        seq = self.seqs[instance] = self.seqs.get(instance, 0) + 1
        self.index.apply([PublishedEvent(instance, Epoch(1), EventSeq(seq), event)])

    def store(self, owner: EventOwner, tier: Tier, *places: int, group: int = 0, instance: str = "node-a") -> None:
        keys = tuple(CHAIN[place] for place in places)
        columns = BlockColumns.of(keys, (ROOT_KEY,) * len(keys), places)
        self.say(StoredEvent(owner, tier, BlockScope(IDENTITY, group=GroupId(group)), columns), instance)

    def remove(self, owner: EventOwner, tier: Tier, *places: int) -> None:
        self.say(RemovedEvent(owner, tier, IDENTITY, tuple(CHAIN[place] for place in places)))

    def ask(self, *groups: int, deepest: Tier = Tier.G4) -> dict[EventOwner, tuple[int, ...]]:
        wanted = [GroupId(group) for group in groups or (0,)]
        matches = self.index.longest_prefix(IDENTITY, CHAIN, wanted, deepest)
        return {reader: match.by_tier for match in matches for reader in match.readers}


def test_holder_of_blocks_0_and_2_has_a_prefix_of_one() -> None:
    fed = Fed()
    fed.store(LEFT, Tier.G1, 0, 2)

    assert fed.index.longest_prefix(IDENTITY, CHAIN) == (PrefixMatch((LEFT,), 1, (1, 0, 0, 0)),)


def test_nothing_is_looked_up_behind_a_block_of_nobody() -> None:
    fed = Fed()
    fed.store(LEFT, Tier.G1, 0, 2)
    cannot_be_looked_up = ContentKey(bytearray(16))  # type: ignore[arg-type]

    assert fed.index.longest_prefix(IDENTITY, [CHAIN[1], cannot_be_looked_up]) == ()


def test_reader_goes_on_from_tier_to_tier_and_each_block_counts_in_its_fastest() -> None:
    fed = Fed()
    fed.store(LEFT, Tier.G1, 0, 1)
    fed.store(NODE, Tier.G2, 1, 2)
    fed.store(NODE, Tier.G3, 0, 1, 2, 3)
    fed.store(SHARED, Tier.G4, 4)

    assert fed.ask() == {LEFT: (2, 1, 1, 1), RIGHT: (0, 2, 2, 1)}
    assert fed.ask(deepest=Tier.G2) == {LEFT: (2, 1, 0, 0)}


def test_answers_come_longest_first() -> None:
    fed = Fed()
    fed.store(LEFT, Tier.G1, 0)
    fed.store(RIGHT, Tier.G1, 0, 1, 2)

    assert [match.readers for match in fed.index.longest_prefix(IDENTITY, CHAIN)] == [(RIGHT,), (LEFT,)]


def test_shared_blocks_count_for_the_engines_of_every_credited_node() -> None:
    fed = Fed()
    far = EventOwner(OwnerKind.ENGINE, "far")
    fed.index.credit("node-b", (far,))
    fed.store(SHARED, Tier.G4, 0, instance="node-b")

    assert set(fed.ask()) == {LEFT, RIGHT, far}
    fed.index.discredit("node-b")
    assert fed.ask() == {}


def test_block_counts_where_all_groups_have_it_with_the_slowest_tier_of_them() -> None:
    fed = Fed()
    fed.store(LEFT, Tier.G1, 0, 1, 2)
    fed.store(LEFT, Tier.G1, 0, group=1)
    fed.store(NODE, Tier.G2, 1, group=1)

    assert fed.ask(0, 1) == {LEFT: (1, 1, 0, 0)}
    assert fed.ask(0, 2) == {}


def test_kvbm_45_order_of_blocks_in_events_and_of_events_among_themselves_is_of_no_account() -> None:
    rising, falling = Fed(), Fed()
    rising.store(LEFT, Tier.G1, 0, 1, 2)
    for place in (2, 1, 0):
        falling.store(LEFT, Tier.G1, place)
    assert rising.ask() == falling.ask() == {LEFT: (3, 0, 0, 0)}

    rising.remove(LEFT, Tier.G1, 0, 1, 2)
    falling.remove(LEFT, Tier.G1, 2, 1, 0)

    assert rising.ask() == falling.ask() == {}
    assert rising.index.blocks == falling.index.blocks == 0


def test_kvbm_46_block_that_left_one_of_two_tiers_counts_in_the_other() -> None:
    """KVBM tells nothing then; here the removal names its tier, so a router learns that loading became slower."""
    fed = Fed()
    fed.store(LEFT, Tier.G1, 0)
    fed.store(NODE, Tier.G3, 0)

    fed.remove(LEFT, Tier.G1, 0)

    assert fed.ask() == {LEFT: (0, 0, 1, 0), RIGHT: (0, 0, 1, 0)}


def test_kvbm_49_block_of_engine_and_node_is_gone_when_both_removed_it() -> None:
    fed = Fed()
    fed.store(LEFT, Tier.G1, 0)
    fed.store(NODE, Tier.G2, 0)

    fed.remove(LEFT, Tier.G1, 0)
    assert fed.ask() == {LEFT: (0, 1, 0, 0), RIGHT: (0, 1, 0, 0)}
    fed.remove(NODE, Tier.G2, 0)
    assert fed.ask() == {}


def test_kvbm_50_repeated_stores_are_one_block_and_removal_of_an_unknown_one_is_nothing() -> None:
    """A publisher tells of transitions only, so nobody counts: the one removal ends what two stores began."""
    fed = Fed()
    fed.store(LEFT, Tier.G1, 0)
    fed.store(LEFT, Tier.G1, 0, 0)
    assert fed.index.watermark("node-a").held[0].blocks == 1

    fed.remove(LEFT, Tier.G1, 0, 5)
    fed.remove(RIGHT, Tier.G1, 0)

    assert fed.ask() == {}
    assert fed.index.watermark("node-a").held == NOTHING_HELD


def test_drop_empties_at_once_and_its_keys_leave_with_later_calls() -> None:
    fed = Fed()
    fed.store(LEFT, Tier.G1, 0, 1, 2)

    fed.index.drop("node-a", Epoch(1))

    assert fed.ask() == {}
    assert fed.index.watermark("node-a").held == NOTHING_HELD
    assert fed.index.blocks == 3
    fed.index.apply([])
    assert fed.index.blocks == 0


def test_clear_of_one_owner_leaves_the_other() -> None:
    fed = Fed()
    fed.store(LEFT, Tier.G1, 0)
    fed.store(RIGHT, Tier.G1, 0, 1)

    fed.say(ClearedEvent(LEFT, Tier.G1))

    assert fed.ask() == {RIGHT: (2, 0, 0, 0)}


def test_who_gives_a_block_another_tenant_does_not_spoil_the_clear_of_the_first() -> None:
    first, other = TenantDigest(b"x" * 16), TenantDigest(b"y" * 16)
    fed = Fed()
    fed.index.credit("node-b", (EventOwner(OwnerKind.ENGINE, "far"),))
    columns = BlockColumns.of(CHAIN[:1], (ROOT_KEY,), (0,))
    fed.say(StoredEvent(LEFT, Tier.G1, BlockScope(IDENTITY, first), columns))
    fed.say(StoredEvent(EventOwner(OwnerKind.NODE, "node-b"), Tier.G2, BlockScope(IDENTITY, other), columns), "node-b")

    fed.say(ClearedEvent(tenant=first))

    assert fed.ask() == {EventOwner(OwnerKind.ENGINE, "far"): (0, 1, 0, 0)}
    assert fed.index.watermark("node-a").held == NOTHING_HELD


def test_full_index_keeps_the_first_new_keys_counts_the_others_and_says_that_it_lacks_some() -> None:
    fed = Fed(max_blocks=3)
    fed.store(LEFT, Tier.G1, 0, 1, 2, 3, 4)
    fed.store(RIGHT, Tier.G1, 0, 1)

    assert fed.ask() == {LEFT: (3, 0, 0, 0), RIGHT: (2, 0, 0, 0)}
    assert fed.index.counts.refused_blocks == 2
    assert not fed.index.watermark("node-a").is_whole


def test_full_index_takes_new_keys_when_old_ones_have_left() -> None:
    fed = Fed(max_blocks=3)
    fed.store(LEFT, Tier.G1, 0, 1, 2)
    fed.index.drop("node-a", Epoch(1))
    fed.seqs.clear()

    fed.store(LEFT, Tier.G1, 0, 1, 2)

    assert fed.ask() == {LEFT: (3, 0, 0, 0)}
    assert fed.index.watermark("node-a").is_whole


@pytest.mark.parametrize("value", [0, -1, 1.5, math.nan, True, "1"], ids=str)
def test_room_and_pages_are_whole_numbers(value: Any) -> None:
    with pytest.raises(RequestError, match="integer"):
        HolderIndex(value)
    with pytest.raises(RequestError, match="integer"):
        HolderIndex(page=value)


def test_digest_is_the_sum_of_the_halves_of_the_keys_xored() -> None:
    keys = [ContentKey(bytes(range(16))), ContentKey(b"\xff" * 8 + b"\x01" + bytes(7))]

    assert TierDigest.of(keys) == TierDigest(2, (0x0808080808080808 + 0xFFFFFFFFFFFFFFFE) % 2**64)
    assert TierDigest.of(keys).without(TierDigest.of(keys[:1])) == TierDigest.of(keys[1:])


def seconds_of_a_fleet(publishers: int) -> float:
    """Time of the processor in which so many publishers get credit, say something, are asked about, and go."""
    index = HolderIndex()
    names = [f"node-{number}" for number in range(publishers)]
    columns = BlockColumns.of(CHAIN[:1], (ROOT_KEY,), (0,))
    start = process_time()
    for name in names:
        index.credit(name, (EventOwner(OwnerKind.ENGINE, name),))
        stored = StoredEvent(EventOwner(OwnerKind.NODE, name), Tier.G2, BlockScope(IDENTITY), columns)
        index.apply([PublishedEvent(name, Epoch(1), EventSeq(1), stored)])
    assert [len(match.readers) for match in index.longest_prefix(IDENTITY, CHAIN)] == [publishers]
    for name in names:
        index.drop(name, Epoch(2))
        index.discredit(name)
    assert index.longest_prefix(IDENTITY, CHAIN) == ()
    return process_time() - start


def test_a_fleet_that_comes_or_goes_together_costs_each_publisher_the_same() -> None:
    few = min(seconds_of_a_fleet(100) for _ in range(3))
    many = min(seconds_of_a_fleet(1_600) for _ in range(3))
    assert many < 80 * few, "sixteen times as many publishers should take about sixteen times as long"
