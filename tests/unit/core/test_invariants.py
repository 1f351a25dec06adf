"""The integrity check finds every kind of damage."""

from collections.abc import Callable

import pytest

from blockyard.core.block_table import BlockTable
from blockyard.core.errors import IntegrityError
from blockyard.core.eviction.lru import LruPolicy
from blockyard.core.invariants import check_table
from blockyard.core.registry import BlockRegistry
from blockyard.core.removal import evict
from blockyard.core.row_batch import RowBatch
from blockyard.core.states import DOOMED, DUPLICATE, OTHER_END, DuplicatePolicy, RowState
from blockyard.core.vocabulary import BlockId, GroupId, Tier
from blockyard.testing.blocks import chain, columns, key
from blockyard.testing.clock import FakeClock


def make_table() -> BlockTable:
    """Rows 0 and 1 are free, 2 mutable, 3 held, 4 inactive, 5 awaits freeing, 6 is abandoned, 7 duplicates 3."""
    table = BlockTable(Tier.G2, 8, LruPolicy, DuplicatePolicy.ALLOW, False, 1, BlockRegistry(), FakeClock())
    batch, _ = table.grant(8, evict=False)
    rows = batch.rows
    table.abandon(RowBatch(rows[6:7]))
    table.stage(RowBatch(rows[3:6]))
    holders = table.register(RowBatch(rows[3:6]), columns(chain("a", 3)).names())[0].rows
    table.release(RowBatch(holders[2:]))
    evict(table, 1)
    table.release(RowBatch(holders[1:2]))
    table.stage(RowBatch(rows[7:]))
    table.register(RowBatch(rows[7:]), columns(chain("a", 1)).names())
    table.discard(RowBatch(rows[:2]), RowState.MUTABLE)
    return table


def test_a_sound_table_passes() -> None:
    table = make_table()
    assert table.states.counts == [2, 1, 0, 2, 1, 1, 1]
    check_table(table)


def lose_free_row(table: BlockTable) -> None:
    table.free.pop(1)


def free_twice(table: BlockTable) -> None:
    table.free.push([BlockId(0)])


def free_abandoned_row(table: BlockTable) -> None:
    table.free.push([BlockId(6)])


def miscount(table: BlockTable) -> None:
    table.states.counts[RowState.FREE] += 1


def drop_reference(table: BlockTable) -> None:
    table.refs.column[3] = 0


def reference_inactive(table: BlockTable) -> None:
    table.refs.column[4] = 1


def forget_grant(table: BlockTable) -> None:
    table.generations.column[4] = 0


def doom_free_row(table: BlockTable) -> None:
    table.flags.set([BlockId(0)], DOOMED)


def forget_grant_of_abandoned_row(table: BlockTable) -> None:
    table.generations.column[6] = 0


def doom_abandoned_row(table: BlockTable) -> None:
    table.flags.set([BlockId(6)], DOOMED)


def forget_in_policy(table: BlockTable) -> None:
    table.policy.take(1)


def unindex(table: BlockTable) -> None:
    table.names.drop([BlockId(3)], table.names.keys_of([BlockId(3)]))


def index_by_other_key(table: BlockTable) -> None:
    table.names.write(RowBatch([BlockId(3)]), columns(chain("other", 1)).names())


def index_a_duplicate(table: BlockTable) -> None:
    table.names.replace(BlockId(7), 0, key("a"))


def miscount_flags(table: BlockTable) -> None:
    table.flags.flagged += 1


def forget_primary(table: BlockTable) -> None:
    table.primaries.clear()


def duplicate_another_key(table: BlockTable) -> None:
    table.primaries[BlockId(7)] = BlockId(4)


def duplicate_inactive_row(table: BlockTable) -> None:
    table.flags.set([BlockId(4)], DUPLICATE)


def release_the_reference_of_a_duplicate(table: BlockTable) -> None:
    table.primaries[BlockId(2)] = BlockId(3)
    table.flags.set([BlockId(2)], DUPLICATE)
    table.refs.column[3] = 1


def reset_a_free_row_on_release(table: BlockTable) -> None:
    table.flags.set([BlockId(0)], OTHER_END)


def duplicate_of_another_group(table: BlockTable) -> None:
    table.names.write(RowBatch([BlockId(7)]), columns(chain("a", 1), GroupId(1)).names())


def remember_a_grant_of_a_free_row(table: BlockTable) -> None:
    table.generations.remember(BlockId(0), 9)


def remember_an_earlier_grant(table: BlockTable) -> None:
    table.generations.latest[BlockId(3)] = 1


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
        index_a_duplicate,
        miscount_flags,
        forget_primary,
        duplicate_another_key,
        duplicate_inactive_row,
        duplicate_of_another_group,
        remember_a_grant_of_a_free_row,
        remember_an_earlier_grant,
        release_the_reference_of_a_duplicate,
        reset_a_free_row_on_release,
        announce_held_row,
    ],
)
def test_damage_is_found(damage: Callable[[BlockTable], None]) -> None:
    table = make_table()
    damage(table)
    with pytest.raises(IntegrityError):
        check_table(table)
