"""Ways in which blocks leave the index of a table: evicted, reset, condemned, cleared.

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
from blockyard.core.states import ABANDONED, COMPLETE, DOOMED, FREE, HELD, INACTIVE, MUTABLE, CondemnOutcome
from blockyard.core.vocabulary import BlockId, Generation


def evict(table: BlockTable, count: int) -> list[BlockId]:
    """INACTIVE → AWAIT_FREE, in policy order; as many as there are, up to ``count``, the last family whole."""
    if count < 0:
        raise KernelError("a block count is not negative", count=count)
    victims = table.take_victims(min(count, len(table.policy)))
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


def clear(table: BlockTable) -> tuple[list[BlockId], int, int]:
    """Empty the index. INACTIVE → AWAIT_FREE; HELD, MUTABLE and COMPLETE rows become doomed.

    Returns the rows that await freeing and the numbers of pinned and of unregistered rows that were doomed now.
    """
    idle = take_in_order(table.policy, table.states.column, len(table.policy))
    table.policy.forget(table.names.findable())
    table.names.index.clear()
    table.registry.cleared()
    table.to_await_free(RowBatch(idle), INACTIVE)
    return idle, *_doom(table, np.ones(table.capacity, dtype=np.bool_), ())


def clear_part(
    table: BlockTable, scope: ClearScope, elsewhere: Collection[BlockId]
) -> tuple[list[BlockId], int, int, tuple[BlockFacts, ...]]:
    """As ``clear``, for the blocks in scope and for all unregistered rows but those ``elsewhere``; also what left."""
    inside = table.names.rows_in(scope)
    found = table.findable() & inside
    idle = _rows(found & (np.frombuffer(table.states.column, dtype=np.uint8) == INACTIVE))
    table.policy.remove(idle)
    left = table.leave_index(_rows(found))
    table.to_await_free(RowBatch(idle), INACTIVE)
    return idle, *_doom(table, inside, elsewhere), left


def _doom(table: BlockTable, inside: npt.NDArray[np.bool_], elsewhere: Collection[BlockId]) -> tuple[int, int]:
    """HELD rows of these, and unregistered rows but those ``elsewhere``, become doomed; returns how many of each."""
    state = np.frombuffer(table.states.column, dtype=np.uint8)
    sound = np.frombuffer(table.flags.column, dtype=np.uint8) & DOOMED == 0
    pinned = (state == HELD) & sound & inside
    in_flight = ((state == MUTABLE) | (state == COMPLETE)) & sound
    in_flight[list(elsewhere)] = False
    table.flags.set(_rows(pinned | in_flight), DOOMED)
    return int(pinned.sum()), int(in_flight.sum())


def _rows(chosen: npt.NDArray[np.bool_]) -> list[BlockId]:
    return list(map(BlockId, np.flatnonzero(chosen).tolist()))
