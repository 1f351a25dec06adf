"""Events that are ahead of the cursor: they wait for those between, within a bound.

Invariants: an event is kept once; the weight counts every event and every block in it; a buffer that would pass its
bound empties itself and says so, because half of it is of no use to anybody.
Threading: one thread.
"""

import heapq
from typing import final

from blockyard.core.events import ClearedEvent, PublishedEvent, RemovedEvent


@final
class AheadBuffer:
    """Events of one epoch by their numbers."""

    __slots__ = ("_events", "_most", "_order", "_weight")

    def __init__(self, most_weight: int) -> None:
        """Keep events and blocks up to ``most_weight`` in all."""
        self._events: dict[int, PublishedEvent] = {}
        self._order: list[int] = []
        """Heap of their numbers: what is next is asked for at every event, however many wait behind a gap."""
        self._weight = 0
        self._most = most_weight

    def __len__(self) -> int:
        """Events kept."""
        return len(self._events)

    def keep(self, published: PublishedEvent) -> bool:
        """Keep one event; False where it did not fit, and nothing is kept any more."""
        if published.seq in self._events:
            return True
        self._weight += _weight(published)
        if self._weight > self._most:
            self.clear()
            return False
        self._events[published.seq] = published
        heapq.heappush(self._order, published.seq)
        return True

    def after(self, cursor: int) -> tuple[PublishedEvent, ...]:
        """Take what follows the cursor without a gap; what lies below is dropped."""
        taken: list[PublishedEvent] = []
        while self._order and self._order[0] <= cursor + len(taken) + 1:
            published = self._events.pop(heapq.heappop(self._order))
            self._weight -= _weight(published)
            if published.seq > cursor:
                taken.append(published)
        return tuple(taken)

    def clear(self) -> None:
        """Keep nothing."""
        self._events.clear()
        self._order.clear()
        self._weight = 0


def _weight(published: PublishedEvent) -> int:
    event = published.event
    if isinstance(event, ClearedEvent):
        return 1
    return 1 + (len(event.keys) if isinstance(event, RemovedEvent) else len(event.blocks))
