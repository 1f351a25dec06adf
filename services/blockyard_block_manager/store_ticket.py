"""Who wants to know when no store of some rows reads engine memory any more, or will.

A ticket is open while it is held: by the call that registers the rows, by each of them in the backlog, and by each
store that reads one.
Invariants: ``on_settled`` is told exactly once, when the last holder lets go.
Threading: owned by the event loop of the service.
"""

from collections.abc import Callable
from typing import Self


class StoreTicket:
    """One registration; use as a context for the call that makes it."""

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
