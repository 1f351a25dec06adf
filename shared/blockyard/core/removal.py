"""Ways in which blocks leave the index of a table: evicted, reset, condemned, cleared.

A clear is a *cut*, which decides, and sweeps of as many rows as its caller has time for::

    registered, in scope ──cut──► counts as absent ──sweep, or its key is stored again──► out of index and policy

A call that raises has changed nothing. Blocks that leave are in the result, so that the caller can announce them in the
same synchronous section.
Threading: the owner thread of the table.
"""

from collections.abc import Collection

import numpy as np
import numpy.typing as npt

from blockyard.core.block_facts import BlockFacts
from blockyard.core.block_table import BlockTable
from blockyard.core.clear_scope import ClearScope
from blockyard.core.errors import BlocksInUseError, KernelError
from blockyard.core.families import take_in_order
from blockyard.core.row_batch import RowBatch
from blockyard.core.states import ABANDONED, AWAIT_FREE, COMPLETE, DOOMED, FREE, HELD, INACTIVE, MUTABLE, CondemnOutcome
from blockyard.core.vocabulary import BlockId, ContentKey, Generation, GroupId


def evict(table: BlockTable, count: int) -> list[BlockId]:
    """INACTIVE → AWAIT_FREE, in policy order; as many as there are, up to ``count``, the last family whole."""
    if count < 0:
        raise KernelError("a block count is not negative", count=count)
    victims = table.take_victims(min(count, table.evictable))
    table.leave_index(victims)
    table.to_await_free(RowBatch(victims), INACTIVE)
    return victims


def reset_inactive(table: BlockTable) -> tuple[BlockFacts, ...]:
    """INACTIVE → FREE, all of them; their facts, in policy order.

    Raises:
        BlocksInUseError: rows are in somebody's hands (abandoned ones are in nobody's).
    """
    unused = table.states.counts[FREE] + table.states.counts[INACTIVE]
    wanted = table.capacity - table.states.counts[ABANDONED]
    if unused != wanted:
        raise BlocksInUseError(blocks=wanted, unused=unused, in_use=wanted - unused)
    rows = take_in_order(table.policy, table.states.column, len(table.policy))
    facts = table.leave_index(rows)
    table.to_free(RowBatch(rows), INACTIVE)
    return facts


def condemn(table: BlockTable, row: BlockId, generation: Generation) -> tuple[CondemnOutcome, tuple[BlockFacts, ...]]:
    """INACTIVE → AWAIT_FREE, or a HELD row becomes doomed; also the facts of a block that left the index by that."""
    registered = table.states.column[row] in (HELD, INACTIVE) and not table.flags.column[row] & DOOMED
    if not registered or table.generations.column[row] != generation:
        return CondemnOutcome.STALE, ()
    if table.states.column[row] == INACTIVE:
        table.policy.remove([row])
        facts = table.leave_index([row])
        table.to_await_free(RowBatch([row]), INACTIVE)
        return CondemnOutcome.DOOMED, facts
    facts = table.leave_index([row]) if table.is_findable(row) else ()
    table.flags.set([row], DOOMED)
    return CondemnOutcome.PINNED, facts


def cut(table: BlockTable, scope: ClearScope, elsewhere: Collection[BlockId]) -> tuple[int, int, int]:
    """Everything in scope counts as absent from now on, and all unregistered rows but those ``elsewhere`` are doomed.

    INACTIVE → AWAIT_FREE, though rows stand in index and policy until ``sweep`` takes them out; HELD, MUTABLE and
    COMPLETE rows become doomed. A few passes over columns, however many blocks that are.

    Returns the numbers of rows that nobody held, and of pinned and of unregistered rows that were doomed now.
    """
    inside = table.names.rows_in(scope)
    found = table.findable() & inside
    idle = found & (_column(table.states.column) == INACTIVE)
    pinned, in_flight = _doom(table, inside, elsewhere)
    table.names.cut_off(found)
    table.flags.clear_where(idle)
    table.states.change_where(idle, INACTIVE, AWAIT_FREE)
    table.registry.cleared()
    return int(np.count_nonzero(idle)), pinned, in_flight


def sweep(table: BlockTable, most: int) -> tuple[list[BlockId], list[tuple[ContentKey, GroupId]]]:
    """Take up to ``most`` rows that were cut off out of index and policy.

    Returns those of them that await freeing, and the names of all of them.
    """
    if table.names.cut is None:
        return [], []
    rows = table.names.cut.next_rows(most)
    names = zip(table.names.keys_of(rows), map(GroupId, table.names.groups_of(rows)), strict=True)
    return table.sweep(rows), list(names)


def _doom(table: BlockTable, inside: npt.NDArray[np.bool_], elsewhere: Collection[BlockId]) -> tuple[int, int]:
    """HELD rows of these, and unregistered rows but those ``elsewhere``, become doomed; returns how many of each."""
    state = _column(table.states.column)
    sound = _column(table.flags.column) & DOOMED == 0
    pinned = (state == HELD) & sound & inside
    in_flight = ((state == MUTABLE) | (state == COMPLETE)) & sound
    in_flight[list(elsewhere)] = False
    table.flags.set_where(pinned | in_flight, DOOMED)
    return int(np.count_nonzero(pinned)), int(np.count_nonzero(in_flight))


def _column(values: bytearray) -> npt.NDArray[np.uint8]:
    return np.frombuffer(values, dtype=np.uint8)
