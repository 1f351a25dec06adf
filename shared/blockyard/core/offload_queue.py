"""Copies into one destination, from the wish to the end: what waits, what is under way, and who waits for either.

::

    offer ──► QUEUED ──take──► UNDER_WAY ──settle──► gone        tickets wake when the copy is gone, each once
      │         ├─ cancel, or dropped: gone at once
      └─ known: joins it, and may raise its priority             cancel of what is UNDER_WAY: gone when it settles

A name says what is copied; the same name is queued or under way once, however often it is offered.
Invariants: a name is in at most one state; every ticket wakes exactly once; what was cancelled while it waited is never
taken; ``dropped`` counts what had to make room and never falls.
Threading: owned by one thread.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum, unique
from typing import Any, Final, Generic, final

from blockyard.core.errors import BlockStateError
from blockyard.core.settlement import SettlementTicket
from blockyard.core.work_queue import LaneKey, Name, QueueLimits, Work, WorkQueue


@unique
class OfferOutcome(Enum):
    """What became of an offer."""

    QUEUED = "queued"
    JOINED = "joined"
    """The same copy waits or is under way already."""
    DROPPED = "dropped"
    """The queue is full of more urgent copies."""


@final
@dataclass(frozen=True, slots=True)
class Offer(Generic[Name]):
    """Answer to an offer."""

    outcome: OfferOutcome
    dropped: tuple[Name, ...] = ()
    """Copies that made room; the one that was offered itself where it was DROPPED."""


_QUEUED: Final[Offer[Any]] = Offer(OfferOutcome.QUEUED)
_JOINED: Final[Offer[Any]] = Offer(OfferOutcome.JOINED)


@unique
class CancelOutcome(Enum):
    """What became of a cancel."""

    WITHDRAWN = "withdrawn"
    """It had not begun: nothing was and will be transferred, and whoever waited knows."""
    DRAINING = "draining"
    """It has begun: it goes on to its end, and whoever waits is told then."""
    UNKNOWN = "unknown"
    """Nothing of this name waits or is under way."""


@final
@dataclass(slots=True, eq=False)
class OffloadCopy(Generic[Name, Work]):
    """One copy; compared by identity."""

    name: Name
    work: Work
    tickets: tuple[SettlementTicket, ...] = ()

    def hold(self, ticket: SettlementTicket | None) -> None:
        """One more that waits for the end."""
        if ticket is not None:
            ticket.hold()
            self.tickets = (*self.tickets, ticket)

    def wake(self) -> None:
        """The copy is gone: tell all who wait."""
        tickets, self.tickets = self.tickets, ()
        for ticket in tickets:
            ticket.let_go()


@final
class OffloadQueue(Generic[Name, LaneKey, Work]):
    """Copies into one destination."""

    __slots__ = ("_dropped", "_under_way", "_waiting")

    def __init__(self, limits: QueueLimits) -> None:
        """Start empty; at most so much waits."""
        self._waiting: Final[WorkQueue[Name, LaneKey, OffloadCopy[Name, Work]]] = WorkQueue(limits)
        self._under_way: Final[dict[Name, OffloadCopy[Name, Work]]] = {}
        self._dropped = 0

    # --- reading ------------------------------------------------------------------------------------------------------
    @property
    def waiting(self) -> int:
        """Copies that wait."""
        return len(self._waiting)

    @property
    def dropped(self) -> int:
        """Copies that had to make room, since start."""
        return self._dropped

    def __len__(self) -> int:
        """Copies that wait or are under way."""
        return len(self._waiting) + len(self._under_way)

    def __contains__(self, name: object) -> bool:
        """Whether a copy of this name waits or is under way."""
        return name in self._waiting or name in self._under_way

    def under_way(self, name: Name) -> bool:
        """Whether a copy of this name has begun and not settled."""
        return name in self._under_way

    def find(self, name: Name) -> OffloadCopy[Name, Work] | None:
        """The copy of this name, waiting or under way."""
        return self._waiting.get(name) or self._under_way.get(name)

    def waiting_copies(self) -> list[OffloadCopy[Name, Work]]:
        """All copies that wait."""
        return self._waiting.all_work()

    # --- changing -----------------------------------------------------------------------------------------------------
    def offer(
        self,
        name: Name,
        work: Work,
        *,
        lane: LaneKey,
        priority: int = 0,
        size_bytes: int = 0,
        ticket: SettlementTicket | None = None,
    ) -> Offer[Name]:
        """Want a copy; a known one is joined, and is as urgent as the most urgent who wants it."""
        known = self.find(name)
        if known is not None:
            known.hold(ticket)
            self._waiting.raise_to(name, priority)
            return _JOINED
        copy = OffloadCopy(name, work)
        copy.hold(ticket)
        dropped = self._waiting.put(name, copy, lane=lane, priority=priority, size_bytes=size_bytes)
        if not dropped:
            return _QUEUED
        self._dropped += len(dropped)
        for victim in dropped:
            victim.wake()
        outcome = OfferOutcome.DROPPED if copy in dropped else OfferOutcome.QUEUED
        return Offer(outcome, tuple(victim.name for victim in dropped))

    def cancel(self, name: Name) -> CancelOutcome:
        """Nobody wants this copy any more."""
        copy = self._waiting.withdraw(name)
        if copy is not None:
            copy.wake()
            return CancelOutcome.WITHDRAWN
        return CancelOutcome.DRAINING if name in self._under_way else CancelOutcome.UNKNOWN

    def take(self, limit: int, room_of: Callable[[LaneKey], int] | None = None) -> list[OffloadCopy[Name, Work]]:
        """Begin the most urgent copies of one lane; perhaps none. Each has to be settled.

        ``room_of``: most that may go of a lane now; lanes without room are passed over.
        """
        copies = self._waiting.take(limit, room_of=room_of)
        self._under_way.update((copy.name, copy) for copy in copies)
        return copies

    def settle(self, copies: Iterable[OffloadCopy[Name, Work]]) -> None:
        """These copies have ended, or were found to be of no use when their turn came.

        Raises:
            BlockStateError: one of them is not under way; nothing was settled.
        """
        ended = list(dict.fromkeys(copies))
        if any(self._under_way.get(copy.name) is not copy for copy in ended):
            raise BlockStateError("a copy that is not under way cannot settle", copies=len(ended))
        for copy in ended:
            del self._under_way[copy.name]
        for copy in ended:
            copy.wake()
