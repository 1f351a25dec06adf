"""Clears of a part of a pool."""

from collections.abc import Iterator, Sequence

import pytest

from blockyard.core.block_facts import StagedColumns
from blockyard.core.clear_scope import EVERYTHING, ClearScope
from blockyard.core.eviction.base import RowColumns
from blockyard.core.eviction.lru import LruPolicy
from blockyard.core.handles import MutableBlocks
from blockyard.core.pool import BlockPool
from blockyard.core.vocabulary import BlockId, ContentKey, GroupId, IdentityDigest, TenantDigest
from blockyard.testing.blocks import chain, clear, make_pool

ONE, TWO = IdentityDigest(bytes([1]) * 32), IdentityDigest(bytes([2]) * 32)
US, THEM = TenantDigest(bytes([3]) * 16), TenantDigest(bytes([4]) * 16)


def names(run: str, count: int, identity: IdentityDigest, tenant: TenantDigest, group: int = 0) -> StagedColumns:
    blocks = chain(run, count)
    return StagedColumns(
        keys=list(blocks),
        parents=[blocks.parent_of(index) for index in range(count)],
        positions=list(range(count)),
        identity=identity,
        tenant=tenant,
        group=GroupId(group),
    )


def store(pool: BlockPool, run: str, identity: IdentityDigest, tenant: TenantDigest, group: int = 0) -> MutableBlocks:
    """Register two blocks and let go; returns rows granted beside them, which nobody has named."""
    blocks = pool.allocate(2).blocks
    blocks.stage(names(run, 2, identity, tenant, group)).register().blocks.release()
    return pool.allocate(1).blocks


def keys(run: str) -> list[ContentKey]:
    return list(chain(run, 2))


def found(pool: BlockPool, group: int = 0) -> set[str]:
    return {run for run in "abc" if None not in pool.find(keys(run), GroupId(group))}


@pytest.mark.parametrize(
    ("scope", "left"),
    [
        (ClearScope(identity=ONE), {"c"}),
        (ClearScope(tenant=US), {"b"}),
        (ClearScope(ONE, US), {"b", "c"}),
        (ClearScope(TWO, THEM), {"a", "b", "c"}),
        (EVERYTHING, set()),
    ],
)
def test_only_what_is_in_scope_leaves(scope: ClearScope, left: set[str]) -> None:
    pool = make_pool(12)
    for run, identity, tenant in [("a", ONE, US), ("b", ONE, THEM), ("c", TWO, US)]:
        store(pool, run, identity, tenant).release()
    report = clear(pool, scope)
    assert found(pool) == left
    assert len(report.doomed) == 2 * (3 - len(left))
    assert pool.inactive == 2 * len(left)
    report.doomed.release()
    pool.check_integrity()


def test_all_groups_are_in_scope_and_other_groups_of_others_are_not() -> None:
    pool = make_pool(12)
    for group in (0, 1):
        store(pool, "a", ONE, US, group).release()
        store(pool, "b", TWO, US, group).release()
    clear(pool, ClearScope(identity=ONE)).doomed.release()
    assert found(pool, 0) == found(pool, 1) == {"b"}
    pool.check_integrity()


def test_held_blocks_in_scope_are_doomed_until_their_last_release() -> None:
    pool = make_pool(8)
    store(pool, "a", ONE, US).release()
    store(pool, "b", TWO, US).release()
    with pool.pin_all(keys("a")), pool.pin_all(keys("b")):
        report = clear(pool, ClearScope(identity=ONE))
        assert (len(report.doomed), report.pinned, report.in_flight) == (0, 2, 0)
        assert pool.doomed == 2
        assert found(pool) == {"b"}
    with pool.drain_doomed() as drained:
        assert len(drained) == 2
    assert pool.doomed == 0
    pool.check_integrity()


def test_what_is_being_written_is_doomed_unless_it_is_known_to_be_elsewhere() -> None:
    pool = make_pool(8)
    mine, theirs = store(pool, "a", ONE, US), store(pool, "b", TWO, US)
    report = clear(pool, ClearScope(identity=ONE), elsewhere=[BlockId(row) for row in theirs.ids])
    report.doomed.release()
    assert report.in_flight == 1
    assert pool.is_doomed(mine.ids[0])
    assert not pool.is_doomed(theirs.ids[0])
    for blocks in (mine, theirs):
        blocks.release()
    pool.check_integrity()


class NotingPolicy:
    """LRU that notes which blocks it is told to forget."""

    def __init__(self, columns: RowColumns) -> None:
        self._real = LruPolicy(columns)
        self._columns = columns
        self.forgotten: list[ContentKey] = []
        self.touch, self.insert, self.remove = self._real.touch, self._real.insert, self._real.remove
        self.take, self.put_back = self._real.take, self._real.put_back

    def __len__(self) -> int:
        return len(self._real)

    def __iter__(self) -> Iterator[BlockId]:
        return iter(self._real)

    def forget(self, blocks: Sequence[BlockId]) -> None:
        self.forgotten += self._columns.keys_of(blocks)


def test_the_policy_hears_once_of_each_block_however_it_is_swept() -> None:
    made: list[NotingPolicy] = []

    def make(columns: RowColumns) -> NotingPolicy:
        made.append(NotingPolicy(columns))
        return made[0]

    pool = make_pool(12, make)
    for run in "abc":
        store(pool, run, ONE, US).release()
    held = pool.pin_all(keys("a"))
    pool.cut()
    assert made[0].forgotten == []
    held.release()
    store(pool, "b", ONE, US).release()
    assert sorted(made[0].forgotten) == sorted(keys("a") + keys("b"))
    pool.sweep(12).doomed.release()
    assert sorted(made[0].forgotten) == sorted(key for run in "abc" for key in keys(run))
    pool.drain_doomed().release()
    pool.check_integrity()


def test_a_grant_amid_a_sweep_takes_families_whole() -> None:
    pool = make_pool(7)
    store(pool, "a", ONE, US).release()
    for group in (0, 1):
        store(pool, "b", TWO, US, group).release()
    pool.cut(ClearScope(identity=ONE))
    assert (pool.free, pool.inactive) == (1, 4)
    allocation = pool.allocate(2)
    assert [(facts.key, facts.group) for facts in allocation.evicted] == [(keys("b")[1], 0), (keys("b")[1], 1)]
    assert (pool.free, pool.inactive) == (1, 2)
    allocation.blocks.release()
    pool.sweep(7).doomed.release()
    assert (pool.free, pool.inactive) == (5, 2)
    pool.check_integrity()
