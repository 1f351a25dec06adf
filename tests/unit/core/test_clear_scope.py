"""Clears of a part of a pool."""

import pytest

from blockyard.core.block_facts import StagedColumns
from blockyard.core.clear_scope import EVERYTHING, ClearScope
from blockyard.core.handles import MutableBlocks
from blockyard.core.pool import BlockPool
from blockyard.core.vocabulary import BlockId, ContentKey, GroupId, IdentityDigest, TenantDigest
from blockyard.testing.blocks import chain, make_pool

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
    report = pool.clear(scope)
    assert found(pool) == left
    assert len(report.doomed) == 2 * (3 - len(left))
    assert pool.inactive == 2 * len(left)
    gone = {facts.key for facts in report.left}
    assert gone == (set() if scope.is_everything else {key for run in "abc" if run not in left for key in keys(run)})
    report.doomed.release()
    pool.check_integrity()


def test_all_groups_are_in_scope_and_other_groups_of_others_are_not() -> None:
    pool = make_pool(12)
    for group in (0, 1):
        store(pool, "a", ONE, US, group).release()
        store(pool, "b", TWO, US, group).release()
    pool.clear(ClearScope(identity=ONE)).doomed.release()
    assert found(pool, 0) == found(pool, 1) == {"b"}
    pool.check_integrity()


def test_held_blocks_in_scope_are_doomed_until_their_last_release() -> None:
    pool = make_pool(8)
    store(pool, "a", ONE, US).release()
    store(pool, "b", TWO, US).release()
    with pool.pin_all(keys("a")), pool.pin_all(keys("b")):
        report = pool.clear(ClearScope(identity=ONE))
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
    report = pool.clear(ClearScope(identity=ONE), elsewhere=[BlockId(row) for row in theirs.ids])
    report.doomed.release()
    assert report.in_flight == 1
    assert pool.is_doomed(mine.ids[0])
    assert not pool.is_doomed(theirs.ids[0])
    for blocks in (mine, theirs):
        blocks.release()
    pool.check_integrity()
