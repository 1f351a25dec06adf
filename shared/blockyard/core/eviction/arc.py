"""ARC (Megiddo, Modha 2003): blocks used once and blocks used more often, the share of each learned from regrets.

Two LRU lists: one of blocks seen once, one of blocks seen again. Of both, the names of the blocks that were evicted are
remembered, each for as many blocks as the table has. A block that comes back soon after it left a list says that this
list was too short: its target grows by at least one.
As a table evicts before it registers, such a return acts from the next eviction on.
Invariants: a row counts for the list in which it last became inactive, also while it is in use; the target is 0 to the
capacity. Threading: the owner thread of the table.
"""

from collections.abc import Iterator, Sequence
from typing import Final, final

from blockyard.core.eviction.base import RowColumns
from blockyard.core.eviction.block_history import BlockHistory
from blockyard.core.eviction.row_keys import keys_of
from blockyard.core.eviction.row_rings import RowRings
from blockyard.core.eviction.row_set import RowSet
from blockyard.core.stored_key import StoredKey
from blockyard.core.vocabulary import BlockId

_NEW: Final = 0
_ONCE: Final = 1
_OFTEN: Final = 2


@final
class ArcPolicy:
    """ARC over the rows of a table."""

    __slots__ = ("_capacity", "_columns", "_counted", "_gone", "_level", "_rings", "_rows", "_sizes", "_target")

    def __init__(self, columns: RowColumns) -> None:
        """Make an empty order for the rows of a table."""
        capacity = self._capacity = columns.capacity
        self._columns = columns
        self._rows = RowSet(capacity)
        self._rings = RowRings(capacity, 3)
        self._level = bytearray(capacity)
        """List that a row will stand in when it becomes inactive next."""
        self._counted = bytearray(capacity)
        """List whose size counts the row."""
        self._sizes = [0, 0, 0]
        self._target = 0.0
        """Wanted size of the list of blocks seen once."""
        self._gone = {_ONCE: BlockHistory(capacity), _OFTEN: BlockHistory(capacity)}

    def __len__(self) -> int:
        """Number of rows held."""
        return len(self._rows)

    def __iter__(self) -> Iterator[BlockId]:
        """Rows in eviction order, as long as nothing is used."""
        rings = {level: self._rings.rows(level) for level in (_ONCE, _OFTEN)}
        heads = {level: next(ring, None) for level, ring in rings.items()}
        size = self._sizes[_ONCE]
        while any(head is not None for head in heads.values()):
            level = self._list_to_cut(heads[_ONCE] is not None, heads[_OFTEN] is not None, size)
            head, heads[level] = heads[level], next(rings[level], None)
            size -= level == _ONCE
            if head is not None:
                yield head

    def touch(self, blocks: Sequence[BlockId]) -> None:
        """Note the use; a block that is new in its row may be one that left lately."""
        level = self._level
        fresh = [row for row in dict.fromkeys(blocks) if not level[row]]
        back = {row for row, name in zip(fresh, keys_of(self._columns, fresh), strict=True) if self._came_back(name)}
        for row in blocks:
            level[row] = _OFTEN if level[row] or row in back else _ONCE

    def insert(self, blocks: Sequence[BlockId]) -> None:
        """Put each row behind all others of its list, the last row first."""
        self._rows.enter(blocks)
        level, rings = self._level, self._rings
        for row in blocks:
            if not level[row]:
                level[row] = _ONCE
            self._count(row, level[row])
        for wanted in (_ONCE, _OFTEN):
            rings.append([row for row in reversed(blocks) if level[row] == wanted], wanted)

    def remove(self, blocks: Sequence[BlockId]) -> None:
        """Take rows out of the order; their lists go on counting them."""
        self._rows.leave(blocks)
        self._rings.unlink(blocks)

    def take(self, count: int) -> list[BlockId]:
        """Remove and return rows: from the list that is above its target, else from the other."""
        taken: list[BlockId] = []
        rings = self._rings
        for _ in range(min(count, len(self._rows))):
            cut = self._list_to_cut(rings.has_rows(_ONCE), rings.has_rows(_OFTEN), self._sizes[_ONCE])
            (row,) = rings.take(1, cut)
            self._count(row, _NEW)
            taken.append(row)
        self._rows.leave(taken)
        return taken

    def put_back(self, blocks: Sequence[BlockId]) -> None:
        """Put rows in front of the lists from which they came."""
        self._rows.enter(blocks)
        for wanted in (_ONCE, _OFTEN):
            rows = [row for row in blocks if self._level[row] == wanted]
            self._rings.prepend(rows, wanted)
            for row in rows:
                self._count(row, wanted)

    def forget(self, blocks: Sequence[BlockId]) -> None:
        """Keep the names of the blocks by the list that they left."""
        level = self._level
        for wanted, gone in self._gone.items():
            rows = [row for row in blocks if level[row] == wanted]
            gone.add(keys_of(self._columns, rows), [0] * len(rows))
        for row in blocks:
            self._count(row, _NEW)
            level[row] = _NEW

    def violations(self) -> list[str]:
        """What contradicts the invariants, for checks."""
        broken = [*self._rows.violations(), *self._rings.violations()]
        if broken:
            return broken
        levels = {row: level for level in (_ONCE, _OFTEN) for row in self._rings.rows(level)}
        rules = {
            "not exactly the rows of the order stand in its lists": sorted(levels) == list(self._rows),
            "a row stands in another list than its own": all(
                level == self._level[row] == self._counted[row] for row, level in levels.items()
            ),
            "a list has another size than it counts": all(
                self._sizes[level] == self._counted.count(level) for level in (_ONCE, _OFTEN)
            ),
            "the target is beyond the table": 0 <= self._target <= self._capacity,
        }
        return [rule for rule, holds in rules.items() if not holds]

    # --- inside -------------------------------------------------------------------------------------------------------
    def _list_to_cut(self, once: bool, often: bool, once_size: int) -> int:
        return _ONCE if once and (once_size > self._target or not often) else _OFTEN

    def _count(self, row: BlockId, level: int) -> None:
        sizes, counted = self._sizes, self._counted
        if counted[row] != level:
            sizes[counted[row]] -= 1
            sizes[level] += 1
            counted[row] = level

    def _came_back(self, name: StoredKey) -> bool:
        """Whether the block left lately; if so the target moves towards the list that had no room for it."""
        once, often = self._gone[_ONCE], self._gone[_OFTEN]
        once_gone, often_gone = len(once), len(often)
        if once.recall(name) is not None:
            self._target = min(float(self._capacity), self._target + max(1.0, often_gone / once_gone))
            return True
        if often.recall(name) is not None:
            self._target = max(0.0, self._target - max(1.0, once_gone / often_gone))
            return True
        return False
