"""Publishers and consumers of events over a bus that loses, repeats, delays and reorders, in virtual time.

::

    Shelf (the truth) ──events──► Outbox ──bus──► RouterView      questions and answers over the same bus

Everything random is drawn from one seed. Invariants: nothing happens but what stands in the schedule; a publisher's
shelf, outbox and cuts are of one life. Threading: one thread.
"""

import heapq
import random
from collections.abc import Callable, Iterable
from functools import partial
from itertools import count
from typing import Final, final

from blockyard.core.consumer_facts import ConsumerLimits
from blockyard.core.consumer_steps import AskReplay, AskSnapshot, Question
from blockyard.core.event_recovery import Heartbeat, ReplayAnswer, replay
from blockyard.core.events import (
    BlockColumns,
    BlockScope,
    ClearedEvent,
    EventOwner,
    KvEvent,
    OffloadedEvent,
    OwnerKind,
    PublishedEvent,
    RemovedEvent,
    StoredEvent,
)
from blockyard.core.outbox import Outbox, OutboxMessage
from blockyard.core.router_view import RouterView
from blockyard.core.snapshot import SnapshotChunk, SnapshotContent, Snapshots
from blockyard.core.tier_digest import TierDigest, TierDigests
from blockyard.core.vocabulary import ROOT_KEY, ContentKey, Epoch, EventSeq, IdentityDigest, Tier
from blockyard.testing.clock import FakeClock

IDENTITY: Final = IdentityDigest(b"\x07" * 32)
CHAIN: Final = tuple(ContentKey(bytes([number]) * 8 + bytes([99 - number]) * 8) for number in range(1, 13))
SCOPE: Final = BlockScope(IDENTITY, block_tokens=16)
BEAT_SECONDS: Final = 2.0
_PAYLOAD_BYTES: Final = 16
_RING_BYTES: Final = 6_000
_LIMITS: Final = ConsumerLimits(keep_seconds=5.0, most_backoff_seconds=4.0, buffer_weight=12, replay_events=24)
_Held = dict[tuple[EventOwner, Tier, ContentKey], None]
"""A set that has an order."""


@final
class Bus:
    """Carries messages at random: late, twice, out of order, or not at all. Calm, it does none of this."""

    def __init__(self, chance: random.Random, clock: FakeClock) -> None:
        """Start with nothing on the way."""
        self.calm = False
        self.lost = 0
        self._chance = chance
        self._clock = clock
        self._numbers = count()
        self._due: list[tuple[float, int, Callable[[], None]]] = []

    def send(self, deliver: Callable[[], None]) -> None:
        """Bring one message."""
        if self.calm:
            self.at(0.001, deliver)
            return
        roll = self._chance.random()
        self.lost += roll < 0.08
        for _ in range(0 if roll < 0.08 else 2 if roll < 0.16 else 1):
            delay = self._chance.choice((0.001, 0.001, 0.002, 0.05, 0.4, 3.0)) if roll < 0.6 else 0.001
            self.at(delay, deliver)

    def at(self, delay_seconds: float, call: Callable[[], None]) -> None:
        """Have something happen after a time."""
        heapq.heappush(self._due, (self._clock.monotonic() + delay_seconds, next(self._numbers), call))

    def run_until(self, end: float, wake_at: Callable[[], float], wake: Callable[[], None]) -> None:
        """Let everything happen that is due up to ``end``, and wake those who want to be woken meanwhile."""
        while True:
            due = self._due[0][0] if self._due else end
            moment = min(due, wake_at(), end)
            self._clock.advance(max(0.0, moment - self._clock.monotonic()))
            if self._due and self._due[0][0] <= moment:
                heapq.heappop(self._due)[2]()
            elif wake_at() <= moment:
                wake()
            elif moment >= end:
                return


