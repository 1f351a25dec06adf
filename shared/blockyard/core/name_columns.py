"""Names of the blocks in the rows of one table, and the index by which they are found.

A name is a content key with the key before it in the chain, the position, and the scope (identity, tenant, KV group).
Columns of references are object arrays of numpy, which the garbage collector does not walk; the index of a group maps
bytes to integers, which it does not walk either.
Invariants: ``index[group][key]`` is a row whose columns say this group and key; names of rows that carry no block mean
nothing.
Threading: the owner thread of the table.
"""

import operator
from array import array
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Final, cast, final

import numpy as np
import numpy.typing as npt

from blockyard.core.block_facts import AdoptedBlock, BlockFacts, StagedNames
from blockyard.core.clear_scope import ClearScope
from blockyard.core.row_batch import RowBatch
from blockyard.core.row_scopes import RowScope, RowScopes
from blockyard.core.vocabulary import ROOT_KEY, BlockId, ContentKey

_fact: Final = partial(tuple.__new__, BlockFacts)
"""Facts from one tuple of all fields; the generated constructor costs twice as much."""
_WINDOW: Final = 64
"""Adjacent rows that are compared at once."""
_NONE: Final[Mapping[ContentKey, BlockId]] = {}


@final
class NameColumns:
    """Columns of names; the part of a table that eviction policies read (``RowColumns``)."""

    __slots__ = ("_keys", "_parents", "_positions", "_scopes", "capacity", "index")

    def __init__(self, capacity: int) -> None:
        """Make columns for ``capacity`` rows without names."""
        self.capacity = capacity
        self._keys = np.full(capacity, ROOT_KEY, dtype=object)
        self._parents = np.full(capacity, ROOT_KEY, dtype=object)
        self._positions = array("I", (0,)) * capacity
        self._scopes = RowScopes(capacity)
        self.index: dict[int, dict[ContentKey, BlockId]] = {}

    # --- what policies read -----------------------------------------------------------------------------------------
    def keys_of(self, rows: Sequence[BlockId]) -> list[ContentKey]:
        """Content keys, aligned with ``rows``."""
        keys = self._keys
        return [keys[row] for row in rows]

    def parents_of(self, rows: Sequence[BlockId]) -> list[ContentKey]:
        """Keys of the blocks before them in their chains."""
        parents = self._parents
        return [parents[row] for row in rows]

    def positions_of(self, rows: Sequence[BlockId]) -> list[int]:
        """Positions in their chains."""
        return list(map(self._positions.__getitem__, rows))

    def groups_of(self, rows: Sequence[BlockId]) -> list[int]:
        """KV groups."""
        return [scope.group for scope in self._scopes.of(rows)]

    # --- reading ----------------------------------------------------------------------------------------------------
    def in_group(self, group: int) -> Mapping[ContentKey, BlockId]:
        """Findable rows of a group by key."""
        return self.index.get(group, _NONE)

    def keys_in(self, span: slice) -> list[ContentKey]:
        """Content keys of adjacent rows; fewer where the table ends."""
        return cast("list[ContentKey]", self._keys[span].tolist())

    def are_of_one_scope(self, span: slice) -> bool:
        """Whether adjacent rows carry names of one identity, tenant and group."""
        if len(self.index) == 1:
            return True
        scopes = self._scopes.column[span]
        return scopes == scopes[:1] * len(scopes)

    def findable(self) -> list[BlockId]:
        """All rows that the index names, group by group."""
        return [row for rows in self.index.values() for row in rows.values()]

    def facts(
        self, rows: Sequence[BlockId], generations: "array[int]", references: "array[int]"
    ) -> tuple[BlockFacts, ...]:
        """Facts of rows that carry a block, aligned; generation and references are columns of the table."""
        if not rows:
            return ()
        identities, tenants, groups = zip(*self._scopes.of(rows), strict=True)
        columns = zip(
            rows,
            map(generations.__getitem__, rows),
            self.keys_of(rows),
            self.parents_of(rows),
            map(self._positions.__getitem__, rows),
            identities,
            tenants,
            groups,
            map(references.__getitem__, rows),
            strict=True,
        )
        return tuple(map(_fact, columns))

    def rows_in(self, scope: ClearScope) -> npt.NDArray[np.bool_]:
        """Per row, whether its name is in scope; for rows that carry no block that means nothing."""
        return self._scopes.rows_in(scope)

    def above(self, row: BlockId, marks: bytearray, mark: int, limit: int) -> list[BlockId]:
        """Findable rows of the blocks before this one in its chain, the nearest first, as far as they bear the mark."""
        [scope] = self._scopes.of([row])
        index = self.index.get(scope.group, _NONE)
        found: list[BlockId] = []
        below = row
        while len(found) < limit:
            adjacent = self._run_above(below, marks, mark, limit - len(found))
            if adjacent:
                found += adjacent[::-1]
                below = adjacent[0]
                continue
            above = index.get(self._parents[below])
            # Positions that fall end also where names contradict each other.
            if above is None or marks[above] != mark or self._positions[above] >= self._positions[below]:
                break
            found.append(above)
            below = above
        return found

    def _run_above(self, row: BlockId, marks: bytearray, mark: int, limit: int) -> Sequence[BlockId]:
        """Adjacent rows below this row that hold the blocks before its own and bear the mark, in chain order."""
        count = min(row, limit, self._positions[row], _WINDOW)
        if not count or marks[row - 1] != mark or self._keys[row - 1] != self._parents[row]:
            return ()
        rows = slice(row - count, row)
        keys, parents = self.keys_in(rows), self._parents[rows.start + 1 : row + 1].tolist()
        if keys != parents:
            same = list(map(operator.eq, reversed(keys), reversed(parents)))
            count = same.index(False)
            rows = slice(row - count, row)
        marked = marks[rows]
        count -= len(marked.rstrip(bytes((mark,))))
        first = row - count
        if self._positions[first] != self._positions[row] - count or not self.are_of_one_scope(slice(first, row + 1)):
            return ()
        return cast("Sequence[BlockId]", range(first, row))

    # --- writing ----------------------------------------------------------------------------------------------------
    def write(self, batch: RowBatch, names: StagedNames) -> None:
        """Name rows of one batch, aligned."""
        keys, parents, positions, scopes = self._keys, self._parents, self._positions, self._scopes.column
        scope = self._scopes.number(RowScope(names.identity, names.tenant, names.group))
        if batch.span:
            keys[batch.span] = names.keys
            parents[batch.span] = names.parents
            positions[batch.span] = array("I", names.positions)
            scopes[batch.span] = array("I", (scope,)) * len(batch)
            return
        for row, key, parent, position in zip(batch.rows, names.keys, names.parents, names.positions, strict=True):
            keys[row] = key
            parents[row] = parent
            positions[row] = position
            scopes[row] = scope

    def write_stored(self, record: AdoptedBlock) -> None:
        """Name the row of one block that was found by its header."""
        row = record.block
        self._keys[row] = record.key
        self._parents[row] = record.parent
        self._positions[row] = record.position
        self._scopes.column[row] = self._scopes.number(RowScope(record.identity, record.tenant, record.group))

    def enter(self, rows: Sequence[BlockId], group: int, keys: Sequence[ContentKey]) -> list[BlockId]:
        """Make rows findable; returns the rows that carry the keys now: those given, or earlier ones."""
        index = self.index.get(group)
        if index is None:
            index = self.index[group] = {}
        return list(map(index.setdefault, keys, rows))

    def replace(self, row: BlockId, group: int, key: ContentKey) -> None:
        """Make a row findable instead of whichever carries its key."""
        self.index.setdefault(group, {})[key] = row

    def drop(self, rows: Sequence[BlockId]) -> list[ContentKey]:
        """Take findable rows out of the index; returns their keys."""
        keys = self.keys_of(rows)
        if len(self.index) == 1:
            [only] = self.index.values()
            for key in keys:
                del only[key]
        else:
            index = self.index
            for key, group in zip(keys, self.groups_of(rows), strict=True):
                del index[group][key]
        return keys

    def relatives(self, rows: Iterable[BlockId]) -> list[BlockId]:
        """Findable rows of other groups with the keys of these rows."""
        listed = list(rows)
        keys, groups = self.keys_of(listed), self.groups_of(listed)
        return [
            found
            for key, group in zip(keys, groups, strict=True)
            for other, index in self.index.items()
            if other != group and (found := index.get(key)) is not None
        ]
