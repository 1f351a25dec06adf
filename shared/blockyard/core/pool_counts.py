"""How many rows of a pool are in which state.

Invariants: free + mutable + complete + held + inactive + await_free + abandoned = capacity, between any two calls.
Threading: the owner thread of the pool.
"""

from blockyard.core.block_table import BlockTable
from blockyard.core.states import ABANDONED, AWAIT_FREE, COMPLETE, DOOMED, FREE, HELD, INACTIVE, MUTABLE


class PoolCounts:
    """Counts of a pool, kept as its rows change."""

    __slots__ = ("_table",)

    def __init__(self, table: BlockTable) -> None:
        """Count the rows of a table."""
        self._table = table

    @property
    def capacity(self) -> int:
        """Rows in all."""
        return len(self._table.states.column)

    @property
    def free(self) -> int:
        """Rows that can be granted without eviction."""
        return self._table.states.counts[FREE]

    @property
    def mutable(self) -> int:
        """Rows being written."""
        return self._table.states.counts[MUTABLE]

    @property
    def complete(self) -> int:
        """Rows written and not yet registered."""
        return self._table.states.counts[COMPLETE]

    @property
    def held(self) -> int:
        """Registered rows that somebody pins, doomed ones included."""
        return self._table.states.counts[HELD]

    @property
    def inactive(self) -> int:
        """Registered rows that nobody pins: evictable."""
        return self._table.states.counts[INACTIVE]

    @property
    def await_free(self) -> int:
        """Rows that left the index and wait for their FREE header."""
        return self._table.states.counts[AWAIT_FREE]

    @property
    def abandoned(self) -> int:
        """Rows out of circulation because their writer's handle was dropped without an end; they stay so."""
        return self._table.states.counts[ABANDONED]

    @property
    def doomed(self) -> int:
        """Rows that were cleared or condemned and are still in somebody's hands."""
        return self._table.flags.count(DOOMED)

    @property
    def available(self) -> int:
        """Rows that ``allocate`` can give: free and evictable ones."""
        return self.free + self._table.evictable

    @property
    def duplicates(self) -> int:
        """Held rows beside another row that is found by the same key."""
        return len(self._table.primaries)

    @property
    def leaked_blocks(self) -> int:
        """Rows of handles that were dropped without release, since start: taken back, or else ``abandoned``."""
        return self._table.leaked_blocks

    @property
    def relatives_left(self) -> int:
        """Blocks that stayed since they were held when a block of their family was evicted, since start."""
        return self._table.relatives_left

    @property
    def unswept(self) -> int:
        """Rows of forgotten blocks that ``sweep`` has not looked at."""
        cut = self._table.names.cut
        return 0 if cut is None else cut.left
