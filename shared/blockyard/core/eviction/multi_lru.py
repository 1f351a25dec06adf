"""Four LRU lists by how often blocks were used lately: of the least used ones that are there the oldest goes first.

With the default thresholds 3, 8 and 15 a block is cold up to 2 uses, warm up to 7, hot up to 14, then very hot, by a
frequency sketch that remembers at least 262,144 blocks. The list of a block is that of its estimate when rows are
evicted, not when it became inactive: once the sketch has halved its counters, all rows are sorted anew.
Invariants: a row stands in the list of its estimate, as of the last halving. Threading: the owner thread of the table.
"""

from array import array
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final, final

from blockyard.core.errors import KernelError
from blockyard.core.eviction.base import RowColumns
from blockyard.core.eviction.row_keys import keys_of
from blockyard.core.eviction.row_rings import RowRings
from blockyard.core.eviction.row_set import RowSet
from blockyard.core.frequency import MOST_COUNTED, FrequencySketch
from blockyard.core.vocabulary import BlockId

DEFAULT_THRESHOLDS: Final = (3, 8, 15)
_LEAST_HISTORY: Final = 1 << 18
_HISTORY_PER_ROW: Final = 8


@final
class MultiLruPolicy:
    """LRU by classes of frequency over the rows of a table."""

    __slots__ = ("_columns", "_halvings", "_list", "_rings", "_rows", "_sketch", "_thresholds", "_tick", "_ticks")

    def __init__(
        self,
        columns: RowColumns,
        thresholds: tuple[int, int, int] = DEFAULT_THRESHOLDS,
        sketch: FrequencySketch | None = None,
    ) -> None:
        """Make an empty order for the rows of a table.

        Raises:
            KernelError: the thresholds do not rise, or are not all from 1 to 15.
        """
        if not 1 <= thresholds[0] or not thresholds[2] <= MOST_COUNTED or any(a >= b for a, b in pairwise(thresholds)):
            raise KernelError("thresholds rise and lie between 1 and 15", thresholds=str(thresholds))
        capacity = columns.capacity
        self._columns = columns
        self._thresholds = thresholds
        self._sketch = sketch or FrequencySketch(max(_LEAST_HISTORY, _HISTORY_PER_ROW * capacity))
        self._halvings = self._sketch.halvings
        self._rows = RowSet(capacity)
        self._rings = RowRings(capacity, len(thresholds) + 1)
        self._list = bytearray(capacity)
        self._ticks = array("Q", bytes(8 * capacity))
        """When each row became inactive."""
        self._tick = 0

    def __len__(self) -> int:
        """Number of rows held."""
        return len(self._rows)

    def __iter__(self) -> Iterator[BlockId]:
        """Rows in eviction order."""
        self._sort_anew()
        for ring in range(len(self._thresholds) + 1):
            yield from self._rings.rows(ring)

    def touch(self, blocks: Sequence[BlockId]) -> None:
        """Count the uses."""
        self._sketch.touch(keys_of(self._columns, blocks))

    def insert(self, blocks: Sequence[BlockId]) -> None:
        """Put each row behind all others of its list, the last row first."""
        # Before the batch enters: what is sorted anew must stand in a list already.
        self._sort_anew()
        self._rows.enter(blocks)
        tail_first = blocks[::-1]
        for row in tail_first:
            self._tick += 1
            self._ticks[row] = self._tick
        self._append(tail_first)

    def remove(self, blocks: Sequence[BlockId]) -> None:
        """Take rows out of the order."""
        self._rows.leave(blocks)
        self._rings.unlink(blocks)

    def take(self, count: int) -> list[BlockId]:
        """Remove and return the oldest rows of the coldest lists."""
        self._sort_anew()
        taken: list[BlockId] = []
        for ring in range(len(self._thresholds) + 1):
            taken += self._rings.take(count - len(taken), ring)
        self._rows.leave(taken)
        return taken

    def put_back(self, blocks: Sequence[BlockId]) -> None:
        """Put rows in front of the lists from which they came."""
        self._rows.enter(blocks)
        for ring in range(len(self._thresholds) + 1):
            self._rings.prepend([row for row in blocks if self._list[row] == ring], ring)

    def forget(self, blocks: Sequence[BlockId]) -> None:
        """Nothing: the sketch remembers by name."""

    def violations(self) -> list[str]:
        """What contradicts the invariants, for checks."""
        broken = [*self._rows.violations(), *self._rings.violations()]
        if broken:
            return broken
        listed = {row: ring for ring in range(len(self._thresholds) + 1) for row in self._rings.rows(ring)}
        rules = {
            "not exactly the rows of the order stand in its lists": sorted(listed) == list(self._rows),
            "a row stands in another list than its own": all(ring == self._list[row] for row, ring in listed.items()),
            "a row became inactive after now": max(self._ticks) <= self._tick,
        }
        return [rule for rule, holds in rules.items() if not holds]

    # --- inside -------------------------------------------------------------------------------------------------------
    def _append(self, rows: Sequence[BlockId]) -> None:
        """Put rows behind all others of the lists of their estimates, in the given order."""
        thresholds = self._thresholds
        for row, uses in zip(rows, self._sketch.estimate(keys_of(self._columns, rows)), strict=True):
            self._list[row] = sum(uses >= threshold for threshold in thresholds)
        for ring in range(len(thresholds) + 1):
            self._rings.append([row for row in rows if self._list[row] == ring], ring)

    def _sort_anew(self) -> None:
        """Blocks have cooled down: find the list of every row again, which keeps its age."""
        if self._halvings == self._sketch.halvings:
            return
        self._halvings = self._sketch.halvings
        rows = sorted(self._rows, key=self._ticks.__getitem__)
        self._rings.unlink(rows)
        self._append(rows)
