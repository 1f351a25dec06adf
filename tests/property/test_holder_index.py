"""The holder index against a dict of sets that is asked block by block, reader by reader, after every step."""

import operator
from collections.abc import Mapping
from itertools import product

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from blockyard.core.events import (
    BlockColumns,
    BlockScope,
    ClearedEvent,
    EventOwner,
    KvEvent,
    OffloadedEvent,
    OwnerKind,
    PublishedEvent,
    RemovedEvent,
    StoredEvent,
)
from blockyard.core.holder_index import HolderIndex
from blockyard.core.tier_digest import TierDigest
from blockyard.core.vocabulary import (
    ROOT_KEY,
    ContentKey,
    Epoch,
    EventSeq,
    GroupId,
    IdentityDigest,
    TenantDigest,
    Tier,
)
from blockyard.testing.event_fold import EventFold

NODES = ("node-a", "node-b", "node-c")
ENGINES = {
    "node-a": (EventOwner(OwnerKind.ENGINE, "a", 0), EventOwner(OwnerKind.ENGINE, "a", 1)),
    "node-b": (EventOwner(OwnerKind.ENGINE, "b", 0),),
    "node-c": (EventOwner(OwnerKind.ENGINE, "c", 0), EventOwner(OwnerKind.ENGINE, "b", 0)),
}
SHARED = EventOwner(OwnerKind.SHARED, "g4")
IDENTITIES = tuple(IdentityDigest(bytes([number]) * 32) for number in (1, 2))
GROUPS = (GroupId(0), GroupId(1))
HALVES = [bytes([letter]) * 8 for letter in range(5)]
KEYS = tuple(ContentKey(first + second) for first, second in product(HALVES, HALVES))[:24]
"""Made of few halves, so that two neighbours often look like a third key between them."""
TENANTS = {key: TenantDigest(bytes([2 * number // len(KEYS)]) * 16) for number, key in enumerate(KEYS)}
"""A key has one tenant, because it is hashed out of it."""
PAGE = 4
Holdings = Mapping[tuple[IdentityDigest, GroupId, ContentKey], list[tuple[str, EventOwner, Tier]]]

nodes = st.sampled_from(NODES)
identities = st.sampled_from(IDENTITIES)
groups = st.sampled_from(GROUPS)
chains = st.builds(lambda start, blocks: list(KEYS[start : start + blocks]), st.integers(0, 23), st.integers(1, 24))
parts = st.one_of(chains, chains, st.lists(st.sampled_from(KEYS), min_size=1, max_size=8))


@st.composite
def holdings(draw: st.DrawFn, node: str) -> tuple[EventOwner, Tier]:
    tier = draw(st.sampled_from(Tier))
    if tier is Tier.G1:
        return draw(st.sampled_from(ENGINES[node])), tier
    return (SHARED, tier) if tier is Tier.G4 else (EventOwner(OwnerKind.NODE, node), tier)


@st.composite
def stores(draw: st.DrawFn, node: str) -> StoredEvent:
    owner, tier = draw(holdings(node))
    keys = draw(parts)
    keys = [key for key in keys if TENANTS[key] == TENANTS[keys[0]]]
    scope = BlockScope(draw(identities), TENANTS[keys[0]], draw(groups), 16)
    columns = BlockColumns.of(tuple(keys), (ROOT_KEY,) * len(keys), (0,) * len(keys))
    return StoredEvent(owner, tier, scope, columns)


@st.composite
def additions(draw: st.DrawFn, node: str) -> KvEvent:
    stored = draw(stores(node))
    if draw(st.booleans()):
        return stored
    return OffloadedEvent(stored.owner, Tier.G1, stored.tier, stored.scope, stored.blocks)


@st.composite
def losses(draw: st.DrawFn, fold: EventFold) -> KvEvent:
    """Some blocks of a set go, together with some that are not in it."""
    block = draw(st.sampled_from(sorted(fold.held, key=repr)))
    if draw(st.integers(0, 3)):
        return RemovedEvent(block.owner, block.tier, block.identity, (block.key, *draw(parts)), block.group)
    facts = (block.owner, block.tier, block.identity, TENANTS[block.key])
    narrow = draw(st.tuples(*[st.booleans()] * 4))
    owner, tier, identity, tenant = (fact if is_narrow else None for fact, is_narrow in zip(facts, narrow, strict=True))
    return ClearedEvent(owner, tier, identity, tenant)  # type: ignore[arg-type]


class IndexMachine(RuleBasedStateMachine):
    """Three nodes with engines that one of them shares, two identities, two groups."""

    max_blocks = 1_000

    @initialize()
    def start(self) -> None:
        self.index = HolderIndex(self.max_blocks, page=PAGE)
        self.sets = {node: EventFold() for node in NODES}
        self.credited: dict[str, tuple[EventOwner, ...]] = {}
        for node in NODES:
            self.lease_lives(node, 2)

    # --- changes ------------------------------------------------------------------------------------------------------
    @rule(data=st.data(), node=nodes, skipped=st.integers(0, 2))
    def blocks_enter(self, data: st.DataObject, node: str, skipped: int) -> None:
        self._announce(node, data.draw(additions(node)), skipped)

    @rule(data=st.data(), node=nodes, skipped=st.integers(0, 2))
    def more_blocks_enter(self, data: st.DataObject, node: str, skipped: int) -> None:
        self._announce(node, data.draw(additions(node)), skipped)

    @precondition(lambda self: any(fold.held for fold in self.sets.values()))
    @rule(data=st.data(), skipped=st.integers(0, 2))
    def blocks_leave(self, data: st.DataObject, skipped: int) -> None:
        node = data.draw(st.sampled_from([node for node, fold in self.sets.items() if fold.held]))
        self._announce(node, data.draw(losses(self.sets[node])), skipped)

    @precondition(lambda self: any(fold.held for fold in self.sets.values()))
    @rule(data=st.data(), blocks=st.integers(1, 3))
    def blocks_leave_and_come_back(self, data: st.DataObject, blocks: int) -> None:
        """Then a key lies elsewhere, while the row behind its parent still has its bytes."""
        node = data.draw(st.sampled_from([node for node, fold in self.sets.items() if fold.held]))
        block = data.draw(st.sampled_from(sorted(self.sets[node].held, key=repr)))
        first = KEYS.index(block.key)
        keys = tuple(key for key in KEYS[first : first + blocks] if TENANTS[key] == TENANTS[block.key])
        columns = BlockColumns.of(keys, (ROOT_KEY,) * len(keys), (0,) * len(keys))
        scope = BlockScope(block.identity, TENANTS[block.key], block.group, 16)
        self._announce(node, RemovedEvent(block.owner, block.tier, block.identity, keys, block.group), 0)
        self._announce(node, StoredEvent(block.owner, block.tier, scope, columns), 0)

    def _announce(self, node: str, event: KvEvent, skipped: int) -> None:
        fold = self.sets[node]
        epoch = Epoch(max(fold.epoch, 1))
        self._receive(PublishedEvent(node, epoch, EventSeq(fold.cursor + 1 + skipped), event))

    @rule(data=st.data(), node=nodes)
    def later_life_speaks(self, data: st.DataObject, node: str) -> None:
        epoch = Epoch(self.sets[node].epoch + 1)
        self._receive(PublishedEvent(node, epoch, EventSeq(1), data.draw(additions(node))))

    @rule(data=st.data(), node=nodes, lives=st.integers(0, 2), back=st.integers(0, 3))
    def repeated_or_dead_word_changes_nothing(self, data: st.DataObject, node: str, lives: int, back: int) -> None:
        fold = self.sets[node]
        seq = fold.cursor - back if lives == 0 else fold.cursor + 1
        epoch = fold.epoch - lives
        if epoch >= 1 and seq >= 1:
            self._receive(PublishedEvent(node, Epoch(epoch), EventSeq(seq), data.draw(additions(node))))

    def _receive(self, published: PublishedEvent) -> None:
        self.sets[published.instance].receive(published)
        self.index.apply([published])

    @rule(data=st.data(), node=nodes, ahead=st.integers(0, 4))
    def snapshot_replaces_everything(self, data: st.DataObject, node: str, ahead: int) -> None:
        fold = self.sets[node]
        seq = fold.cursor + ahead
        events = data.draw(st.lists(stores(node), max_size=3))
        fold.epoch = max(fold.epoch, 1)
        fold.apply(ClearedEvent())
        for event in events:
            fold.apply(event)
        fold.cursor = seq
        self.index.restore(node, Epoch(fold.epoch), EventSeq(seq), events)

    @rule(node=nodes, lives=st.integers(-1, 1))
    def publisher_is_dropped(self, node: str, lives: int) -> None:
        fold = self.sets[node]
        fold.apply(ClearedEvent())
        fold.epoch, fold.cursor = max(fold.epoch, fold.epoch + lives), 0
        self.index.drop(node, Epoch(max(0, fold.epoch + min(lives, 0))))

    # --- credit -------------------------------------------------------------------------------------------------------
    @rule(node=nodes, engines=st.integers(0, 2))
    def lease_lives(self, node: str, engines: int) -> None:
        self.credited[node] = ENGINES[node][:engines]
        self.index.credit(node, self.credited[node])

    @rule(node=nodes)
    def lease_ends(self, node: str) -> None:
        self.credited.pop(node, None)
        self.index.discredit(node)

    @rule()
    def what_was_dropped_is_swept(self) -> None:
        for _ in range(200):
            self.index.apply([])
        held = {(block.identity, block.group, block.key) for fold in self.sets.values() for block in fold.held}
        if all(self.index.watermark(node).is_whole for node in NODES):
            assert self.index.blocks == len(held), "a key is kept while somebody holds it"

    # --- questions ----------------------------------------------------------------------------------------------------
    @rule(
        identity=identities,
        keys=parts,
        wanted=st.lists(groups, min_size=1, max_size=2, unique=True),
        deepest=st.sampled_from(Tier),
    )
    def anybody_asks(
        self, identity: IdentityDigest, keys: list[ContentKey], wanted: list[GroupId], deepest: Tier
    ) -> None:
        self._compare(self._holdings(), identity, keys, wanted, deepest)

    @invariant()
    def answers_are_those_of_the_sets(self) -> None:
        holdings = self._holdings()
        for identity in IDENTITIES:
            for first in range(0, len(KEYS), 2):
                self._compare(holdings, identity, list(KEYS[first : first + 6]), [GROUPS[0]], Tier.G4)

    @invariant()
    def numbers_and_digests_are_those_of_the_sets(self) -> None:
        for node, fold in self.sets.items():
            mark = self.index.watermark(node)
            assert (mark.epoch, mark.seq) == (fold.epoch, fold.cursor)
            if mark.is_whole:
                assert mark.held == tuple(
                    TierDigest(
                        len(held),
                        sum(int.from_bytes(key[:8], "little") ^ int.from_bytes(key[8:], "little") for key in held)
                        % 2**64,
                    )
                    for held in ([block.key for block in fold.held if block.tier is tier] for tier in Tier)
                )

    @invariant()
    def keys_are_bounded(self) -> None:
        assert self.index.blocks <= self.max_blocks

    def _compare(
        self,
        holdings: Holdings,
        identity: IdentityDigest,
        keys: list[ContentKey],
        wanted: list[GroupId],
        deepest: Tier,
    ) -> None:
        answers = self.index.longest_prefix(identity, keys, wanted, deepest)
        found = {reader: answer.by_tier for answer in answers for reader in answer.readers}
        readers = [reader for answer in answers for reader in answer.readers]
        assert len(readers) == len(set(readers)), "a reader is in one answer"
        lengths = [answer.blocks for answer in answers]
        assert lengths == [sum(answer.by_tier) for answer in answers]
        assert lengths == sorted(lengths, reverse=True), "longest first"
        self._check(found, self._expected(holdings, identity, keys, wanted, deepest))

    def _check(self, found: Mapping[EventOwner, tuple[int, ...]], expected: dict[EventOwner, tuple[int, ...]]) -> None:
        assert found == expected

    def _expected(
        self,
        holdings: Holdings,
        identity: IdentityDigest,
        keys: list[ContentKey],
        wanted: list[GroupId],
        deepest: Tier,
    ) -> dict[EventOwner, tuple[int, ...]]:
        expected = {}
        for reader in {reader for readers in self.credited.values() for reader in readers}:
            prefix: list[int] = []
            for key in keys:
                source = max(self._source(reader, holdings.get((identity, group, key), [])) for group in wanted)
                if source > deepest:
                    break
                prefix.append(source)
            if prefix:
                expected[reader] = tuple(operator.countOf(prefix, tier) for tier in Tier)
        return expected

    def _source(self, reader: EventOwner, holders: list[tuple[str, EventOwner, Tier]]) -> int:
        """Fastest tier from which a reader gets a block with these holders; 5 where there is none."""
        tiers = [
            tier
            for node, owner, tier in holders
            if owner == SHARED or (reader in self.credited[node] and (owner == reader or owner.kind is OwnerKind.NODE))
        ]
        return min(tiers, default=5)

    def _holdings(self) -> Holdings:
        """What nodes with credit hold."""
        holdings: dict[tuple[IdentityDigest, GroupId, ContentKey], list[tuple[str, EventOwner, Tier]]] = {}
        for node in self.credited:
            for block in self.sets[node].held:
                place = block.identity, block.group, block.key
                holdings.setdefault(place, []).append((node, block.owner, block.tier))
        return holdings


class FullIndexMachine(IndexMachine):
    """The same with too little room: answers may be short, and are never too long."""

    max_blocks = 20

    def _check(self, found: Mapping[EventOwner, tuple[int, ...]], expected: dict[EventOwner, tuple[int, ...]]) -> None:
        for reader, by_tier in found.items():
            assert sum(by_tier) <= sum(expected[reader])
        if self.index.counts.refused_blocks == 0:
            assert found == expected


TestHolderIndex = IndexMachine.TestCase
TestHolderIndex.settings = settings(max_examples=40, stateful_step_count=30)
TestFullHolderIndex = FullIndexMachine.TestCase
TestFullHolderIndex.settings = settings(max_examples=40, stateful_step_count=30)