@final
class Publisher:
    """One node: what it holds, its outbox and its lease; it can be killed, frozen and started again."""

    def __init__(
        self, name: str, chance: random.Random, clock: FakeClock, archive: dict[bytes, PublishedEvent]
    ) -> None:
        """Start the first life."""
        self.name: Final = name
        self.node: Final = EventOwner(OwnerKind.NODE, name)
        self.engine: Final = EventOwner(OwnerKind.ENGINE, f"engine of {name}")
        self.frozen = False
        self._chance = chance
        self._clock = clock
        self._archive = archive
        self._epoch = 0
        self.restart()

    @property
    def epoch(self) -> Epoch:
        """Its life."""
        return self.outbox.epoch

    def restart(self) -> list[OutboxMessage]:
        """A new life, which announces what the old one left on the disk; answers with its first messages."""
        kept = [entry for entry in self.held if entry[1] is Tier.G3] if self._epoch else []
        self._epoch += self._chance.randint(1, 3)
        self.outbox = Outbox(self.name, Epoch(self._epoch), _RING_BYTES, self._encode)
        self.snapshots = Snapshots(self.name, Epoch(self._epoch), self._content, self._encode, self._clock)
        self.held: _Held = {}
        return [message for owner, tier, key in kept for message in self._store(owner, tier, (key,), None)]

    def change(self) -> list[OutboxMessage]:
        """Something enters or leaves; answers with what is to be published."""
        pick = self._chance.choice
        tier = pick((Tier.G1, Tier.G2, Tier.G2, Tier.G3))
        owner = self.engine if tier is Tier.G1 else self.node
        first = self._chance.randrange(len(CHAIN))
        keys = CHAIN[first : first + self._chance.randint(1, 5)]
        roll = self._chance.random()
        if roll < 0.02:
            self.held = {entry: None for entry in self.held if entry[:2] != (owner, tier)}
            return [self._append(ClearedEvent(owner, tier))]
        if roll < 0.4:
            gone = tuple(key for key in keys if (owner, tier, key) in self.held)
            for key in gone:
                del self.held[owner, tier, key]
            return [self._append(RemovedEvent(owner, tier, IDENTITY, gone))] if gone else []
        return self._store(owner, tier, keys, pick((None, Tier.G1)))

    def damage(self) -> None:
        """Lose a block without a word: an error that only heartbeats find."""
        if self.held:
            del self.held[self._chance.choice(list(self.held))]

    def beat(self) -> Heartbeat:
        """What it tells at intervals."""
        first, second, third, fourth = (TierDigest.of([key for _, of, key in self.held if of is tier]) for tier in Tier)
        held: TierDigests = (first, second, third, fourth)
        return Heartbeat(self.name, self.epoch, self.outbox.last_seq, held)

    def answer(self, question: Question) -> ReplayAnswer | SnapshotChunk | None:
        """What it says to a question; None where it has no answer."""
        if isinstance(question, AskReplay):
            return replay(self.outbox, question.epoch, question.first, question.last)
        if question.cut == 0:
            return self.snapshots.first_chunk()
        return self.snapshots.chunk(question.cut, question.index)

    def _store(
        self, owner: EventOwner, tier: Tier, keys: tuple[ContentKey, ...], origin: Tier | None
    ) -> list[OutboxMessage]:
        fresh = tuple(key for key in keys if (owner, tier, key) not in self.held)
        if not fresh:
            return []
        self.held |= {(owner, tier, key): None for key in fresh}
        stored = _stored(owner, tier, fresh)
        if origin is None:
            return [self._append(stored)]
        return [self._append(OffloadedEvent(owner, origin, tier, SCOPE, stored.blocks))]

    def _append(self, event: KvEvent) -> OutboxMessage:
        seq = self.outbox.append(event)
        return self.outbox.next_batch(EventSeq(seq - 1), 1).messages[0]

    def _content(self) -> SnapshotContent:
        events = [_stored(owner, tier, (key,)) for owner, tier, key in self.held]
        return SnapshotContent(self.outbox.last_seq, events)

    def _encode(self, instance: str, epoch: Epoch, seq: EventSeq, event: KvEvent) -> bytes:
        payload = len(self._archive).to_bytes(_PAYLOAD_BYTES, "big")
        self._archive[payload] = PublishedEvent(instance, epoch, seq, event)
        return payload


def digests_of(held: Iterable[tuple[EventOwner, Tier, ContentKey]]) -> TierDigests:
    """Count and digest per tier."""
    keys: dict[Tier, list[ContentKey]] = {}
    for _, tier, key in held:
        keys.setdefault(tier, []).append(key)
    first, second, third, fourth = (TierDigest.of(keys[tier]) if tier in keys else TierDigest() for tier in Tier)
    return first, second, third, fourth


