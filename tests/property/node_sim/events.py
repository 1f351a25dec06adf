"""The events of one life of a block-manager, as values: their fold, and who must be told of each.

Threading: one thread.
"""

from collections.abc import Callable

from blockyard.core.events import KvEvent
from blockyard.core.vocabulary import Epoch, EventSeq, Tier
from blockyard.testing.event_fold import EventFold

EventListener = Callable[[KvEvent], None]


class EventTap:
    """An encoder for an outbox that keeps the event and gives the outbox an empty message."""

    def __init__(self) -> None:
        """Start with the empty set."""
        self.fold = EventFold()
        self.on_event: EventListener = lambda event: None

    def encode(self, instance: str, epoch: Epoch, seq: EventSeq, event: KvEvent) -> bytes:
        """Take an event in, in the section that appended it."""
        assert seq == self.fold.cursor + 1, "numbers are contiguous"
        self.fold.cursor = seq
        self.fold.apply(event)
        self.on_event(event)
        return b""

    def announced(self, tier: Tier) -> set[bytes]:
        """Keys that the events say are in a tier."""
        return {bytes(item.key) for item in self.fold.held if item.tier is tier}
