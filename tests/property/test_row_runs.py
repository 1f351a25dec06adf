"""Runs of adjacent rows, forwards and backwards, give what the index gives key by key, whatever became of the rows."""

import random

import pytest

from blockyard.core.ancestors import idle_ancestors
from blockyard.core.block_facts import AdoptedBlock, BlockFacts, StagedColumns
from blockyard.core.clear_scope import ClearScope
from blockyard.core.eviction.lru import LruPolicy
from blockyard.core.handles import ImmutableBlocks
from blockyard.core.identity import ModelIdentity
from blockyard.core.pool import BlockPool
from blockyard.core.row_batch import RowBatch
from blockyard.core.states import DuplicatePolicy, RowState
from blockyard.core.vocabulary import (
    DEFAULT_TENANT,
    KEY_BYTES,
    ROOT_KEY,
    BlockId,
    ContentKey,
    Generation,
    GroupId,
    TenantDigest,
    Tier,
)
from blockyard.testing.blocks import clear

_CAPACITY = 160
_DEPTH = 48
_CHAINS = [[ContentKey(bytes((chain, depth)) * (KEY_BYTES // 2)) for depth in range(_DEPTH)] for chain in range(1, 4)]
_GROUPS = [GroupId(0), GroupId(1)]
_TENANTS = [DEFAULT_TENANT, TenantDigest(b"t" * len(DEFAULT_TENANT))]
_IDENTITY = ModelIdentity(model="runs").digest()
_STEPS = 100
_LONGEST_HELD = 6


class _Node:
    """A pool that is used at random."""

    def __init__(self, seed: int, duplicates: DuplicatePolicy) -> None:
        self.chance = random.Random(seed)
        self.pool = BlockPool(Tier.G2, _CAPACITY, LruPolicy, duplicates=duplicates)
        self.held: list[ImmutableBlocks] = []
        self.longest_run = 0
        self.longest_line = 0

    def step(self) -> None:
        self.chance.choices(
            (self.register, self.hold, self.let_go, self.evict, self.condemn, self.clear, self.adopt),
            (9, 4, 6, 2, 2, 1, 1),
        )[0]()

    def register(self) -> None:
        start = self.chance.choice((0, 0, 8, 20))
        chain = self.chance.choice(_CHAINS)
        keys = chain[start : start + self.chance.choice((1, 3, 9, 16, 48))]
        if self.pool.available < len(keys):
            return
        columns = StagedColumns(
            keys=keys,
            parents=[chain[start - 1] if start else ROOT_KEY, *keys[:-1]],
            positions=range(start, start + len(keys)),
            identity=_IDENTITY,
            tenant=self.chance.choice(_TENANTS),
            group=self.chance.choice(_GROUPS),
        )
        self._keep(self.pool.allocate(len(keys)).blocks.stage(columns).register().blocks)

    def hold(self) -> None:
        chain = self.chance.choice(_CHAINS)
        self._keep(self.pool.match(chain[: self.chance.randrange(_DEPTH)], self.chance.choice(_GROUPS)))

    def let_go(self) -> None:
        if self.held:
            self.held.pop(self.chance.randrange(len(self.held))).release()

    def evict(self) -> None:
        self.pool.evict(self.chance.randrange(20)).release()

    def condemn(self) -> None:
        row = BlockId(self.chance.randrange(_CAPACITY))
        self.pool.condemn(row, self.pool.generation(row)).doomed.release()

    def clear(self) -> None:
        clear(self.pool, ClearScope(tenant=_TENANTS[1])).doomed.release()

    def check(self) -> None:
        for group in _GROUPS:
            for chain in _CHAINS:
                for asked in (chain, chain[self.chance.randrange(_DEPTH) :]):
                    found = self.pool.find(asked, group)
                    known = found[: found.index(None)] if None in found else found
                    with self.pool.match(asked, group) as blocks:
                        assert list(blocks.ids) == known
                    self.longest_run = max(self.longest_run, len(known))
        self.pool.drain_doomed().release()
        self.pool.check_integrity()

    def adopt(self) -> None:
        """Stored blocks that are found again, in any order; some of them in rows beside those of their parents."""
        chain, group = self.chance.choice(_CHAINS), self.chance.choice(_GROUPS)
        place = self.chance.randrange(_CAPACITY - _DEPTH)
        tenant = self.chance.choice(_TENANTS)
        known = self.pool.find(chain, group)
        records = [
            AdoptedBlock(
                BlockId(place + depth),
                Generation(self.pool.generation(BlockId(place + depth)) + 1),
                key,
                chain[depth - 1] if depth else ROOT_KEY,
                depth,
                _IDENTITY,
                tenant,
                group,
            )
            for depth, key in enumerate(chain)
            if known[depth] is None and self.pool.state(BlockId(place + depth)) is RowState.FREE
        ]
        self.pool.adopt(self.chance.sample(records, len(records))).losers.release()

    def check_names(self) -> None:
        """A row has the name that it was given, whoever was its neighbour since."""
        for fact in self.pool.registered():
            chain, depth = fact.key[0] - 1, fact.key[1]
            assert (fact.parent, fact.position) == (_CHAINS[chain][depth - 1] if depth else ROOT_KEY, depth)

    def check_ancestors(self) -> None:
        table = self.pool._table  # noqa: SLF001 - what a release reads
        for fact in self.pool.registered():
            found = idle_ancestors(table.names, table.states.column, RowBatch([fact.block]))
            assert list(found) == self._ancestors(fact)
            self.longest_line = max(self.longest_line, len(found))

    def _ancestors(self, fact: BlockFacts) -> list[BlockId]:
        """One lookup per block."""
        line: list[BlockId] = []
        [above] = self.pool.find([fact.parent], fact.group)
        while above is not None and self.pool.state(above) is RowState.INACTIVE:
            line.append(above)
            [above] = self.pool.find([self.pool.facts([above])[0].parent], fact.group)
        return line[::-1]

    def _keep(self, blocks: ImmutableBlocks) -> None:
        self.held.append(blocks)
        if len(self.held) > _LONGEST_HELD:
            self.let_go()


@pytest.mark.parametrize("duplicates", DuplicatePolicy)
@pytest.mark.parametrize("seed", range(4))
def test_a_match_pins_exactly_the_prefix_that_single_lookups_find(seed: int, duplicates: DuplicatePolicy) -> None:
    node = _Node(seed, duplicates)
    for _ in range(_STEPS):
        node.step()
        node.check()
        node.check_names()
        node.check_ancestors()
    while node.held:
        node.let_go()
    assert node.longest_run == _DEPTH
    assert node.longest_line > _DEPTH // 2


def test_a_chain_that_was_evicted_from_its_tail_is_found_as_far_as_it_stands() -> None:
    node = _Node(0, DuplicatePolicy.REJECT)
    chain = _CHAINS[0]
    columns = StagedColumns(keys=chain, parents=[ROOT_KEY] * _DEPTH, positions=range(_DEPTH), identity=_IDENTITY)
    node.pool.allocate(_DEPTH).blocks.stage(columns).register().blocks.release()
    node.pool.evict(30).release()
    with node.pool.match(chain) as blocks:
        assert list(blocks.ids) == list(range(_DEPTH - 30))


def test_blocks_that_are_found_in_any_order_are_one_run_again() -> None:
    node = _Node(1, DuplicatePolicy.REJECT)
    chain = _CHAINS[0]
    records = [
        AdoptedBlock(BlockId(row), Generation(1), key, chain[row - 1] if row else ROOT_KEY, row, _IDENTITY)
        for row, key in enumerate(chain)
    ]
    for record in node.chance.sample(records, len(records)):
        node.pool.adopt([record])
    table = node.pool._table  # noqa: SLF001 - what a release reads
    assert table.names.chain_length(BlockId(0), _DEPTH) == _DEPTH
    assert idle_ancestors(table.names, table.states.column, RowBatch([BlockId(_DEPTH - 1)])) == range(_DEPTH - 1)
    node.check_names()


def test_keys_of_other_widths_are_not_found_though_their_bytes_follow_each_other() -> None:
    node = _Node(0, DuplicatePolicy.REJECT)
    chain = _CHAINS[0]
    columns = StagedColumns(keys=chain, parents=[ROOT_KEY, *chain[:-1]], positions=range(_DEPTH), identity=_IDENTITY)
    node.pool.allocate(_DEPTH).blocks.stage(columns).register().blocks.release()
    text = b"".join(chain)
    shifted = [chain[0], ContentKey(text[KEY_BYTES : 2 * KEY_BYTES + 4]), ContentKey(text[2 * KEY_BYTES + 4 : 48])]
    with node.pool.match([*shifted, *chain[3:]]) as blocks:
        assert list(blocks.ids) == [0]


def test_a_block_at_the_position_of_its_parent_has_no_ancestors_though_they_lie_side_by_side() -> None:
    node = _Node(0, DuplicatePolicy.REJECT)
    chain = _CHAINS[0]
    for depth in (0, 1):
        columns = StagedColumns(
            keys=[chain[depth]], parents=[chain[depth - 1]], positions=[depth or 1], identity=_IDENTITY
        )
        node.pool.allocate(1).blocks.stage(columns).register().blocks.release()
    table = node.pool._table  # noqa: SLF001 - what a release reads
    assert not idle_ancestors(table.names, table.states.column, RowBatch([BlockId(1)]))