def _stored(owner: EventOwner, tier: Tier, keys: tuple[ContentKey, ...]) -> StoredEvent:
    columns = BlockColumns.of(keys, (ROOT_KEY,) * len(keys), (0,) * len(keys))
    return StoredEvent(owner, tier, SCOPE, columns)


@final
class EventWorld:
    """Two publishers and some router views over one bus."""

    def __init__(self, seed: int, views: int = 2) -> None:
        """Start everybody, with leases."""
        self.chance: Final = random.Random(seed)
        self.clock: Final = FakeClock()
        self.bus: Final = Bus(self.chance, self.clock)
        self._archive: dict[bytes, PublishedEvent] = {}
        self.publishers: Final = [
            Publisher(name, self.chance, self.clock, self._archive) for name in ("node-a", "node-b")
        ]
        self.heard_leases: Final[dict[tuple[int, str], Epoch]] = {}
        """By view and publisher: epoch of the lease that the view knows to live."""
        self.views: Final = [RouterView(self._archive.__getitem__, self.clock, _LIMITS) for _ in range(views)]
        for publisher in self.publishers:
            self._beat_for_ever(publisher)
            self.lease(publisher)

    # --- what is done to it -------------------------------------------------------------------------------------------
    def publish(self, publisher: Publisher, messages: list[OutboxMessage]) -> None:
        """Send messages to all views, each on its own way."""
        for message in messages:
            published = self._archive[message.payload]
            for view in self.views:
                self.bus.send(self._telling(view, partial(view.received, published.instance, (published,))))

    def lease(self, publisher: Publisher) -> None:
        """Tell all views that its lease lives."""
        epoch, readers = publisher.epoch, (publisher.engine,)
        for view in self.views:
            self.bus.send(self._telling(view, partial(self._leased, view, publisher.name, epoch, readers)))

    def end_lease(self, publisher: Publisher) -> None:
        """Tell all views that its lease is over."""
        for view in self.views:
            self.bus.send(self._telling(view, partial(self._lease_ended, view, publisher.name)))

    def run(self, seconds: float) -> None:
        """Let time pass."""
        self.bus.run_until(
            self.clock.monotonic() + seconds, lambda: min(view.wake_at for view in self.views), self._wake
        )

    # --- how it goes on -----------------------------------------------------------------------------------------------
    def _wake(self) -> None:
        for view in self.views:
            self._send(view, view.time_passed())

    def _telling(self, view: RouterView, tell: Callable[[], list[Question]]) -> Callable[[], None]:
        return lambda: self._send(view, tell())

    def _send(self, view: RouterView, questions: list[Question]) -> None:
        for question in questions:
            self.bus.send(partial(self._arrived, view, question))

    def _arrived(self, view: RouterView, question: Question) -> None:
        publisher = next(each for each in self.publishers if each.name == question.instance)
        if publisher.frozen:
            self.bus.at(1.0, partial(self._arrived, view, question))
            return
        answer = publisher.answer(question)
        self.bus.send(self._telling(view, partial(_told, view, question, answer)))

    def _leased(self, view: RouterView, name: str, epoch: Epoch, readers: tuple[EventOwner, ...]) -> list[Question]:
        questions = view.leased(name, epoch, readers)
        if epoch == view.consumer(name).epoch:
            self.heard_leases[self.views.index(view), name] = epoch
        return questions

    def _lease_ended(self, view: RouterView, name: str) -> list[Question]:
        self.heard_leases.pop((self.views.index(view), name), None)
        return view.lease_ended(name)

    def _beat_for_ever(self, publisher: Publisher) -> None:
        if not publisher.frozen:
            beat = publisher.beat()
            for view in self.views:
                self.bus.send(self._telling(view, partial(view.heard, beat.instance, beat)))
        self.bus.at(BEAT_SECONDS, partial(self._beat_for_ever, publisher))


def _told(view: RouterView, question: Question, answer: ReplayAnswer | SnapshotChunk | None) -> list[Question]:
    if isinstance(question, AskReplay) and isinstance(answer, ReplayAnswer):
        return view.replayed(question, answer)
    if isinstance(question, AskSnapshot) and isinstance(answer, SnapshotChunk):
        return view.chunk_came(question, answer)
    return view.failed(question)
