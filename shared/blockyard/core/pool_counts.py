"""How many rows of a pool are in which state.

Invariants: free + mutable + complete + held + inactive + await_free + abandoned = capacity, between any two calls.
Threading: the owner thread of the pool.
"""

from blockyard.core.row_states import RowStates
from blockyard.core.states import ABANDONED, AWAIT_FREE, COMPLETE, FREE, HELD, INACTIVE, MUTABLE


class PoolCounts:
    """Counts of a pool, kept as its rows change."""

    __slots__ = ("_states",)

    def __init__(self, states: RowStates) -> None:
        """Count these rows."""
        self._states = states

    @property
    def capacity(self) -> int:
        """Rows in all."""
        return len(self._states.column)

    @property
    def free(self) -> int:
        """Rows that can be granted without eviction."""
        return self._states.counts[FREE]

    @property
    def mutable(self) -> int:
        """Rows being written."""
        return self._states.counts[MUTABLE]

    @property
    def complete(self) -> int:
        """Rows written and not yet registered."""
        return self._states.counts[COMPLETE]

    @property
    def held(self) -> int:
        """Registered rows that somebody pins, doomed ones included."""
        return self._states.counts[HELD]

    @property
    def inactive(self) -> int:
        """Registered rows that nobody pins: evictable."""
        return self._states.counts[INACTIVE]

    @property
    def await_free(self) -> int:
        """Rows that left the index and wait for their FREE header."""
        return self._states.counts[AWAIT_FREE]

    @property
    def abandoned(self) -> int:
        """Rows out of circulation because their writer's handle was dropped without an end; they stay so."""
        return self._states.counts[ABANDONED]

    @property
    def available(self) -> int:
        """Rows that ``allocate`` can give: free and inactive."""
        return self.free + self.inactive
