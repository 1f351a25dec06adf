"""The view of a router: what all publishers hold, followed event by event.

Brings consumers and index together: what a consumer wants changed is changed before it hears anything else; what is
left are the questions that somebody has to send. ::

    stream, heartbeats, leases, answers, time ──► consumer of the publisher ──► index
                                                          └──► questions: replay, snapshot

Invariants: the set of a publisher in the index is at every moment one that it held, or a part of it where the index has
no room; ``wake_at`` is the earliest time at which some consumer wants to act.
Threading: one thread; nothing waits.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Final, final

from blockyard.core.clock import Clock
from blockyard.core.consumer_facts import DEFAULT_LIMITS, ConsumerLimits
from blockyard.core.consumer_steps import (
    ApplyEvents,
    AskReplay,
    AskSnapshot,
    Credit,
    Discredit,
    DropSet,
    Question,
    RestoreSet,
    Step,
)
from blockyard.core.event_consumer import EventConsumer, EventDecoder
from blockyard.core.event_recovery import Heartbeat, ReplayAnswer
from blockyard.core.events import EventOwner, PublishedEvent
from blockyard.core.holder_index import DEFAULT_MAX_BLOCKS, HolderIndex
from blockyard.core.snapshot import SnapshotChunk
from blockyard.core.vocabulary import Epoch


@final
class RouterView:
    """Consumers of all publishers that were heard of, over one index."""

    __slots__ = ("_clock", "_consumers", "_decode", "_limits", "index")

    def __init__(
        self,
        decode: EventDecoder,
        clock: Clock,
        limits: ConsumerLimits = DEFAULT_LIMITS,
        max_blocks: int = DEFAULT_MAX_BLOCKS,
    ) -> None:
        """Start without any publisher."""
        self.index: Final = HolderIndex(max_blocks)
        self._decode = decode
        self._clock = clock
        self._limits = limits
        self._consumers: dict[str, EventConsumer] = {}

    @property
    def wake_at(self) -> float:
        """When ``time_passed`` is to be called, on the monotonic clock."""
        return min((consumer.wake_at for consumer in self._consumers.values()), default=math.inf)

    def consumer(self, instance: str) -> EventConsumer:
        """The consumer of one publisher; a new one for a name not heard of."""
        found = self._consumers.get(instance)
        if found is None:
            found = self._consumers[instance] = EventConsumer(instance, self._decode, self._clock, self._limits)
        return found

    def received(self, instance: str, events: Iterable[PublishedEvent]) -> list[Question]:
        """Events came on the subject of ``instance``."""
        return self._perform(self.consumer(instance).received(events))

    def heard(self, instance: str, beat: Heartbeat) -> list[Question]:
        """A heartbeat came on the subject of ``instance``."""
        return self._perform(self.consumer(instance).heard(beat, self.index.watermark(instance)))

    def leased(self, instance: str, epoch: Epoch, readers: Sequence[EventOwner]) -> list[Question]:
        """``instance`` has a live lease of this epoch, with these engines."""
        return self._perform(self.consumer(instance).leased(epoch, readers))

    def lease_ended(self, instance: str) -> list[Question]:
        """``instance`` has no live lease."""
        return self._perform(self.consumer(instance).lease_ended())

    def replayed(self, question: AskReplay, answer: ReplayAnswer) -> list[Question]:
        """The answer to a question for events."""
        return self._perform(self.consumer(question.instance).replayed(question.ask, answer))

    def chunk_came(self, question: AskSnapshot, chunk: SnapshotChunk) -> list[Question]:
        """The answer to a question for a chunk."""
        return self._perform(self.consumer(question.instance).chunk_came(question.ask, chunk))

    def failed(self, question: Question) -> list[Question]:
        """A question got no answer, or the publisher has none."""
        return self._perform(self.consumer(question.instance).failed(question.ask))

    def dropped(self) -> list[Question]:
        """The subscription lost messages, or the stream is another one than before."""
        return [question for consumer in self._consumers.values() for question in self._perform(consumer.dropped())]

    def time_passed(self) -> list[Question]:
        """Do what is due by now."""
        return [question for consumer in self._consumers.values() for question in self._perform(consumer.time_passed())]

    def _perform(self, steps: list[Step]) -> list[Question]:
        questions: list[Question] = []
        for step in steps:
            match step:
                case ApplyEvents(events):
                    self.index.apply(events)
                case RestoreSet(instance, epoch, watermark, stored):
                    self.index.restore(instance, epoch, watermark, stored)
                case DropSet(instance, epoch):
                    self.index.drop(instance, epoch)
                case Credit(instance, readers):
                    self.index.credit(instance, readers)
                case Discredit(instance):
                    self.index.discredit(instance)
                case AskReplay() | AskSnapshot():
                    questions.append(step)
        return questions
