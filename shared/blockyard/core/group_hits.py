"""How far a prefix can be restored where a model has several KV groups.

A prefix of ``h`` rows is restorable when every group has the rows that attention needs to go on after row ``h - 1``:
a full group all rows below ``h``, a sliding window the rows that overlap its last ``window_tokens`` tokens. Groups pull
each other down, and a window may be whole at a short prefix and not at a longer one, so the answer is a fixed point:
every group in turn lowers ``h`` to its own largest boundary, until none does.
Invariants: the answer is never below the rows that the engine holds itself, and never above what any group was asked
for; each turn lowers ``h``, so there are at most as many turns as rows.
Threading: pure functions.
"""

from collections.abc import Sequence

from blockyard.core.errors import KernelError
from blockyard.core.kv_groups import GroupKind, KvGroup


def restorable_rows(
    groups: Sequence[KvGroup], held: Sequence[Sequence[bool]], local_rows: int, block_tokens: int
) -> int:
    """Rows of the longest prefix after which every group can go on.

    Args:
        groups: the model's groups.
        held: per group and row, counted from the start of the prompt, whether some tier holds the row.
        local_rows: the first rows, which the engine holds itself in all groups; ``held`` is not asked about them.
        block_tokens: tokens of a row.

    Raises:
        KernelError: groups and columns do not fit, or a window or a block is without tokens.
    """
    reaches = _all_reaches(groups, held, local_rows, block_tokens)
    if not reaches:
        return local_rows
    hit, before = len(reaches[0]) - 1, -1
    while hit != before:
        before = hit
        for reach in reaches:
            hit = reach[hit]
    return hit


def restorable_cuts(
    groups: Sequence[KvGroup], held: Sequence[Sequence[bool]], local_rows: int, block_tokens: int
) -> list[int]:
    """All numbers of rows beyond the local ones after which every group can go on, rising; arguments as above.

    The last of them is ``restorable_rows`` minus the local rows. A hit may be cut short at these only.

    Raises:
        KernelError: as above.
    """
    reaches = _all_reaches(groups, held, local_rows, block_tokens)
    boundaries = range(local_rows + 1, len(reaches[0])) if reaches else range(0)
    return [hit - local_rows for hit in boundaries if all(reach[hit] == hit for reach in reaches)]


def needed_rows(group: KvGroup, hit: int, local_rows: int, block_tokens: int) -> range:
    """Rows of a group that have to be loaded so that it can go on after ``hit`` rows, of which some are local.

    Raises:
        KernelError: a window or a block is without tokens.
    """
    return range(min(hit, max(local_rows, _first_needed(group, hit, block_tokens))), hit)


def _first_needed(group: KvGroup, hit: int, block_tokens: int) -> int:
    if block_tokens < 1:
        raise KernelError("a block has tokens", group=group.group, block_tokens=block_tokens)
    if group.kind is GroupKind.FULL:
        return 0
    if group.window_tokens < 1:
        raise KernelError("a window has tokens", group=group.group, window_tokens=group.window_tokens)
    return max(0, hit * block_tokens - group.window_tokens) // block_tokens


def _all_reaches(
    groups: Sequence[KvGroup], held: Sequence[Sequence[bool]], local_rows: int, block_tokens: int
) -> list[list[int]]:
    if len(groups) != len(held) or local_rows < 0:
        raise KernelError("one column per group is needed", groups=len(groups), columns=len(held), local=local_rows)
    asked = max(local_rows, min(map(len, held), default=0))
    return [
        _reaches(group, column, local_rows, asked, block_tokens) for group, column in zip(groups, held, strict=True)
    ]


def _reaches(group: KvGroup, column: Sequence[bool], local_rows: int, asked: int, block_tokens: int) -> list[int]:
    """Per number of rows, the largest number up to it after which this group can go on."""
    reaches = [0] * (asked + 1)
    whole_from = 0
    for hit in range(1, asked + 1):
        row = hit - 1
        if row >= local_rows and not column[row]:
            whole_from = hit
        restorable = hit <= local_rows or whole_from <= _first_needed(group, hit, block_tokens)
        reaches[hit] = hit if restorable else reaches[hit - 1]
    return reaches
