"""Whether a publisher has credit, and how long it is followed without.

::

    LIVE ──lease ends, or epoch rises──► KEPT ──a minute──► ASLEEP          any ──live lease of this epoch──► LIVE

Invariants: credit only while the lease lives and is of the epoch that is followed; credit is changed, never repeated.
Threading: one thread.
"""

import math
from collections.abc import Sequence
from typing import final

from blockyard.core.consumer_steps import Credit, Discredit, Step
from blockyard.core.events import EventOwner
from blockyard.core.vocabulary import Epoch


@final
class ConsumerLease:
    """Lease of one publisher, as a consumer sees it."""

    __slots__ = ("_credited", "_epoch", "_instance", "_keep_seconds", "_readers", "asleep", "sleep_at")

    def __init__(self, instance: str, now: float, keep_seconds: float) -> None:
        """Start without a lease: one may be heard of later than the events."""
        self._instance = instance
        self._keep_seconds = keep_seconds
        self._epoch = Epoch(0)
        self._readers: tuple[EventOwner, ...] = ()
        self._credited: tuple[EventOwner, ...] | None = None
        self.asleep = False
        """Nothing of this publisher is kept."""
        self.sleep_at = now + keep_seconds
        """When it falls asleep, on the monotonic clock."""

    def begin(self, epoch: Epoch, readers: Sequence[EventOwner]) -> list[Step]:
        """A lease of the epoch that is followed lives, with these engines in it."""
        self._epoch, self._readers = epoch, tuple(readers)
        self.sleep_at, self.asleep = math.inf, False
        return self._settle(epoch)

    def end(self, now: float) -> list[Step]:
        """No lease lives."""
        self._epoch = Epoch(0)
        if not self.asleep:
            self.sleep_at = min(self.sleep_at, now + self._keep_seconds)
        return self._settle(Epoch(0))

    def follow(self, epoch: Epoch, now: float) -> list[Step]:
        """A higher epoch is followed from now on: the lease of the one before is worth nothing."""
        return self._settle(epoch) if self._epoch == epoch else self.end(now)

    def fall_asleep(self) -> None:
        """The time without a lease is over."""
        self.sleep_at, self.asleep = math.inf, True

    def _settle(self, followed: Epoch) -> list[Step]:
        wanted = self._readers if followed and self._epoch == followed else None
        if wanted == self._credited:
            return []
        self._credited = wanted
        return [Discredit(self._instance) if wanted is None else Credit(self._instance, wanted)]
