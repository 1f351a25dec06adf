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
from blockyard.core.row_batch import RowBatch
from blockyard.core.states import INACTIVE
from blockyard.core.vocabulary import BlockId

MOST_ANCESTORS: Final = 2_048
"""Blocks that one release looks at beyond its own; of longer chains only the nearest ones."""
_NONE: Final[Sequence[BlockId]] = ()
_IDLE: Final = bytes((INACTIVE,))


def idle_ancestors(names: NameColumns, state: bytearray, batch: RowBatch) -> Sequence[BlockId]:
    """INACTIVE ancestors of rows, one at least, that are not INACTIVE yet, in chain order; a ``range`` if they can."""
    span = batch.span
    if span and names.chain_length(span.start, batch.size) == batch.size:
        runs = names.above(span.start, state, _IDLE, MOST_ANCESTORS)
        if not runs:
            return _NONE
        return runs[0] if len(runs) == 1 else [row for run in reversed(runs) for row in run]
    found: dict[BlockId, None] = {}
    for row in _heads(names, batch.rows):
        runs = names.above(row, state, _IDLE, MOST_ANCESTORS - len(found))
        found.update(dict.fromkeys(row for run in reversed(runs) for row in run if row not in found))
    return list(found)


def _heads(names: NameColumns, rows: list[BlockId]) -> list[BlockId]:
    """Rows whose parents are not the rows before them."""
    keys, parents = names.keys_of(rows), names.parents_of(rows)
    return [row for row, parent, before in zip(rows, parents, [None, *keys], strict=False) if parent != before]
