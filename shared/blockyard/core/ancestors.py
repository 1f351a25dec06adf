"""Blocks before others in their chains that nobody holds: they are worth as much as what is behind them.

A prompt is stored in several jobs, which are released one after another. By release alone its first part would leave
before its last, which is of no use without it; so the ancestors of what is released stand in the order as if they were
released with it. That is no use of them: histories do not hear of it.
Invariants: a row is named once, before all rows of its chain that are named. The time is linear in what is found, at
most ``MOST_ANCESTORS`` rows; nothing recurses.
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


def idle_ancestors(names: NameColumns, state: bytearray, rows: Sequence[BlockId]) -> RowBatch:
    """INACTIVE ancestors of rows that are not INACTIVE yet, in chain order."""
    heads = _heads(names, rows)
    if len(heads) == 1:
        return RowBatch(names.above(heads[0], state, INACTIVE, MOST_ANCESTORS)[::-1])
    found: dict[BlockId, None] = {}
    for row in heads:
        above = names.above(row, state, INACTIVE, MOST_ANCESTORS - len(found))
        found.update(dict.fromkeys(ancestor for ancestor in reversed(above) if ancestor not in found))
    return RowBatch(list(found))


def _heads(names: NameColumns, rows: Sequence[BlockId]) -> list[BlockId]:
    """Rows whose parents are not the rows before them."""
    ends = names.positions_of([rows[0], rows[-1]])
    if ends[1] - ends[0] == len(rows) - 1:
        return [rows[0]]  # one run of one chain, as far as positions tell
    keys, parents = names.keys_of(rows), names.parents_of(rows)
    return [row for row, parent, before in zip(rows, parents, [None, *keys], strict=False) if parent != before]
