"""Follows the events of one publisher over losses, repeats, disorder and its restarts.

::

    EMPTY ──seq 1 or snapshot──► LIVE ──gap, digest, drop──► RECOVERING ──► LIVE       any ──higher epoch──► EMPTY
                                                  replay; where that cannot be had, snapshot

A gap may close by itself, because messages overtake each other: it is held for half a second before anybody is asked.
A cut may be older than the ring of events: then the next snapshot is asked for later.
While a recovery runs, events are kept in a bounded buffer; if it overflows, it is emptied and the recovery starts anew.
A publisher without a live lease has no credit; its set is followed for another minute and then given up, until there is
a lease again.
Invariants: events are given out in order and without gaps, each once, but that after a ``RestoreSet`` with watermark w
come the events w + 1 and so on, whatever the cursor was; nothing of an epoch is given out after a higher one was heard
of; at most one question is open.
Threading: one thread. It neither waits nor sends: ``wake_at`` says when ``time_passed`` is due.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Final, final

from blockyard.core.ahead_buffer import AheadBuffer
from blockyard.core.clock import Clock
from blockyard.core.consumer_facts import DEFAULT_LIMITS, ConsumerCounts, ConsumerLimits, ConsumerState
from blockyard.core.consumer_lease import ConsumerLease
from blockyard.core.consumer_steps import ApplyEvents, AskReplay, AskSnapshot, DropSet, Question, RestoreSet, Step
from blockyard.core.errors import RequestError
from blockyard.core.event_recovery import Heartbeat, ReplayAnswer, ReplayOutcome
from blockyard.core.events import EventOwner, PublishedEvent, StoredEvent
from blockyard.core.holder_index import Watermark
from blockyard.core.snapshot import SnapshotChunk
from blockyard.core.vocabulary import Epoch, EventSeq

EventDecoder = Callable[[bytes], PublishedEvent]
"""Turns the bytes of one message into its event; raises ``RequestError`` where they are none."""


@final
class EventConsumer:
    """Consumer of one publisher."""

    __slots__ = (
        "_ahead",
        "_answer_by",
        "_asked",
        "_asks",
        "_chunks",
        "_clock",
        "_compare_at",
        "_decode",
        "_highest",
        "_hold_until",
        "_lease",
        "_limits",
        "_mismatched",
        "_restored",
        "_snapshot",
        "_to_newest",
        "_tries",
        "counts",
        "cursor",
        "epoch",
        "instance",
        "state",
    )

    def __init__(
        self, instance: str, decode: EventDecoder, clock: Clock, limits: ConsumerLimits = DEFAULT_LIMITS
    ) -> None:
        """Start with nothing known of ``instance``."""
        self.instance: Final = instance
        self.counts: Final = ConsumerCounts()
        self.state = ConsumerState.EMPTY
        self.epoch = Epoch(0)
        self.cursor = EventSeq(0)
        self._decode = decode
        self._clock = clock
        self._limits = limits
        self._lease = ConsumerLease(instance, clock.monotonic(), limits.keep_seconds)
        self._ahead = AheadBuffer(limits.buffer_weight)
        self._highest = 0
        self._hold_until = math.inf
        self._asks = 0
        self._mismatched = 0
        self._compare_at = -math.inf
        self._asked: Question | None = None
        self._answer_by = math.inf
        self._tries = 0
        self._snapshot = False
        self._to_newest = False
        self._restored: int | None = None
        """Cursor after a snapshot of this recovery."""
        self._chunks: list[StoredEvent] = []

    @property
    def wake_at(self) -> float:
        """When ``time_passed`` is to be called, on the monotonic clock."""
        return min(self._hold_until, self._answer_by, self._lease.sleep_at)

    # --- what the publisher says --------------------------------------------------------------------------------------
    def received(self, events: Iterable[PublishedEvent]) -> list[Step]:
        """Events came in over the stream, in any order and as often as it pleases."""
        steps: list[Step] = []
        for published in events:
            if self._is_current(published.instance, published.epoch, steps):
                self._take(published, steps)
        return steps

    def heard(self, beat: Heartbeat, known: Watermark) -> list[Step]:
        """A heartbeat came; ``known`` is what the view holds of this publisher."""
        steps: list[Step] = []
        if not self._is_current(beat.instance, beat.epoch, steps) or self._lease.asleep:
            return steps
        self._highest = max(self._highest, beat.last_seq)
        if self.state is ConsumerState.RECOVERING:
            return steps
        self._advance(steps)
        if (known.epoch, known.seq) != (beat.epoch, beat.last_seq) or not known.is_whole:
            return steps
        if beat.held == known.held:
            self._mismatched = 0
        elif self._clock.monotonic() >= self._compare_at:
            self._mismatched += 1
            self._compare_at = self._clock.monotonic() + self._limits.backoff_seconds(self._mismatched)
            self.counts.mismatches += 1
            self._recover(steps, snapshot=True)
        return steps

    def dropped(self) -> list[Step]:
        """The way of the events lost some, nobody knows which."""
        steps: list[Step] = []
        if self.epoch and not self._lease.asleep and self.state is not ConsumerState.RECOVERING:
            self.counts.gaps += 1
            self._recover(steps)
        self._to_newest = True
        return steps

    # --- answers ------------------------------------------------------------------------------------------------------
    def replayed(self, ask: int, answer: ReplayAnswer) -> list[Step]:
        """The answer to ``AskReplay`` number ``ask``."""
        steps: list[Step] = []
        if self._awaited(ask) is None or not self._is_current(self.instance, answer.epoch, steps):
            return steps
        if self._awaited(ask) is None:  # it came out of a higher epoch
            return steps
        if self._to_newest:
            self._highest = max(self._highest, answer.newest)
        if answer.outcome is ReplayOutcome.TOO_NEW and answer.newest == self.cursor:
            self._highest = self.cursor
            self._go_on(steps)
            return steps
        before = self.cursor
        for message in answer.messages:
            try:
                published = self._decode(message.payload)
            except RequestError:
                break
            if (published.instance, published.epoch, published.seq) == (self.instance, self.epoch, self.cursor + 1):
                self._apply((published,), steps)
        if self.cursor == before == self._restored:
            # The ring is shorter than the age of the cut: a snapshot asked for at once would be the same one.
            self._snapshot = True
            return self.failed(ask)
        if self.cursor == before:
            self._ask_snapshot(steps)
        else:
            self._go_on(steps)
        return steps

    def chunk_came(self, ask: int, chunk: SnapshotChunk) -> list[Step]:
        """The answer to ``AskSnapshot`` number ``ask``."""
        steps: list[Step] = []
        if self._awaited(ask) is None or not self._is_current(self.instance, chunk.epoch, steps):
            return steps
        asked = self._awaited(ask)
        if asked is None:
            return steps
        try:
            chunk.check()
            decoded = [self._decode(payload) for payload in chunk.payloads]
        except RequestError:
            return self.failed(ask)
        if not isinstance(asked, AskSnapshot) or chunk.index != asked.index or asked.cut not in (0, chunk.cut):
            return self.failed(ask)
        if {(published.instance, published.epoch) for published in decoded} - {(self.instance, self.epoch)}:
            return self.failed(ask)
        self._chunks += [published.event for published in decoded if isinstance(published.event, StoredEvent)]
        if chunk.index + 1 < chunk.count:
            self._question(steps, AskSnapshot(self.instance, self._asks + 1, chunk.cut, chunk.index + 1))
            return steps
        steps.append(RestoreSet(self.instance, self.epoch, chunk.watermark, tuple(self._chunks)))
        # Also where the cut is older than the cursor: what it lacks is asked for again, because the view lacks it now.
        self._highest = max(self._highest, self.cursor, chunk.watermark)
        self.cursor = self._restored = chunk.watermark
        self._chunks = []
        self._go_on(steps)
        return steps

    def failed(self, ask: int) -> list[Step]:
        """A question got no answer, or one that is of no use: it is asked again later, and then for a snapshot."""
        if self._awaited(ask) is not None:
            self._asked = None
            self._answer_by = self._clock.monotonic() + self._limits.backoff_seconds(self._tries)
        return []

    # --- lease and time -----------------------------------------------------------------------------------------------
    def leased(self, epoch: Epoch, readers: Sequence[EventOwner]) -> list[Step]:
        """There is a live lease of this epoch, with these engines in it."""
        steps: list[Step] = []
        if self._is_current(self.instance, epoch, steps):
            steps += self._lease.begin(epoch, readers)
            if self.state is not ConsumerState.RECOVERING:
                self._advance(steps)
        return steps

    def lease_ended(self) -> list[Step]:
        """The lease ran out, or its owner gave it back."""
        return self._lease.end(self._clock.monotonic())

    def time_passed(self) -> list[Step]:
        """Do what is due by now."""
        steps: list[Step] = []
        now = self._clock.monotonic()
        if now >= self._lease.sleep_at:
            self._lease.fall_asleep()
            self._start_anew(steps)
        if now >= self._hold_until:
            self.counts.gaps += 1
            self._recover(steps)
        if now >= self._answer_by:
            self._tries += 1
            self._snapshot = self._snapshot or self._tries > 1
            self._ask(steps)
        return steps

    # --- epochs -------------------------------------------------------------------------------------------------------
    def _is_current(self, instance: str, epoch: Epoch, steps: list[Step]) -> bool:
        """Whether a message counts; a higher epoch ends the one that was followed."""
        if instance != self.instance:
            self.counts.foreign += 1
            return False
        if epoch < self.epoch:
            self.counts.stale += 1
            return False
        if epoch > self.epoch:
            self.epoch = epoch
            self._highest = 0
            self._mismatched, self._compare_at = 0, -math.inf
            self._start_anew(steps)
            steps += self._lease.follow(epoch, self._clock.monotonic())
        return True

    def _start_anew(self, steps: list[Step]) -> None:
        self.state = ConsumerState.EMPTY
        self.cursor = EventSeq(0)
        self._ahead.clear()
        self._end_recovery()
        steps.append(DropSet(self.instance, self.epoch))

    # --- gaps ---------------------------------------------------------------------------------------------------------
    def _take(self, published: PublishedEvent, steps: list[Step]) -> None:
        if published.seq <= self.cursor:
            self.counts.repeated += 1
            return
        self._highest = max(self._highest, published.seq)
        if self._lease.asleep:
            return
        if not self._ahead.keep(published):
            self.counts.overflows += 1
            self._recover(steps)
        elif self.state is not ConsumerState.RECOVERING:
            self._advance(steps)

    def _advance(self, steps: list[Step]) -> None:
        """Give out what is next; note a gap where there is more, and forget it where there is none."""
        self._apply(self._ahead.after(self.cursor), steps)
        if self._highest <= self.cursor:
            self._hold_until = math.inf
        elif self._hold_until == math.inf and not self._lease.asleep:
            self._hold_until = self._clock.monotonic() + self._limits.hold_seconds

    def _apply(self, events: tuple[PublishedEvent, ...], steps: list[Step]) -> None:
        if events:
            steps.append(ApplyEvents(events))
            self.cursor = events[-1].seq
            if self.state is ConsumerState.EMPTY:
                self.state = ConsumerState.LIVE

    def _recover(self, steps: list[Step], snapshot: bool = False) -> None:
        """Begin a recovery, or begin it anew."""
        self._end_recovery()
        self.state = ConsumerState.RECOVERING
        self.counts.recoveries += 1
        self._snapshot = snapshot
        self._ask(steps)

    def _ask(self, steps: list[Step]) -> None:
        """Ask for what is missing: for a stretch that is not too long, else for everything."""
        first, last = self.cursor + 1, max(self._highest, self.cursor + 1)
        if self._snapshot or last - self.cursor > self._limits.replay_events:
            self._ask_snapshot(steps)
        else:
            ask = self._asks + 1
            self._question(steps, AskReplay(self.instance, ask, self.epoch, EventSeq(first), EventSeq(last)))

    def _ask_snapshot(self, steps: list[Step]) -> None:
        self._snapshot = True
        self._chunks = []
        self._question(steps, AskSnapshot(self.instance, self._asks + 1))

    def _question(self, steps: list[Step], question: Question) -> None:
        self._asked, self._asks = question, question.ask
        self._answer_by = self._clock.monotonic() + self._limits.backoff_seconds(self._tries)
        steps.append(question)

    def _go_on(self, steps: list[Step]) -> None:
        """An answer helped: give out what follows it, and ask for what is still missing."""
        self._tries = 0
        self._snapshot = self._to_newest = False
        self._apply(self._ahead.after(self.cursor), steps)
        if self._highest > self.cursor:
            self._ask(steps)
        else:
            self._end_recovery()
            self.state = ConsumerState.LIVE

    def _end_recovery(self) -> None:
        self._asked = None
        self._answer_by = self._hold_until = math.inf
        self._tries = 0
        self._snapshot = self._to_newest = False
        self._restored = None
        self._chunks = []

    def _awaited(self, ask: int) -> Question | None:
        return self._asked if self._asked is not None and self._asked.ask == ask else None
