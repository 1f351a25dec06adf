"""Names of the blocks in the rows of one table, and the index by which they are found.

A name is a content key with the key before it in the chain, the position, and the scope (identity, tenant, KV group).
Keys lie side by side in one column of bytes, so that adjacent rows are compared with one call. A row is *joined* where
the row below it holds the block before its own: the key of that one is its parent then, and only rows that are not
joined keep a parent of their own, in an object array of numpy, which the garbage collector does not walk. The index of
a group maps bytes to integers, which it does not walk either.
Invariants: ``index[group][key]`` is a row whose columns say this group and key; names of rows that carry no block mean
nothing. A row that carries a block is joined only where the columns of the row below, whether or not that carries a
block still, say the key before its own, the position before its own and its scope.
While ``cut`` is there, entries of the rows that it marks count no more.
Threading: the owner thread of the table.
"""

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final, cast, final

import numpy as np
import numpy.typing as npt

from blockyard.core.block_facts import AdoptedBlock, BlockFacts, StagedNames
from blockyard.core.clear_scope import ClearScope
from blockyard.core.cut_rows import CutRows, SoundIndex
from blockyard.core.row_batch import RowBatch, long_runs_of
from blockyard.core.row_scopes import RowScope, RowScopes
from blockyard.core.vocabulary import KEY_BYTES, ROOT_KEY, BlockId, ContentKey, GroupId, IdentityDigest, TenantDigest

_fact: Final = partial(tuple.__new__, BlockFacts)
"""Facts from one tuple of all fields; the generated constructor costs twice as much."""
_Names = tuple[IdentityDigest, TenantDigest, GroupId]
_NONE: Final[Mapping[ContentKey, BlockId]] = {}
_APART: Final = 0
_JOINED: Final = 1
_TEMPLATE_ROWS: Final = 4_096
_COMPARED: Final = 64
"""So many keys are compared at first, then eight times as many as are known to be the same."""
_SCOPES: Final = 64
"""So many times the number of the latest scope is kept in a column."""
_POSITIONS: Final = array("I", range(_TEMPLATE_ROWS))


