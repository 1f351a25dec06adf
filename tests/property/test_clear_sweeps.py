"""Clears of any scope, swept in slices, while blocks are stored, found, held and written: what was cleared is absent.

The model knows for each name whether it is there and who holds it; which rows that are, and in which order the slices
go, is left to the pool.
"""

from collections import Counter
from typing import ClassVar

import pytest
from hypothesis import HealthCheck, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from blockyard.core import families
from blockyard.core.block_facts import StagedColumns
from blockyard.core.clear_scope import ClearScope
from blockyard.core.errors import BlockNotFoundError
from blockyard.core.eviction.base import PolicyFactory
from blockyard.core.eviction.lineage import LineagePolicy
from blockyard.core.eviction.lru import LruPolicy
from blockyard.core.eviction.retention import Retention
from blockyard.core.eviction.tide import TidePolicy
from blockyard.core.handles import ImmutableBlocks, MutableBlocks
from blockyard.core.registry import BlockRegistry
from blockyard.core.vocabulary import ContentKey, GroupId, IdentityDigest, TenantDigest, Tier
from blockyard.testing.blocks import chain, make_pool

ROWS = 24
POLICIES: dict[str, PolicyFactory] = {"lru": LruPolicy, "tide": TidePolicy, "lineage": LineagePolicy}
ONE, TWO = IdentityDigest(bytes([1]) * 32), IdentityDigest(bytes([2]) * 32)
US, THEM = TenantDigest(bytes([3]) * 16), TenantDigest(bytes([4]) * 16)
OWNERS = [(identity, tenant) for identity in (ONE, TWO) for tenant in (US, THEM)]
BLOCKS = 3
CHAINS = {owner: chain(f"chain {number}", BLOCKS) for number, owner in enumerate(OWNERS)}
"""A content key has one identity and tenant: both are hashed into it."""
GROUPS = (GroupId(0), GroupId(1))
SCOPES = [ClearScope(), ClearScope(ONE), ClearScope(TWO), ClearScope(tenant=US), ClearScope(TWO, THEM)]
Owner = tuple[IdentityDigest, TenantDigest]
Name = tuple[Owner, GroupId, int]


def names_of(owner: Owner, group: GroupId) -> list[Name]:
    return [(owner, group, index) for index in range(BLOCKS)]


def key_of(name: Name) -> ContentKey:
    return CHAINS[name[0]].key(name[2])


