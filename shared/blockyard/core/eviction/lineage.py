"""Leaves first: a block goes only after all blocks behind it in its chains, as far as they are in the order.

Who is whose child is known from full names alone: children are counted under the name of their parent, whether that is
in the order or not, so a parent that comes later, or never, needs no care. A row becomes a leaf when the last child
leaves. Among leaves:

- ``TICK``: by the time at which each became inactive, the older first; a parent keeps its time.
- ``FIFO``: by the time at which each became a leaf.

Of chains A-B and X-Y that became inactive in the order A, B, X, Y the first evicts B, A, Y, X, the second B, Y, A, X.
Constant or logarithmic time per row whatever the depth; nothing recurses.
Invariants: every row without children in the order is among the leaves. Where names contradict each other, nothing is
refused: of two rows with one name the later is a leaf, and of rows that are each other's ancestors the oldest goes.
Threading: the owner thread of the table.
"""

import heapq
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence, Set
from enum import Enum, unique
from functools import partial
from itertools import repeat
from typing import Final, final

import numpy as np

from blockyard.core.eviction.base import RowColumns
from blockyard.core.eviction.row_heap import RowHeap
from blockyard.core.eviction.row_keys import keys_of, parents_of
from blockyard.core.eviction.row_set import RowSet
from blockyard.core.stored_key import ROOT, StoredKey
from blockyard.core.vocabulary import BlockId


@unique
class LeafOrder(Enum):
    """Which leaf goes first."""

    TICK = "tick"
    FIFO = "fifo"


@final
class LineagePolicy:
    """Leaf-only eviction over the rows of a table."""

    __slots__ = (
        "_children",
        "_columns",
        "_keys",
        "_leaves",
        "_named",
        "_order",
        "_parents",
        "_rows",
        "_tick",
        "_ticks",
    )

    def __init__(self, columns: RowColumns, order: LeafOrder = LeafOrder.TICK) -> None:
        """Make an empty order for the rows of a table."""
        capacity = columns.capacity
        self._columns = columns
        self._order = order
        self._rows = RowSet(capacity)
        self._leaves = RowHeap(capacity)
        self._ticks = array("Q", bytes(8 * capacity))
        self._tick = 0
        # Names of the rows in the order; the garbage collector does not walk arrays of numpy.
        self._keys = np.full(capacity, ROOT, dtype=object)
        self._parents = np.full(capacity, ROOT, dtype=object)
        self._named: dict[bytes, BlockId] = {}
        """Rows in the order by name; of two with one name the earlier."""
        self._children: dict[bytes, int] = {}
        """Rows in the order by the name of their parent; no name with 0."""

    def __len__(self) -> int:
        """Number of rows held."""
        return len(self._rows)

    def __iter__(self) -> Iterator[BlockId]:
        """Rows in eviction order; the first few cost little."""
        leaves, bare = iter(self._leaves), list[tuple[int, BlockId]]()
        gone, shown, tick = Counter[bytes](), set[BlockId](), self._tick
        leaf = next(leaves, None)
        while len(shown) < len(self):
            if leaf is not None and (not bare or self._ticks[leaf] < bare[0][0]):
                row, leaf = leaf, next(leaves, None)
            elif bare:
                row = heapq.heappop(bare)[1]
            else:
                row = self._oldest(shown)
            if row in shown:
                continue
            yield row
            shown.add(row)
            parent = self._parents[row]
            gone[parent] += 1
            if gone[parent] == self._children[parent] and parent in self._named:
                tick += 1
                above = self._named[parent]
                heapq.heappush(bare, (self._ticks[above] if self._order is LeafOrder.TICK else tick, above))

    def touch(self, blocks: Sequence[BlockId]) -> None:
        """Nothing: the order follows from when rows became inactive, and from the chains."""

    def insert(self, blocks: Sequence[BlockId]) -> None:
        """Take the batch in, its first row as the oldest."""
        self._rows.enter(blocks)
        self._tick_on(blocks)
        self._link(blocks)

    def remove(self, blocks: Sequence[BlockId]) -> None:
        """Take rows out of the order; parents that have no child left are leaves now."""
        self._rows.leave(blocks)
        self._leaves.discard(blocks)
        named, children = self._named, self._children
        # One cold look into a dictionary per row where most rows have one name and one child.
        names = self._keys[list(blocks)].tolist()
        holders = list(map(named.pop, names, repeat(None)))
        kept = [(name, holder) for name, row, holder in zip(names, blocks, holders, strict=True) if holder != row]
        named.update((name, holder) for name, holder in kept if holder is not None)
        gone = set(names).difference(name for name, _ in kept)
        bare: list[StoredKey] = []
        for parent in self._parents[list(blocks)].tolist():
            count = children.pop(parent)
            if count > 1:
                children[parent] = count - 1
            elif parent not in gone:
                bare.append(parent)
        self._lay_bare([row for row in map(named.get, bare) if row is not None])

    def take(self, count: int) -> list[BlockId]:
        """Remove and return leaves, each before what it lays bare."""
        taken: list[BlockId] = []
        for _ in range(min(count, len(self._rows))):
            (row,) = self._leaves.take(1) or [self._oldest(frozenset())]
            taken.append(row)
            bare = self._unlink(row)
            if bare is not None:
                self._lay_bare([bare])
        self._rows.leave(taken)
        return taken

    def put_back(self, blocks: Sequence[BlockId]) -> None:
        """Return rows to their places, which are the first."""
        self._rows.enter(blocks)
        self._link(blocks)

    def forget(self, blocks: Sequence[BlockId]) -> None:
        """Nothing: no history is kept."""

    def _oldest(self, besides: Set[BlockId]) -> BlockId:
        """Oldest of the rows besides these, none of which is a leaf: they name each other in a circle."""
        return min((row for row in self._named.values() if row not in besides), key=self._ticks.__getitem__)

    def _tick_on(self, rows: Sequence[BlockId]) -> None:
        ticks, tick = self._ticks, self._tick
        for row in rows:
            tick += 1
            ticks[row] = tick
        self._tick = tick

    def _link(self, rows: Sequence[BlockId]) -> None:
        named, children = self._named, self._children
        names, parents = keys_of(self._columns, rows), parents_of(self._columns, rows)
        covered: list[BlockId] = []
        for row, name, parent in zip(rows, names, parents, strict=True):
            self._keys[row], self._parents[row] = name, parent
            named.setdefault(name, row)
            count = children.get(parent, 0)
            children[parent] = count + 1
            if not count and parent in named:
                covered.append(named[parent])
        self._leaves.discard(covered)
        bare = [row for row, name in zip(rows, names, strict=True) if name not in children or named[name] != row]
        self._leaves.push(bare, [self._ticks[row] for row in bare])

    def _unlink(self, row: BlockId) -> BlockId | None:
        """Take one row out of its chain; returns its parent, if that is in the order and has no other child there."""
        named, children = self._named, self._children
        name, parent = self._keys[row], self._parents[row]
        if named.get(name) == row:
            del named[name]
        count = children[parent] - 1
        if count:
            children[parent] = count
            return None
        del children[parent]
        return named.get(parent)

    def _lay_bare(self, rows: Sequence[BlockId]) -> None:
        if self._order is LeafOrder.FIFO:
            self._tick_on(rows)
        self._leaves.push(rows, [self._ticks[row] for row in rows])


LineageFifoPolicy: Final = partial(LineagePolicy, order=LeafOrder.FIFO)
