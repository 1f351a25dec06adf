"""Outbox: the events of one life of a publisher, numbered without gaps, kept encoded in a ring of bounded size.

``append`` is called in the same synchronous section that changed the block table, so the order of numbers is the order
of the changes. A publisher task reads from its cursor on; what the ring had to drop before it was published leaves a
hole in the numbers, and that hole is the declaration to consumers. Published messages stay for replay until dropped.
Invariants: numbers are contiguous from 1; stored bytes never exceed ``max_bytes`` plus one message; ``overwritten``
counts exactly the messages that were dropped before they were published.
Threading: owned by one thread; does not publish, does not know the bus.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from blockyard.core.events import KvEvent
from blockyard.core.vocabulary import Epoch, EventSeq

EventEncoder = Callable[[str, Epoch, EventSeq, KvEvent], bytes]
"""Turns (instance, epoch, seq, event) into the bytes of one message."""

MESSAGE_OVERHEAD_BYTES: Final = 128
"""Counted per message beside its payload: what the ring itself costs, so that tiny events are bounded too."""


@dataclass(frozen=True, slots=True)
class OutboxMessage:
    """One encoded event."""

    seq: EventSeq
    payload: bytes


@dataclass(frozen=True, slots=True)
class OutboxBatch:
    """Messages in order of their numbers, after a hole of ``missed`` numbers that are gone for good."""

    messages: tuple[OutboxMessage, ...]
    missed: int


class Outbox:
    """Numbered events of one epoch.

    ::

        append -> [ring: unpublished] -> mark_published -> [ring: replayable] -> overwritten
    """

    def __init__(self, instance: str, epoch: Epoch, max_bytes: int, encoder: EventEncoder) -> None:
        """Start empty at sequence 0.

        Args:
            instance: name of the publisher.
            epoch: its life; goes into every message.
            max_bytes: size of the ring, message overhead included.
            encoder: called once per event, at append.
        """
        self.instance: Final = instance
        self.epoch: Final = epoch
        self._max_bytes = max_bytes
        self._encoder = encoder
        self._ring: dict[int, bytes] = {}
        self._first = 1
        self._last = 0
        self._published = 0
        self._bytes = 0
        self._overwritten = 0

    @property
    def last_seq(self) -> EventSeq:
        """Number of the newest event; 0 before the first."""
        return EventSeq(self._last)

    @property
    def published_seq(self) -> EventSeq:
        """Highest number up to which everything still held has been published."""
        return EventSeq(self._published)

    @property
    def waiting(self) -> int:
        """Messages held that have not been published."""
        return self._last - max(self._published, self._first - 1)

    @property
    def overwritten(self) -> int:
        """Messages dropped before they were published."""
        return self._overwritten

    @property
    def size_bytes(self) -> int:
        """Bytes held, message overhead included."""
        return self._bytes

    def append(self, event: KvEvent) -> EventSeq:
        """Number and keep one event; drops the oldest messages where the ring is full."""
        seq = EventSeq(self._last + 1)
        payload = self._encoder(self.instance, self.epoch, seq, event)
        self._last = seq
        self._ring[seq] = payload
        self._bytes += len(payload) + MESSAGE_OVERHEAD_BYTES
        while self._bytes > self._max_bytes and self._first < self._last:
            self._drop_oldest()
        return seq

    def next_batch(self, after: EventSeq, limit: int) -> OutboxBatch:
        """Up to ``limit`` messages with numbers above ``after``; pure."""
        start = max(after + 1, self._first)
        stop = min(start + limit, self._last + 1)
        messages = tuple(OutboxMessage(EventSeq(seq), self._ring[seq]) for seq in range(start, stop))
        return OutboxBatch(messages, missed=start - (after + 1))

    def mark_published(self, seq: EventSeq) -> None:
        """Everything up to ``seq`` has been handed over; lower or repeated values change nothing."""
        self._published = max(self._published, min(seq, self._last))

    def _drop_oldest(self) -> None:
        payload = self._ring.pop(self._first)
        self._bytes -= len(payload) + MESSAGE_OVERHEAD_BYTES
        if self._first > self._published:
            self._overwritten += 1
        self._first += 1
