"""Bounded queue of work by priority: loads before stores, each in order of arrival.

When it is full the oldest entry of the least urgent lane makes room and is counted: under overload the freshest work
is worth most, and nothing waits for a store. A load never yields to a store.
Invariants: never more than ``limit`` entries; every entry leaves once: popped, removed, or dropped.
Threading: owned by one thread.
"""

from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from blockyard.core.errors import ConfigurationError
from blockyard.core.vocabulary import Lane

Entry = TypeVar("Entry")


class JobQueue(Generic[Entry]):
    """Entries by (lane, arrival)."""

    def __init__(self, limit: int) -> None:
        """Hold at most ``limit`` entries (at least one)."""
        if limit < 1:
            raise ConfigurationError("a queue holds at least one entry", limit=limit)
        self._limit = limit
        self._lanes: dict[Lane, deque[Entry]] = {lane: deque() for lane in sorted(Lane)}
        self._dropped = 0

    def __len__(self) -> int:
        """Entries waiting."""
        return sum(len(entries) for entries in self._lanes.values())

    @property
    def full(self) -> bool:
        """True where the next push drops an entry."""
        return len(self) >= self._limit

    @property
    def dropped(self) -> int:
        """Entries that had to make room."""
        return self._dropped

    def push(self, lane: Lane, entry: Entry) -> Entry | None:
        """Add an entry at the end of its lane.

        Returns:
            The entry that was dropped to make room (``entry`` itself where everything waiting is more urgent), or
            None.
        """
        victim: Entry | None = None
        if self.full:
            self._dropped += 1
            least = max(each for each, entries in self._lanes.items() if entries)
            if least < lane:
                return entry
            victim = self._lanes[least].popleft()
        self._lanes[lane].append(entry)
        return victim

    def pop(self, least: Lane = Lane.STORE) -> Entry | None:
        """Take the most urgent entry, if it is of lane ``least`` or more urgent; else None."""
        for lane, entries in self._lanes.items():
            if entries and lane <= least:
                return entries.popleft()
        return None

    def remove_if(self, condition: Callable[[Entry], bool]) -> list[Entry]:
        """Take out every entry for which ``condition`` holds; the order of the rest is kept."""
        removed: list[Entry] = []
        for lane, entries in self._lanes.items():
            kept: deque[Entry] = deque()
            for entry in entries:
                (removed if condition(entry) else kept).append(entry)
            self._lanes[lane] = kept
        return removed
