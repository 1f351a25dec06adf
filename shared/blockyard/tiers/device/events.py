"""Events that are used again, each owned by its producer until every consumer has said that it is done with it.

An event that is recorded again stands for the new record alone: whoever still meant the old one would wait for the
wrong work, or take unfinished work for done. So a lease counts its holders, and the pool gets the event back from the
last of them.
Threading: that of the device: one thread.
"""

from collections.abc import Callable
from typing import final

from blockyard.core.errors import HandleConsumedError
from blockyard.tiers.device.base import Event, Stream
from blockyard.tiers.device.fences import Fences


@final
class EventLease:
    """A recorded event, and how many still mean this record. Get one from ``EventPool.record``."""

    __slots__ = ("_give_back", "_holders", "event")

    def __init__(self, event: Event, give_back: Callable[[Event], None]) -> None:
        """Begin with one holder, the producer."""
        self.event = event
        self._give_back = give_back
        self._holders = 1

    def hold(self) -> None:
        """One holder more.

        Raises:
            HandleConsumedError: everybody is done with it.
        """
        if not self._holders:
            raise HandleConsumedError("the event may stand for something else by now")
        self._holders += 1

    def release(self) -> None:
        """A holder is done with it; the last one gives the event back.

        Raises:
            HandleConsumedError: everybody was done with it before.
        """
        if not self._holders:
            raise HandleConsumedError("the event was released once too often")
        self._holders -= 1
        if not self._holders:
            self._give_back(self.event)


@final
class EventPool:
    """Events of one device."""

    def __init__(self, new_event: Callable[[], Event], fences: Fences) -> None:
        """Begin empty; events are made as they are needed."""
        self._new_event = new_event
        self._fences = fences
        self._free: list[Event] = []
        self.made = 0
        """Events made so far; it stops rising when the pool has as many as are ever held at once."""

    @property
    def free(self) -> int:
        """Events that nobody holds."""
        return len(self._free)

    def record(self, stream: Stream) -> EventLease:
        """Record an event on ``stream``; the caller holds it until ``release``."""
        if self._free:
            event = self._free.pop()
        else:
            self.made += 1
            event = self._new_event()
        stream.record(event)
        if self._fences.events_stay_owned():
            return EventLease(event, self._free.append)
        self._free.append(event)
        return EventLease(event, _keep)


def _keep(event: Event) -> None:
    """The pool has this event already."""