class SweptPool(RuleBasedStateMachine):
    """Clears beside everything else."""

    tried: ClassVar[Counter[str]] = Counter()

    @initialize(policy=st.sampled_from(sorted(POLICIES)))
    def start(self, policy: str) -> None:
        self.registry = BlockRegistry()
        self.pool = make_pool(ROWS, POLICIES[policy], registry=self.registry)
        self.there: set[Name] = set()
        self.held: list[tuple[ImmutableBlocks, list[Name]]] = []
        self.writing: list[tuple[MutableBlocks, Owner, GroupId]] = []

    # --- steps ---
    @rule(owner=st.sampled_from(OWNERS), group=st.sampled_from(GROUPS), hold=st.booleans())
    def store(self, owner: Owner, group: GroupId, hold: bool) -> None:
        """Also under the names of rows that were cleared and are not swept."""
        if self.pool.free >= BLOCKS:
            self.tried["stored again before it was swept"] += self.pool.unswept
            self.end_of(self.pool.allocate(BLOCKS, evict=False).blocks, owner, group, hold)

    @rule(owner=st.sampled_from(OWNERS), group=st.sampled_from(GROUPS))
    def start_to_write(self, owner: Owner, group: GroupId) -> None:
        if self.pool.free >= BLOCKS:
            self.writing.append((self.pool.allocate(BLOCKS, evict=False).blocks, owner, group))

    @precondition(lambda self: self.writing)
    @rule(hold=st.booleans())
    def end_to_write(self, hold: bool) -> None:
        self.end_of(*self.writing.pop(0), hold)

    def end_of(self, blocks: MutableBlocks, owner: Owner, group: GroupId, hold: bool) -> None:
        staged = StagedColumns.of_run(CHAINS[owner], owner[0], owner[1], group=group)
        doomed = self.pool.is_doomed(blocks.ids[0])
        registration = blocks.stage(staged).register()
        assert registration.doomed == (BLOCKS if doomed else 0)
        self.tried["doomed while written"] += doomed
        names = [] if doomed else names_of(owner, group)
        self.there.update(names)
        if hold:
            self.held.append((registration.blocks, names))
        else:
            registration.blocks.release()

    @rule(owner=st.sampled_from(OWNERS), group=st.sampled_from(GROUPS), prefix=st.booleans())
    def pin(self, owner: Owner, group: GroupId, prefix: bool) -> None:
        names, keys = names_of(owner, group), list(CHAINS[owner])
        there = [name in self.there for name in names]
        if prefix:
            matched = self.pool.match(keys, group)
            assert len(matched) == (there.index(False) if False in there else BLOCKS)
            self.held.append((matched, names[: len(matched)]))
        elif all(there):
            self.held.append((self.pool.pin_all(keys, group), names))
        else:
            with pytest.raises(BlockNotFoundError):
                self.pool.pin_all(keys, group)

    @precondition(lambda self: self.held)
    @rule(first=st.booleans())
    def let_go(self, first: bool) -> None:
        self.held.pop(0 if first else -1)[0].release()

    @rule(owner=st.sampled_from(OWNERS), spent=st.booleans())
    def hint(self, owner: Owner, spent: bool) -> None:
        keys = list(CHAINS[owner])
        hinted = self.pool.end_session(keys) if spent else self.pool.hint(keys, Retention(5))
        assert hinted == sum(name[0] == owner for name in self.there)

    @rule(scope=st.sampled_from(SCOPES), really=st.booleans())
    def cut(self, scope: ClearScope, really: bool) -> None:
        if not really:
            return
        inside = {name for name in self.there if scope.covers(*name[0])}
        held = {name for _, names in self.held for name in names}
        self.tried["cut within a sweep"] += self.pool.unswept
        in_flight = sum(len(blocks) for blocks, *_ in self.writing if not self.pool.is_doomed(blocks.ids[0]))
        report = self.pool.cut(scope)
        assert report.removed + report.pinned == len(inside)
        assert report.pinned == len(inside & held)
        assert report.in_flight == in_flight
        self.tried["pinned"] += report.pinned
        self.there -= inside
        # What is held of it is not what is found by these names from now on.
        self.held = [(handle, [name for name in names if name not in inside]) for handle, names in self.held]

    @precondition(lambda self: self.pool.unswept)
    @rule(most=st.integers(1, 8))
    def sweep(self, most: int) -> None:
        before = self.pool.unswept
        swept = self.pool.sweep(most)
        assert 1 <= len(swept.names) == before - self.pool.unswept <= most
        self.tried["swept in parts"] += self.pool.unswept
        swept.doomed.release()

    @rule(count=st.integers(0, 6), granted=st.booleans())
    def evict(self, count: int, granted: bool) -> None:
        before = {(block.group, block.key): block.refs for block in self.pool.registered()}
        swept = self.pool.unswept
        if granted:
            allocation = self.pool.allocate(min(self.pool.free + count, self.pool.available))
            facts = allocation.evicted
            allocation.blocks.release()
        else:
            doomed = self.pool.evict(count)
            facts = doomed.facts
            doomed.release()
        gone = {(block.group, block.key) for block in facts}
        keys = {block.key for block in facts}
        self.there = {name for name in self.there if (name[1], key_of(name)) not in gone}
        assert len(facts) == len(gone) >= min(count, sum(not refs for refs in before.values()))
        assert gone == {name for name, refs in before.items() if name[1] in keys and not refs}, "families go whole"
        assert self.pool.unswept == swept
        self.tried["evicted in a sweep"] += swept and len(facts)

    @rule()
    def drain(self) -> None:
        self.pool.drain_doomed().release()

    # --- after every step ---
    @invariant()
    def what_is_found_is_what_is_there(self) -> None:
        if not hasattr(self, "pool"):
            return
        self.pool.check_integrity()
        assert len(self.pool.registered()) == len(self.there)
        for owner, run in CHAINS.items():
            for group in GROUPS:
                present = [name in self.there for name in names_of(owner, group)]
                assert [row is not None for row in self.pool.find(run, group)] == present
                assert self.registry.holds(Tier.G2, list(run), group) == present
        facts = {(block.identity, block.tenant, block.group, block.key) for block in self.pool.registered()}
        assert facts == {(*name[0], name[1], key_of(name)) for name in self.there}
        assert self.pool.available == self.pool.free + self.pool.inactive
        assert {block.block for block in self.pool.next_victims(ROWS)} == {
            block.block for block in self.pool.registered() if not block.refs
        }

    def teardown(self) -> None:
        if not hasattr(self, "pool"):
            return
        for blocks, *_ in self.writing:
            blocks.release()
        for handle, _ in self.held:
            handle.release()
        while self.pool.unswept:
            self.pool.sweep(5).doomed.release()
        self.pool.drain_doomed().release()
        self.pool.check_integrity()
        assert self.pool.inactive == len(self.there)
        assert self.pool.free == ROWS - len(self.there)


SETTINGS = settings(
    max_examples=60, stateful_step_count=40, database=None, suppress_health_check=[HealthCheck.too_slow]
)
SEEDS = (1, 2, 3)


def test_what_was_cleared_is_absent_whatever_else_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    SweptPool.tried.clear()
    # So few that evictions in a sweep have to take what comes.
    monkeypatch.setattr(families, "SEARCHED_ROWS", 2)
    wanted = {"stored again before it was swept", "doomed while written", "cut within a sweep", "pinned"}
    wanted |= {"swept in parts", "evicted in a sweep"}
    for number in SEEDS:
        print("seed", number)
        run_state_machine_as_test(seed(number)(SweptPool), settings=SETTINGS)
        if all(SweptPool.tried[step] for step in wanted):
            break
    assert {step for step in wanted if not SweptPool.tried[step]} == set()
