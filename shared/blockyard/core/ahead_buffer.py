"""Events that are ahead of the cursor: they wait for those between, within a bound.

Invariants: an event is kept once; the weight counts every event and every block in it; a buffer that would pass its
bound empties itself and says so, because half of it is of no use to anybody.
Threading: one thread.
"""

from typing import final

from blockyard.core.events import ClearedEvent, PublishedEvent, RemovedEvent


@final
class AheadBuffer:
    """Events of one epoch by their numbers."""

    __slots__ = ("_events", "_most", "_weight")

    def __init__(self, most_weight: int) -> None:
        """Keep events and blocks up to ``most_weight`` in all."""
        self._events: dict[int, PublishedEvent] = {}
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
        return True

    def after(self, cursor: int) -> tuple[PublishedEvent, ...]:
        """Take what follows the cursor without a gap; what lies below is dropped."""
        if self._events and min(self._events) <= cursor:
            for seq in [seq for seq in self._events if seq <= cursor]:
                self._weight -= _weight(self._events.pop(seq))
        taken: list[PublishedEvent] = []
        while (published := self._events.pop(cursor + len(taken) + 1, None)) is not None:
            self._weight -= _weight(published)
            taken.append(published)
        return tuple(taken)

    def clear(self) -> None:
        """Keep nothing."""
        self._events.clear()
        self._weight = 0


def _weight(published: PublishedEvent) -> int:
    event = published.event
    if isinstance(event, ClearedEvent):
        return 1
    return 1 + (len(event.keys) if isinstance(event, RemovedEvent) else len(event.blocks))
