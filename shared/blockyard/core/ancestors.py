"""Blocks before others in their chains that nobody holds: they are worth as much as what is behind them.

A prompt is stored in several jobs, which are released one after another. By release alone its first part would leave
before its last, which is of no use without it; so the ancestors of what is released stand in the order as if they were
released with it. That is no use of them: histories do not hear of it.
Invariants: a row is named once, before all rows of its chain that are named. At most ``MOST_ANCESTORS`` rows are found;
the time is linear in the runs of adjacent rows in which they lie, and nothing recurses.
Threading: pure functions over columns that their owner does not change meanwhile.
"""

from collections.abc import Sequence
from typing import Final

from blockyard.core.name_columns import NameColumns
from blockyard.core.row_batch import RowBatch, long_runs_of
from blockyard.core.states import INACTIVE
from blockyard.core.vocabulary import BlockId

MOST_ANCESTORS: Final = 2_048
"""Blocks that one release looks at beyond its own; of longer chains only the nearest ones."""
_IDLE: Final = bytes((INACTIVE,))


def idle_ancestors(names: NameColumns, state: bytearray, batch: RowBatch) -> Sequence[BlockId]:
    """INACTIVE ancestors of rows, one at least, that are not INACTIVE yet, in chain order; a ``range`` if they can."""
    heads = _heads(names, batch)
    if len(heads) == 1:
        return names.above(heads[0], state, _IDLE, MOST_ANCESTORS)
    found: dict[BlockId, None] = {}
    for row in heads:
        above = names.above(row, state, _IDLE, MOST_ANCESTORS - len(found))
        found.update(dict.fromkeys(ancestor for ancestor in above if ancestor not in found))
    return list(found)


def _heads(names: NameColumns, batch: RowBatch) -> list[BlockId]:
    """Rows whose parents are not the rows before them."""
    rows = batch.ordered
    if batch.is_chain:
        return [rows[0]]
    first: Sequence[BlockId] = rows
    last: Sequence[BlockId] = rows
    if batch.span or (runs := long_runs_of(rows)):
        first, last = _joined_parts(names, [(rows[0], rows[0] + batch.size)] if batch.span else runs)
    parents, before = names.parents_of(first[1:]), names.keys_of(last[:-1])
    if parents == before:
        return [rows[0]]
    return [rows[0], *(row for row, parent, key in zip(first[1:], parents, before, strict=True) if parent != key)]


def _joined_parts(names: NameColumns, runs: Sequence[tuple[BlockId, int]]) -> tuple[list[BlockId], list[BlockId]]:
    """First and last row of each part of these runs that is one run of one chain, as columns tell."""
    first: list[BlockId] = []
    last: list[BlockId] = []
    for start, stop in runs:
        row = start
        while row < stop:
            first.append(row)
            row = BlockId(row + names.chain_length(row, stop - row))
            last.append(BlockId(row - 1))
    return first, last
