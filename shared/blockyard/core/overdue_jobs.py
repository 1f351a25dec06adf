"""Last hops of loads that should be over: when patience with them ends.

::

    overdue ──looked at again and again for patience_seconds──► stuck ──settled──► forgotten
       └── settled, or nobody looked for a while ──► forgotten, so that patience starts anew

A request waits for each of them, because time settles nothing; whoever finds some of them stuck ends the life of the
process that has them.
Invariants: nothing is stuck before it was overdue in every look of a whole patience, nor before the channel over which
the process can tell its end has been there for ``HEARING_SECONDS``. Who did not look for ``GAP_SECONDS`` stood still
himself: answers that came meanwhile lie unread, so that time does not count.
Threading: one owner thread. No I/O.
"""

from collections.abc import Collection
from typing import Final, final

from blockyard.core.clock import Clock
from blockyard.core.jobs import JobId

GAP_SECONDS: Final = 1.0
"""Looks that lie further apart count for nothing."""
HEARING_SECONDS: Final = 2.0
"""How long a new channel to the process is left to bring what it has to say."""


@final
class OverdueJobs:
    """Jobs of one process that are overdue, and since when."""

    def __init__(self, clock: Clock, *, patience_seconds: float) -> None:
        """Wait ``patience_seconds`` for each job from the look at which it was overdue first."""
        self._clock = clock
        self._patience_seconds = patience_seconds
        self._since: dict[JobId, float] = {}
        self._looked_at = clock.monotonic()
        self._channel: object | None = None
        self._channel_since = self._looked_at

    def look(self, overdue: Collection[JobId], channel: object | None) -> tuple[JobId, ...]:
        """Those of all jobs that are overdue now which are stuck, oldest first.

        Args:
            overdue: all jobs that are overdue.
            channel: the present channel to the process, compared by identity; None between two.
        """
        now = self._clock.monotonic()
        known = {} if now - self._looked_at >= GAP_SECONDS else self._since
        self._looked_at = now
        self._since = {job: known.get(job, now) for job in sorted(overdue)}
        if channel is not self._channel:
            self._channel, self._channel_since = channel, now
        if channel is None or now - self._channel_since < HEARING_SECONDS:
            return ()
        return tuple(job for job, since in self._since.items() if now - since >= self._patience_seconds)