@final
class NameColumns:
    """Columns of names; the part of a table that eviction policies read (``RowColumns``)."""

    __slots__ = (
        "_joined",
        "_key",
        "_key_bytes",
        "_key_view",
        "_keys",
        "_latest",
        "_latest_scope",
        "_own_parent",
        "_parents",
        "_positions",
        "_scopes",
        "capacity",
        "cut",
        "index",
    )

    def __init__(self, capacity: int) -> None:
        """Make columns for ``capacity`` rows without names."""
        self.capacity = capacity
        self._keys = bytearray(KEY_BYTES * capacity)
        self._key_bytes = memoryview(self._keys)
        self._key_view = np.frombuffer(self._keys, dtype=f"V{KEY_BYTES}")
        self._key = cast("Callable[[int], ContentKey]", self._key_view.item)
        """Key of a row."""
        # Rows without names are joined, so that the first ones to be named need no parents. One more than there are
        # rows: what is behind the last one is not joined to it.
        self._joined = bytearray((_JOINED,)) * (capacity + 1)
        self._joined[0] = self._joined[capacity] = _APART
        self._parents = np.full(capacity, ROOT_KEY, dtype=object)
        self._own_parent = cast("Callable[[int], ContentKey]", self._parents.item)
        """Parent of a row that is not joined."""
        self._positions = array("I", (0,)) * capacity
        self._scopes = RowScopes(capacity)
        self._latest: _Names | None = None
        """Scope of the latest call that named rows."""
        self._latest_scope = array("I")
        self.index: dict[int, dict[ContentKey, BlockId]] = {}
        self.cut: CutRows | None = None

    # --- what policies read -----------------------------------------------------------------------------------------
    def keys_of(self, rows: Sequence[BlockId]) -> list[ContentKey]:
        """Content keys, aligned with ``rows``."""
        return list(map(self._key, rows))

    def parents_of(self, rows: Sequence[BlockId]) -> list[ContentKey]:
        """Keys of the blocks before them in their chains."""
        joined = bytes(map(self._joined.__getitem__, rows))
        if _JOINED not in joined:
            return list(map(self._own_parent, rows))
        if _APART not in joined:
            return list(map(self._key, (row - 1 for row in rows)))
        key, own = self._key, self._own_parent
        return [key(row - 1) if mark else own(row) for row, mark in zip(rows, joined, strict=True)]

    def positions_of(self, rows: Sequence[BlockId]) -> list[int]:
        """Positions in their chains."""
        return list(map(self._positions.__getitem__, rows))

    def groups_of(self, rows: Sequence[BlockId]) -> list[int]:
        """KV groups."""
        return [scope.group for scope in self._scopes.of(rows)]

    # --- reading ----------------------------------------------------------------------------------------------------
    def in_group(self, group: int) -> Mapping[ContentKey, BlockId]:
        """Findable rows of a group by key."""
        index = self.index.get(group, _NONE)
        return index if self.cut is None else SoundIndex(index, self.cut.marks)

    @property
    def groups(self) -> tuple[int, ...]:
        """Groups with an index."""
        return tuple(self.index)

    def same_keys(self, first: BlockId, keys: list[ContentKey]) -> int:
        """How many of these keys, of 16 bytes each, the rows from ``first`` on carry in this order."""
        most, count = min(len(keys), self.capacity - first), _COMPARED
        start = KEY_BYTES * first
        while True:
            count = min(count, most)
            wanted = b"".join(keys[:count])
            known = self._keys[start : start + len(wanted)]
            if known != wanted:
                break
            if count == most:
                return count
            count *= 8
        same, above = 0, count
        while above - same > 1:
            middle = (same + above) // 2
            if known.startswith(wanted[: KEY_BYTES * middle]):
                same = middle
            else:
                above = middle
        return same

    def chain_length(self, first: BlockId, most: int) -> int:
        """How many rows from ``first`` on, at most so many, are one run of one chain in one scope, as columns tell."""
        apart = self._joined.find(_APART, first + 1, first + most)
        return most if apart < 0 else apart - first

    def findable(self) -> list[BlockId]:
        """All rows that the index names, group by group."""
        rows = [row for index in self.index.values() for row in index.values()]
        return rows if self.cut is None else [row for row in rows if not self.cut.marks[row]]

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

    def above(self, row: BlockId, marks: bytearray, mark: bytes, limit: int) -> Sequence[BlockId]:
        """Findable rows of the blocks before this one in its chain, as far as they bear the mark; in chain order.

        A ``range`` where they are adjacent.
        """
        joined, positions = self._joined, self._positions
        index: Mapping[ContentKey, BlockId] | None = None
        found: list[int] = []
        run = range(0)
        below: int = row
        while limit > 0 and positions[below]:
            first = below
            if joined[below]:
                lowest = max(below - limit, 0)
                first = max(joined.rfind(_APART, lowest, below), lowest)
                first += len(marks[first:below].rstrip(mark))
            if first < below:
                found += run[::-1]
                run = range(first, below)
                limit -= below - first
                below = first
                continue
            # What the row below held may be in another row by now.
            if index is None:
                [scope] = self._scopes.of([row])
                index = self.index.get(scope.group, _NONE)
            above = index.get(self._parent(below))
            # Positions that fall end also where names contradict each other.
            if above is None or marks[above] != mark[0] or positions[above] >= positions[below]:
                break
            found += run[::-1]
            run = range(0)
            found.append(above)
            limit -= 1
            below = above
        if not found:
            return cast("Sequence[BlockId]", run)
        found += run[::-1]
        return cast("list[BlockId]", found[::-1])

    # --- writing ----------------------------------------------------------------------------------------------------
    def write(self, batch: RowBatch, names: StagedNames) -> None:
        """Name rows of one batch, aligned."""
        if not batch.size:
            return
        scope = self._number((names.identity, names.tenant, names.group))
        keys, parents, span = names.keys, names.parents, batch.span
        batch.is_chain = parents[1:] == keys[:-1]
        if not batch.is_chain or not _is_counting(names.positions):
            self._write_rows(batch.rows, names, scope[0])
        elif span:
            self._write_run(span.start, keys, parents[0], names.positions, scope)
        elif runs := long_runs_of(batch.rows):
            done = 0
            for first, stop in runs:
                part = slice(done, done + stop - first)
                self._write_run(first, keys[part], parents[done], names.positions[part], scope)
                done = part.stop
        else:
            self._write_rows(batch.rows, names, scope[0])

    def _write_run(
        self, first: int, keys: list[ContentKey], parent: ContentKey, places: Sequence[int], scope: "array[int]"
    ) -> None:
        """Name adjacent rows, which hold one run of one chain."""
        joined, positions = self._joined, self._positions
        start, count = places[0], len(keys)
        stop = first + count
        span = slice(first, stop)
        # A row without a place in a chain, joined or not, has no parent to save.
        behind = self._parent(stop) if joined[stop] and positions[stop] else None
        self._key_bytes[KEY_BYTES * first : KEY_BYTES * stop] = b"".join(keys)
        if start + count <= _TEMPLATE_ROWS:
            positions[span] = _POSITIONS[start : start + count]
        else:
            positions[span] = array("I", places)
        self._scopes.column[span] = scope[:count] if count <= len(scope) else scope[:1] * count
        if joined.find(_APART, first + 1, stop) >= 0:
            inner = slice(first + 1, stop)
            self._parents[inner] = ROOT_KEY
            joined[inner] = bytes((_JOINED,)) * (count - 1)
        self._follow(first, parent)
        if behind is not None:
            self._follow(stop, behind)

    def _number(self, names: _Names) -> "array[int]":
        """Number of a scope, some times; the scope of one call is mostly that of the next."""
        if names != self._latest:
            # Only a call like this one can give a number that no row carries to another scope.
            self._latest = RowScope(*names)
            self._latest_scope = array("I", (self._scopes.number(self._latest),)) * _SCOPES
        return self._latest_scope

    def _write_rows(self, rows: list[BlockId], names: StagedNames, scope: int) -> None:
        """Name rows in any order, each for itself."""
        joined, own, keys = self._joined, self._parents, self._key_view
        positions, scopes = self._positions, self._scopes.column
        follower, parent_there, position_there = -1, ROOT_KEY, -1
        then = [*rows, -1][1:]
        named = zip(rows, then, names.keys, names.parents, names.positions, strict=True)
        for row, next_row, key, parent, position in named:
            above = row + 1
            if joined[above] and next_row != above and positions[above]:
                own[above] = self._key(row)
                joined[above] = _APART
            keys[row] = key
            positions[row] = position
            scopes[row] = scope
            if row == follower and parent == parent_there and position == position_there:
                if not joined[row]:
                    joined[row] = _JOINED
                    own[row] = ROOT_KEY
            elif positions[row - 1] + 1 == position and row:
                self._follow(row, parent)
            else:
                own[row] = parent
                joined[row] = _APART
            follower, parent_there, position_there = above, key, position + 1

    def _write_row(self, row: BlockId, key: ContentKey, parent: ContentKey, position: int, scope: int) -> None:
        named_above = row + 1 < self.capacity and self._positions[row + 1]
        behind = self._parent(row + 1) if named_above else None
        self._key_view[row] = key
        self._positions[row] = position
        self._scopes.column[row] = scope
        self._follow(row, parent)
        if behind is not None:
            self._follow(row + 1, behind)

    def _follow(self, row: int, parent: ContentKey) -> None:
        """Give a row its parent: it is joined to the row below, if the columns say so."""
        positions, scopes = self._positions, self._scopes.column
        joined = (
            row > 0
            and positions[row] == positions[row - 1] + 1
            and scopes[row] == scopes[row - 1]
            and parent == self._key(row - 1)
        )
        self._joined[row] = joined
        self._parents[row] = ROOT_KEY if joined else parent

    def _parent(self, row: int) -> ContentKey:
        return self._key(row - 1) if self._joined[row] else self._own_parent(row)

    def write_stored(self, record: AdoptedBlock) -> None:
        """Name the row of one block that was found by its header."""
        scope = self._number((record.identity, record.tenant, record.group))
        self._write_row(record.block, record.key, record.parent, record.position, scope[0])

    def enter(self, rows: Sequence[BlockId], group: int, keys: Sequence[ContentKey]) -> list[BlockId]:
        """Make rows findable; returns the rows that carry the keys now: those given, or earlier ones."""
        index = self.index.get(group)
        if index is None:
            index = self.index[group] = {}
        return list(map(index.setdefault, keys, rows))

    def replace(self, row: BlockId, group: int, key: ContentKey) -> None:
        """Make a row findable instead of whichever carries its key."""
        self.index.setdefault(group, {})[key] = row

    def drop(self, rows: Sequence[BlockId], keys: Sequence[ContentKey]) -> None:
        """Take findable rows, which have these keys, out of the index."""
        if len(self.index) == 1:
            [only] = self.index.values()
            for key in keys:
                del only[key]
        else:
            index = self.index
            for key, group in zip(keys, self.groups_of(rows), strict=True):
                del index[group][key]

    def relatives(self, rows: Iterable[BlockId]) -> list[BlockId]:
        """Findable rows of other groups with the keys of these rows."""
        listed = list(rows)
        keys, groups = self.keys_of(listed), self.groups_of(listed)
        return [
            found
            for key, group in zip(keys, groups, strict=True)
            for other in self.index
            if other != group and (found := self.in_group(other).get(key)) is not None
        ]

    # --- cutting off ------------------------------------------------------------------------------------------------
    def cut_off(self, chosen: npt.NDArray[np.bool_]) -> None:
        """Entries of the findable rows chosen here count no more."""
        if chosen.any():
            self.cut = self.cut or CutRows(self.capacity)
            self.cut.add(chosen)

    def cut_off_of(self, keys: Iterable[ContentKey], group: int) -> list[BlockId]:
        """Rows that are cut off and whose entries stand at these keys."""
        if self.cut is None:
            return []
        index, marks = self.index.get(group, _NONE), self.cut.marks
        found = map(index.get, dict.fromkeys(keys))
        return [row for row in found if row is not None and marks[row]]

    def drop_cut_off(self, rows: Sequence[BlockId]) -> None:
        """Take the entries of rows that are cut off out of the index."""
        if self.cut is not None and rows:
            self.drop(rows, self.keys_of(rows))
            self.cut.remove(rows)
            if not self.cut.left:
                self.cut = None


def _is_counting(positions: Sequence[int]) -> bool:
    """Whether each is one above the one before it."""
    if isinstance(positions, range):
        return positions.step == 1
    return positions == list(range(positions[0], positions[0] + len(positions)))
