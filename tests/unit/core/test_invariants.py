"""The integrity check finds every kind of damage."""

from collections.abc import Callable

import pytest

from blockyard.core.block_table import BlockTable
from blockyard.core.errors import IntegrityError
from blockyard.core.eviction.lru import LruPolicy
from blockyard.core.invariants import check_table
from blockyard.core.states import RowState
from blockyard.core.vocabulary import BlockId
from blockyard.testing.blocks import chain, columns, key


def make_table() -> BlockTable:
    """Rows 0 and 1 are free, 2 mutable, 3 held, 4 inactive, 5 awaits freeing, 6 is abandoned."""
    table = BlockTable(7, LruPolicy)
    rows, _ = table.grant(7, evict=False)
    table.abandon(rows[6:])
    table.stage(rows[3:6], columns(chain("a", 3)), range(3))
    holders, _, _ = table.register(rows[3:6])
    table.release(holders[2:])
    table.evict(1)
    table.release(holders[1:2])
    table.discard(rows[:2], RowState.MUTABLE)
    return table


def test_a_sound_table_passes() -> None:
    table = make_table()
    assert table.counts == [2, 1, 0, 1, 1, 1, 1]
    check_table(table)


def lose_free_row(table: BlockTable) -> None:
    table.free.pop(1)


def free_twice(table: BlockTable) -> None:
    table.free.push([BlockId(0)])


def free_abandoned_row(table: BlockTable) -> None:
    table.free.push([BlockId(6)])


def miscount(table: BlockTable) -> None:
    table.counts[RowState.FREE] += 1


def drop_reference(table: BlockTable) -> None:
    table.refs[3] = 0


def reference_inactive(table: BlockTable) -> None:
    table.refs[4] = 1


def forget_grant(table: BlockTable) -> None:
    table.generation[4] = 0


def doom_free_row(table: BlockTable) -> None:
    table.doomed[0] = 1


def forget_grant_of_abandoned_row(table: BlockTable) -> None:
    table.generation[6] = 0


def doom_abandoned_row(table: BlockTable) -> None:
    table.doomed[6] = 1


def forget_in_policy(table: BlockTable) -> None:
    table.policy.take(1)


def unindex(table: BlockTable) -> None:
    table.unindex([BlockId(3)])


def index_by_other_key(table: BlockTable) -> None:
    table.keys[3] = key("other")


def announce_held_row(table: BlockTable) -> None:
    table.doomed_ready.append(BlockId(3))


@pytest.mark.parametrize(
    "damage",
    [
        lose_free_row,
        free_twice,
        free_abandoned_row,
        miscount,
        drop_reference,
        reference_inactive,
        forget_grant,
        forget_grant_of_abandoned_row,
        doom_free_row,
        doom_abandoned_row,
        forget_in_policy,
        unindex,
        index_by_other_key,
        announce_held_row,
    ],
)
def test_damage_is_found(damage: Callable[[BlockTable], None]) -> None:
    table = make_table()
    damage(table)
    with pytest.raises(IntegrityError):
        check_table(table)
