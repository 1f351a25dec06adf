"""Tickets of registrations: whom an engine wants to be told of when no store reads its memory any more.

Invariants: every ticket is told exactly once, whatever becomes of its call or of the connection; 0 is no ticket.
Threading: one event loop.
"""

from collections.abc import Callable
from typing import final


@final
class StoreTickets:
    """Tickets that are not settled yet."""

    def __init__(self, on_settled: Callable[[int], None]) -> None:
        """Tell ``on_settled``, which must neither block nor raise."""
        self._on_settled = on_settled
        self._open: set[int] = set()

    def open(self, ticket: int) -> None:
        """A registration with this ticket begins."""
        if ticket:
            self._open.add(ticket)

    def settle(self, ticket: int) -> None:
        """No store of this registration is wanted or under way; harmless when repeated."""
        if ticket in self._open:
            self._open.remove(ticket)
            self._on_settled(ticket)

    def settle_all(self) -> None:
        """The session is over, and with it every store of its registrations."""
        for ticket in tuple(self._open):
            self.settle(ticket)
