"""Leading rows of a chain: runs of adjacent rows instead of one lookup per key.

Blocks of a chain that were registered together mostly lie side by side. Where the index names the row of one key, the
keys of the rows that are joined to it are compared with the keys asked for next, all at once: a lookup per key costs
many times as much, as each of them meets cold memory. Where runs are short, the index answers for the rest.
Invariants: the answer is that of the index, key by key, whatever is asked for.
Threading: the owner thread of the table.
"""

from typing import Final, cast

from blockyard.core.name_columns import NameColumns
from blockyard.core.row_batch import RowBatch
from blockyard.core.row_flags import RowFlags
from blockyard.core.row_states import RowStates
from blockyard.core.states import HELD, INACTIVE
from blockyard.core.vocabulary import KEY_BYTES, BlockId, ContentKey

_SHORT: Final = 8
"""A run of fewer rows is not worth looking for a next one."""
_WIDTHS: Final = {KEY_BYTES}
_REGISTERED: Final = bytes((HELD, INACTIVE))
_NO_FLAG: Final = bytes(1)


def leading_rows(
    names: NameColumns, states: RowStates, flags: RowFlags, keys: list[ContentKey], group: int
) -> RowBatch:
    """Rows of the longest prefix of ``keys`` that the index of a group names."""
    index = names.in_group(group)
    rows: list[BlockId] = []
    done = 0
    # Keys of other widths, joined, might look like keys that are here.
    while len(keys) - done >= _SHORT and (done or set(map(len, keys)) == _WIDTHS):
        first = index.get(keys[done])
        if first is None:
            return RowBatch(rows)
        length = _run_length(names, states, flags, first, keys, done)
        if length == len(keys):
            return RowBatch.of_run(first, length)
        rows += cast("list[BlockId]", range(first, first + length))
        done += length
        if length < _SHORT:
            break
    found = list(map(index.get, keys[done:]))
    if None in found:
        del found[found.index(None) :]
    return RowBatch(rows + [row for row in found if row is not None])


def _run_length(
    names: NameColumns, states: RowStates, flags: RowFlags, first: BlockId, keys: list[ContentKey], done: int
) -> int:
    """How many of the keys from number ``done`` on the index names in adjacent rows, the first of them in ``first``."""
    length = names.chain_length(first, len(keys) - done)
    length = names.same_keys(first, keys[done : done + length])
    run = slice(first, first + length)
    length -= len(states.column[run].lstrip(_REGISTERED))
    if flags.flagged:
        marks = flags.column[run]
        length = min(length, len(marks) - len(marks.lstrip(_NO_FLAG)))
    # A row with a flag may be findable all the same.
    return max(length, 1)
