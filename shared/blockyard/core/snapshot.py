"""Snapshot of what a publisher holds: a cut of the set at one number, handed out in chunks.

::

    set at seq w ──cut──► [events | events | ...] ──chunk(id, n)──► bytes with id, epoch, w, n, count, checksum

A cut holds the events that would make the set out of nothing. They are encoded when a chunk is asked for: the section
that makes a cut pays for the copy of the columns only. A cut is shared by all who ask within a second, and kept for
those who fetch its chunks. Where there is no room for one more, the latest is shared longer: who gets it asks for the
events since, as everybody does after a cut. None is dropped for room, or those who fetch it would begin anew for ever.
Invariants: fold of all chunks = fold of the events 1 to w; a chunk with another checksum than its payloads is refused;
all cuts together fill ``MOST_KEPT_BYTES`` at most, or there is one.
Threading: owned by one thread.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, final

import xxhash

from blockyard.core.clock import Clock
from blockyard.core.errors import MalformedFrameError
from blockyard.core.event_recovery import MAX_ANSWER_BYTES
from blockyard.core.events import StoredEvent
from blockyard.core.outbox import EventEncoder
from blockyard.core.vocabulary import Epoch, EventSeq

SHARED_SECONDS: Final = 1.0
KEPT_SECONDS: Final = 30.0
MOST_KEPT_BYTES: Final = 128 << 20
"""Of all cuts, as they will be encoded."""
_EVENT_BYTES: Final = 512
_BLOCK_BYTES: Final = 36
"""Key, parent and position."""


@final
@dataclass(frozen=True, slots=True)
class SnapshotChunk:
    """One part of a snapshot, as it travels."""

    cut: int
    """Number of the cut; chunks of different cuts are never put together."""
    epoch: Epoch
    watermark: EventSeq
    index: int
    count: int
    """Chunks of the cut; at least 1."""
    checksum: int
    payloads: tuple[bytes, ...]

    def check(self) -> None:
        """Refuse a chunk that is damaged.

        Raises:
            MalformedFrameError: it is.
        """
        if not 0 <= self.index < self.count or checksum_of(self.payloads) != self.checksum:
            raise MalformedFrameError("a chunk of a snapshot is damaged", cut=self.cut, chunk=self.index)


@final
@dataclass(frozen=True, slots=True)
class SnapshotContent:
    """The set of a publisher: ``StoredEvent`` values that make it, and the number of the last event in it."""

    watermark: EventSeq
    events: Sequence[StoredEvent]


@final
@dataclass(frozen=True, slots=True)
class _Cut:
    number: int
    made: float
    watermark: EventSeq
    size_bytes: int
    parts: tuple[tuple[StoredEvent, ...], ...]


@final
class Snapshots:
    """Cuts of one life of a publisher."""

    __slots__ = ("_clock", "_content", "_cuts", "_encoder", "_epoch", "_instance", "_made", "_most_kept_bytes")

    def __init__(
        self,
        instance: str,
        epoch: Epoch,
        content: Callable[[], SnapshotContent],
        encoder: EventEncoder,
        clock: Clock,
        most_kept_bytes: int = MOST_KEPT_BYTES,
    ) -> None:
        """Start without a cut.

        Args:
            instance: name of the publisher.
            epoch: its life.
            content: copies what is held, within one section.
            encoder: as of the outbox.
            clock: tells how old a cut is.
            most_kept_bytes: of all cuts together; a larger one is made when there is no other.
        """
        self._instance = instance
        self._epoch = epoch
        self._content = content
        self._encoder = encoder
        self._clock = clock
        self._most_kept_bytes = most_kept_bytes
        self._cuts: dict[int, _Cut] = {}
        self._made = 0

    def first_chunk(self) -> SnapshotChunk:
        """First chunk of the latest cut; of a new one where that is older than a second and there is room for one."""
        self._forget_old()
        latest = self._cuts.get(self._made)
        if latest is None or (self._clock.monotonic() - latest.made > SHARED_SECONDS and self._has_room(latest)):
            latest = self._cut()
        return self._chunk(latest, 0)

    def _has_room(self, latest: _Cut) -> bool:
        """Whether one more like the latest, which it will hardly differ from, fits."""
        return sum(cut.size_bytes for cut in self._cuts.values()) + latest.size_bytes <= self._most_kept_bytes

    def chunk(self, cut: int, index: int) -> SnapshotChunk | None:
        """A later chunk; None where the cut is gone or has none of this index: begin anew."""
        self._forget_old()
        found = self._cuts.get(cut)
        return self._chunk(found, index) if found is not None and 0 <= index < len(found.parts) else None

    def _cut(self) -> _Cut:
        content = self._content()
        self._made += 1
        size = sum(map(_size_of, content.events))
        cut = _Cut(self._made, self._clock.monotonic(), content.watermark, size, _parts(content.events))
        self._cuts[cut.number] = cut
        return cut

    def _chunk(self, cut: _Cut, index: int) -> SnapshotChunk:
        encode = self._encoder
        payloads = tuple(encode(self._instance, self._epoch, cut.watermark, event) for event in cut.parts[index])
        count, checksum = len(cut.parts), checksum_of(payloads)
        return SnapshotChunk(cut.number, self._epoch, cut.watermark, index, count, checksum, payloads)

    def _forget_old(self) -> None:
        oldest = self._clock.monotonic() - KEPT_SECONDS
        self._cuts = {number: cut for number, cut in self._cuts.items() if cut.made >= oldest}


def checksum_of(payloads: Sequence[bytes]) -> int:
    """XXH3-64 over the payloads, each preceded by its length."""
    state = xxhash.xxh3_64()
    for payload in payloads:
        state.update(len(payload).to_bytes(4, "little"))
        state.update(payload)
    return state.intdigest()


def _size_of(event: StoredEvent) -> int:
    return _EVENT_BYTES + _BLOCK_BYTES * len(event.blocks)


def _parts(events: Sequence[StoredEvent]) -> tuple[tuple[StoredEvent, ...], ...]:
    """Consecutive events that fit into one chunk each; one part without events where nothing is held."""
    parts: list[tuple[StoredEvent, ...]] = []
    part: list[StoredEvent] = []
    size = 0
    for event in events:
        cost = _size_of(event)
        if part and size + cost > MAX_ANSWER_BYTES:
            parts.append(tuple(part))
            part, size = [], 0
        part.append(event)
        size += cost
    return (*parts, tuple(part))
