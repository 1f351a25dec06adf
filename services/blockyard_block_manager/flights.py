"""What is on its way into a tier: one live job per (tier, content), which later askers join.

Invariants: a content key has at most one flight per tier; a flight ends exactly once, and each waiter is told exactly
once unless it left before. Waiters are called in the synchronous section that ends the flight, while the block is
still pinned by whoever brought it, so they can pin it themselves.
Threading: owned by the event loop of the service.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from blockyard.core.errors import BlockStateError
from blockyard.core.vocabulary import ContentKey, GroupId, ItemStatus, Tier
from blockyard.wire.trace_parent import NO_TRACE, TraceParent

FlightWaiter = Callable[[ItemStatus], None]


@dataclass(slots=True)
class _Flight:
    source: Tier
    trace: TraceParent
    waiters: list[FlightWaiter] = field(default_factory=list)


class Flights:
    """Table of all contents on their way into G2 or G3."""

    def __init__(self) -> None:
        """Start empty."""
        self._flights: dict[tuple[Tier, ContentKey, GroupId], _Flight] = {}

    def __len__(self) -> int:
        """Flights under way."""
        return len(self._flights)

    def under_way(self, tier: Tier, keys: Iterable[ContentKey], group: GroupId) -> list[bool]:
        """Per key, whether a job that writes it into ``tier`` has not ended yet."""
        return [(tier, key, group) in self._flights for key in keys]

    def start(
        self, tier: Tier, keys: Iterable[ContentKey], group: GroupId, source: Tier, trace: TraceParent = NO_TRACE
    ) -> None:
        """Declare a job that writes ``keys`` into ``tier``, and what it is carried out for.

        Raises:
            BlockStateError: one of them is under way already; nothing was entered.
        """
        added = [(tier, key, group) for key in keys]
        if any(flight in self._flights for flight in added) or len(set(added)) != len(added):
            raise BlockStateError("a block is already on its way into the tier", tier=tier.label)
        for flight in added:
            self._flights[flight] = _Flight(source, trace)

    def source_of(self, tier: Tier, key: ContentKey, group: GroupId) -> Tier | None:
        """The tier from which a content comes into ``tier``; None where it is not under way."""
        flight = self._flights.get((tier, key, group))
        return None if flight is None else flight.source

    def trace_of(self, tier: Tier, key: ContentKey, group: GroupId) -> TraceParent:
        """What a content is brought for; no trace where it is not under way."""
        flight = self._flights.get((tier, key, group))
        return NO_TRACE if flight is None else flight.trace

    def join(self, tier: Tier, key: ContentKey, group: GroupId, waiter: FlightWaiter) -> None:
        """Wait for a flight.

        Raises:
            BlockStateError: nothing is under way.
        """
        flight = self._flights.get((tier, key, group))
        if flight is None:
            raise BlockStateError("the block is not on its way into the tier", tier=tier.label)
        flight.waiters.append(waiter)

    def end(self, tier: Tier, keys: Iterable[ContentKey], group: GroupId, statuses: Iterable[ItemStatus]) -> None:
        """End flights, all of them before the first waiter is told, and tell the waiters."""
        told: list[tuple[FlightWaiter, ItemStatus]] = []
        for key, status in zip(keys, statuses, strict=True):
            flight = self._flights.pop((tier, key, group))
            told.extend((waiter, status) for waiter in flight.waiters)
        for waiter, status in told:
            waiter(status)
