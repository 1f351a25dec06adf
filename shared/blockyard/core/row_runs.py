"""Leading rows of a chain: runs of adjacent rows instead of one lookup per key.

Blocks of a chain that were registered together mostly lie side by side. Where the index names the row of one key, the
keys of the rows behind it are compared with the keys asked for next: a lookup per key costs several times as much, as
each of them meets cold memory. Where runs are short, the index answers for the rest.
Invariants: the answer is that of the index, key by key.
Threading: the owner thread of the table.
"""

import operator
from typing import Final

from blockyard.core.name_columns import NameColumns
from blockyard.core.row_batch import RowBatch
from blockyard.core.row_flags import RowFlags
from blockyard.core.row_states import RowStates
from blockyard.core.states import HELD, INACTIVE
from blockyard.core.vocabulary import BlockId, ContentKey

_SHORT: Final = 8
"""A run of fewer rows is not worth looking for a next one."""
_WINDOW: Final = 64
_REGISTERED: Final = bytes((HELD, INACTIVE))
_NO_FLAG: Final = bytes(1)


def leading_rows(
    names: NameColumns, states: RowStates, flags: RowFlags, keys: list[ContentKey], group: int
) -> RowBatch:
    """Rows of the longest prefix of ``keys`` that the index of a group names."""
    index = names.in_group(group)
    rows: list[BlockId] = []
    done, window = 0, _WINDOW
    while len(keys) - done >= _SHORT:
        first = index.get(keys[done])
        if first is None:
            return RowBatch(rows)
        length = _run_length(names, states, flags, first, keys[done : done + window])
        if length == len(keys):
            return RowBatch.of_run(first, length)
        rows += map(BlockId, range(first, first + length))
        done += length
        window = 2 * max(length, _SHORT)
        if length < _SHORT:
            break
    found = list(map(index.get, keys[done:]))
    if None in found:
        del found[found.index(None) :]
    return RowBatch(rows + [row for row in found if row is not None])


def _run_length(names: NameColumns, states: RowStates, flags: RowFlags, first: BlockId, keys: list[ContentKey]) -> int:
    """How many of these keys the index names in adjacent rows, the first of them in ``first``."""
    known = names.keys_in(slice(first, first + len(keys)))
    length = len(known)
    if known != keys:
        same = list(map(operator.eq, known, keys))
        length = same.index(False) if False in same else length
    run = slice(first, first + length)
    length -= len(states.column[run].lstrip(_REGISTERED))
    if flags.flagged:
        marks = flags.column[run]
        length = min(length, len(marks) - len(marks.lstrip(_NO_FLAG)))
    if not names.are_of_one_scope(slice(first, first + length)):
        return 1
    # A row with a flag may be findable all the same.
    return max(length, 1)
