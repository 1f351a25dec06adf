"""Names written into any rows, in any order and by any way, are what was written last, whatever lies beside them."""

import random
from array import array

import pytest

from blockyard.core.block_facts import AdoptedBlock, StagedColumns
from blockyard.core.identity import ModelIdentity
from blockyard.core.name_columns import NameColumns
from blockyard.core.row_batch import RowBatch
from blockyard.core.vocabulary import (
    DEFAULT_TENANT,
    KEY_BYTES,
    ROOT_KEY,
    BlockId,
    ContentKey,
    Generation,
    GroupId,
    TenantDigest,
)
from blockyard.testing.blocks import IDENTITY, make_pool

_CAPACITY = 64
_DEPTH = 40
_CHAINS = [[ContentKey(bytes((chain, depth)) * (KEY_BYTES // 2)) for depth in range(_DEPTH)] for chain in range(1, 4)]
_TENANTS = [DEFAULT_TENANT, TenantDigest(b"t" * KEY_BYTES)]
_IDENTITY = ModelIdentity(model="names").digest()
_Name = tuple[ContentKey, ContentKey, int, TenantDigest, int]


class _Model:
    """Columns, and what was written last into each row."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.columns = NameColumns(_CAPACITY)
        self.names: dict[BlockId, _Name] = {}
        self.joined = 0

    def step(self) -> None:
        chance = self.chance
        chain, start = chance.choice(_CHAINS), chance.randrange(_DEPTH)
        keys = chain[start : start + chance.choice((1, 2, 5, 16, 40))]
        parents = [chain[start - 1] if start else ROOT_KEY, *keys[:-1]]
        positions = list(range(start, start + len(keys)))
        if chance.random() < 0.2:
            positions = [chance.randrange(4) for _ in keys]
        if chance.random() < 0.2:
            parents = chance.choices(chain, k=len(keys))
        tenant, group = chance.choice(_TENANTS), GroupId(chance.randrange(2))
        rows = self._rows(len(keys))
        self.names.update(
            (row, (key, parent, position, tenant, group))
            for row, key, parent, position in zip(rows, keys, parents, positions, strict=True)
        )
        if chance.random() < 0.2:
            for row in rows:
                key, parent, position, _, _ = self.names[row]
                record = AdoptedBlock(row, Generation(1), key, parent, position, _IDENTITY, tenant, group)
                self.columns.write_stored(record)
            return
        staged = StagedColumns(
            keys=keys, parents=parents, positions=positions, identity=_IDENTITY, tenant=tenant, group=group
        )
        self.columns.write(RowBatch(rows), staged.names())

    def _rows(self, count: int) -> list[BlockId]:
        """Rows side by side, in a few runs, backwards, or anywhere."""
        first = self.chance.randrange(_CAPACITY - count + 1)
        rows = [BlockId(row) for row in range(first, first + count)]
        kind = self.chance.randrange(5)
        if kind == 0:
            return rows[::-1]
        if kind == 1:
            return rows[count // 2 :] + rows[: count // 2]
        if kind == 2:
            return self.chance.sample([BlockId(row) for row in range(_CAPACITY)], count)
        return rows

    def check(self) -> None:
        rows = sorted(self.names)
        parents = [self.names[row][1] for row in rows]
        assert self.columns.parents_of(rows) == parents
        assert [self.columns.parents_of([row])[0] for row in rows] == parents
        zeros = array("Q", (0,)) * _CAPACITY
        for fact in self.columns.facts(rows, zeros, zeros):
            assert (fact.key, fact.parent, fact.position, fact.tenant, fact.group) == self.names[fact.block]
        for row in rows:
            end = row + self.columns.chain_length(row, _CAPACITY)
            self.joined += end - row > 1
            # Rows that nobody named yet mean nothing.
            for above in (BlockId(other) for other in range(row + 1, end) if other in self.names):
                below = self.names[BlockId(above - 1)]
                key, parent, position, tenant, group = self.names[above]
                assert (parent, position, tenant, group) == (below[0], below[2] + 1, *below[3:]), key


@pytest.mark.parametrize("seed", range(6))
def test_every_row_keeps_the_name_that_was_written_last(seed: int) -> None:
    model = _Model(seed)
    for _ in range(120):
        model.step()
        model.check()
    assert model.joined


def test_a_batch_of_no_rows_is_named_and_registered_like_any_other() -> None:
    nothing = StagedColumns(keys=[], parents=[], positions=[], identity=IDENTITY)
    registration = make_pool(4).allocate(0).blocks.stage(nothing).register()
    assert (registration.blocks.release(), registration.duplicates, registration.doomed) == ((), 0, 0)
