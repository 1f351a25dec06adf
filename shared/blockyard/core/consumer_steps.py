"""What a consumer of events wants done: changes of the view, and questions to the publisher.

Invariants: steps of one call are carried out in their order, those that change the view before the consumer is told
anything else. Questions may be lost: the consumer asks again. Each has a number, and an answer names it.
Threading: frozen values.
"""

from dataclasses import dataclass
from typing import final

from blockyard.core.events import EventOwner, PublishedEvent, StoredEvent
from blockyard.core.vocabulary import Epoch, EventSeq


@final
@dataclass(frozen=True, slots=True)
class ApplyEvents:
    """Fold these: consecutive events of one epoch."""

    events: tuple[PublishedEvent, ...]


@final
@dataclass(frozen=True, slots=True)
class RestoreSet:
    """Put a snapshot in place of all that is known of this publisher."""

    instance: str
    epoch: Epoch
    watermark: EventSeq
    events: tuple[StoredEvent, ...]


@final
@dataclass(frozen=True, slots=True)
class DropSet:
    """Forget what this publisher holds; from ``epoch`` on it fills anew."""

    instance: str
    epoch: Epoch


@final
@dataclass(frozen=True, slots=True)
class Credit:
    """The lease lives, with these engines."""

    instance: str
    readers: tuple[EventOwner, ...]


@final
@dataclass(frozen=True, slots=True)
class Discredit:
    """There is no live lease of the epoch that is followed."""

    instance: str


@final
@dataclass(frozen=True, slots=True)
class AskReplay:
    """Ask the publisher for events ``first`` to ``last``."""

    instance: str
    ask: int
    epoch: Epoch
    first: EventSeq
    last: EventSeq


@final
@dataclass(frozen=True, slots=True)
class AskSnapshot:
    """Ask the publisher for a chunk of a snapshot; cut 0 stands for the latest, of which it is the first chunk."""

    instance: str
    ask: int
    cut: int = 0
    index: int = 0


ViewStep = ApplyEvents | RestoreSet | DropSet | Credit | Discredit
Question = AskReplay | AskSnapshot
Step = ViewStep | Question
