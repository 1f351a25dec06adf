"""What a publisher of events and those who follow it say to each other besides events.

A *heartbeat* tells how far the publisher is and what it then holds in sum. A *replay* is a stretch of events out of its
ring, a *snapshot* the whole set at one number, cut into chunks. Everything carries the epoch of the publisher, so that
an answer of a dead life is known as one.
Invariants: a replay answers from the first number that was asked for, without holes, or with a reason.
Threading: frozen values and pure functions.
"""

from dataclasses import dataclass
from enum import IntEnum, unique
from typing import Final, final

from blockyard.core.errors import RequestError
from blockyard.core.outbox import Outbox, OutboxMessage
from blockyard.core.tier_digest import TierDigests
from blockyard.core.vocabulary import Epoch, EventSeq

MAX_ANSWER_BYTES: Final = 512 * 1024
"""Most payload in one answer, but for a single event that is longer."""


@final
@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Told at intervals, beside the stream of events."""

    instance: str
    epoch: Epoch
    last_seq: EventSeq
    held: TierDigests
    """At ``last_seq``."""


@unique
class ReplayOutcome(IntEnum):
    """What became of the question for a stretch of events."""

    EVENTS = 0
    """From the first number asked for; the end may be missing where one answer cannot hold it."""
    TOO_OLD = 1
    """The ring has lost the first of them: take a snapshot."""
    TOO_NEW = 2
    """The first of them does not exist yet."""
    OTHER_EPOCH = 3
    """The publisher lives another life than the one that was asked."""


@final
@dataclass(frozen=True, slots=True)
class ReplayAnswer:
    """Answer to one question for a stretch of events."""

    outcome: ReplayOutcome
    epoch: Epoch
    newest: EventSeq
    """Number of the last event of this epoch."""
    messages: tuple[OutboxMessage, ...] = ()


def replay(outbox: Outbox, epoch: Epoch, first: EventSeq, last: EventSeq) -> ReplayAnswer:
    """Events ``first`` to ``last`` of ``epoch`` out of the ring, as many as one answer may carry.

    Raises:
        RequestError: the stretch ends before it begins, or begins before 1.
    """
    if not 1 <= first <= last:
        raise RequestError("a stretch of events begins at 1 or later and ends no earlier", first=first, last=last)
    outcome = _outcome(outbox, epoch, first)
    if outcome is not ReplayOutcome.EVENTS:
        return ReplayAnswer(outcome, outbox.epoch, outbox.last_seq)
    messages = outbox.next_batch(EventSeq(first - 1), last - first + 1).messages
    size = 0
    for place, message in enumerate(messages):
        size += len(message.payload)
        if place and size > MAX_ANSWER_BYTES:
            messages = messages[:place]
            break
    return ReplayAnswer(outcome, outbox.epoch, outbox.last_seq, messages)


def _outcome(outbox: Outbox, epoch: Epoch, first: EventSeq) -> ReplayOutcome:
    if epoch != outbox.epoch:
        return ReplayOutcome.OTHER_EPOCH
    if first > outbox.last_seq:
        return ReplayOutcome.TOO_NEW
    return ReplayOutcome.TOO_OLD if outbox.next_batch(EventSeq(first - 1), 1).missed else ReplayOutcome.EVENTS
