"""Who wants to know when work that may read his memory is over, however it ended.

A ticket is open while it is held: by the call that asks for the work, and by each piece of it, from the moment it waits
until it has settled.
Invariants: ``on_settled`` is told exactly once, when the last holder lets go.
Threading: owned by one thread.
"""

from collections.abc import Callable
from typing import Self, final


@final
class SettlementTicket:
    """One request for work; use as a context for the call that makes it."""

    __slots__ = ("_holders", "_on_settled")

    def __init__(self, on_settled: Callable[[], None] | None) -> None:
        """Tell ``on_settled``; nobody where it is None."""
        self._on_settled = on_settled
        self._holders = 0

    def hold(self) -> None:
        """One more holder."""
        self._holders += 1

    def let_go(self) -> None:
        """A holder is done."""
        self._holders -= 1
        if not self._holders and self._on_settled is not None:
            self._on_settled()

    def __enter__(self) -> Self:
        """Hold it for the call."""
        self.hold()
        return self

    def __exit__(self, *exc: object) -> None:
        """The call is over."""
        self.let_go()
