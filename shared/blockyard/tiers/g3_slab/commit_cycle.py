"""Which header pages go to disk with which sync: the rule that makes every valid header have its payload.

    store:  payload written -> WRITTEN --a sync that began later ends--> READY page written --next sync ends--> settled
    free:   RETIRED --FREE page written--> sync ends--> settled

One cycle: write the pages of all that are READY-able or retired; begin a sync; when it ends, those pages are durable,
and payloads that were finished when the sync began may get their pages in the next cycle. Payloads of the next batch
are written meanwhile.

Invariants: a READY page is written only after a sync that began after its payload was finished; a change is settled
only after the sync that follows its page; a failed sync settles nothing and ends the cycle for good.
Pure: no clock, no I/O, no thread; the committer drives it under its lock.
"""

import math
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import final

from blockyard.core.vocabulary import BlockId, ItemStatus


@final
class CommitBatch:
    """Page changes that were handed over together; their results are handed back together."""

    def __init__(self, count: int) -> None:
        """Expect ``count`` results."""
        self._statuses = [ItemStatus.UNKNOWN] * count
        self._open = count
        self.done: Future[list[ItemStatus]] = Future()
        # A waiter that leaves must not stop the commit: from here on the future cannot be cancelled.
        self.done.set_running_or_notify_cancel()
        if not count:
            self.done.set_result([])

    def settle(self, index: int, status: ItemStatus) -> None:
        """Note the result of one change; the last one resolves ``done``."""
        self._statuses[index] = status
        self._open -= 1
        if not self._open:
            self.done.set_result(self._statuses)


@dataclass(frozen=True, slots=True, eq=False)
class PageChange:
    """One header page that is to be written."""

    slot: BlockId
    record: bytes
    payload_bytes: int
    """Bytes of payload that wait for a sync; 0 for pages that free a slot."""
    arrived: float
    """When it was handed over, on the committer's clock."""
    batch: CommitBatch
    index: int

    def settle(self, status: ItemStatus) -> None:
        """Hand the result back."""
        self.batch.settle(self.index, status)


@final
class CommitCycle:
    """State of the commit of one slab."""

    def __init__(self, interval_seconds: float, max_bytes: int) -> None:
        """Begin a cycle when the oldest change waited for ``interval_seconds`` or ``max_bytes`` of payload wait."""
        self._interval_seconds = interval_seconds
        self._max_bytes = max_bytes
        self._written: list[PageChange] = []
        self._covered: list[PageChange] = []
        self._synced: list[PageChange] = []
        self._retired: list[PageChange] = []
        self._in_pages: list[PageChange] = []

    @property
    def is_idle(self) -> bool:
        """True if nothing waits."""
        return not (self._written or self._covered or self._synced or self._retired or self._in_pages)

    def payloads_written(self, changes: Iterable[PageChange]) -> None:
        """The payloads of these changes are finished, but not durable."""
        self._written.extend(changes)

    def retired(self, changes: Iterable[PageChange]) -> None:
        """These pages say FREE or BAD; they need no payload."""
        self._retired.extend(changes)

    def due_in(self, now: float) -> float:
        """Seconds until a cycle should begin; 0 if it should now, infinity if nothing waits."""
        waiting = (*self._written, *self._synced, *self._retired)
        if not waiting:
            return math.inf
        if sum(change.payload_bytes for change in self._written) >= self._max_bytes:
            return 0.0
        return max(0.0, min(change.arrived for change in waiting) + self._interval_seconds - now)

    def take_pages(self) -> list[PageChange]:
        """Step 1: the pages to write now, in the order of their slots."""
        self._in_pages = sorted((*self._synced, *self._retired), key=lambda change: change.slot)
        self._synced, self._retired = [], []
        return list(self._in_pages)

    def drop(self, failed: Sequence[PageChange]) -> None:
        """Leave out pages that could not be written; the caller settles them."""
        self._in_pages = [change for change in self._in_pages if change not in failed]

    def begin_sync(self) -> None:
        """Step 2: a sync begins now; payloads finished by now are covered by it."""
        self._covered, self._written = self._written, []

    @property
    def needs_sync(self) -> bool:
        """True if the sync that just begins has something to make durable."""
        return bool(self._in_pages or self._covered)

    def end_sync(self) -> list[PageChange]:
        """Step 3: the sync ended well. Returns the changes whose pages are durable now."""
        durable, self._in_pages = self._in_pages, []
        self._synced.extend(self._covered)
        self._covered = []
        return durable

    def abandon(self) -> list[PageChange]:
        """The slab failed: forget everything that waits and return it."""
        waiting = [*self._in_pages, *self._covered, *self._synced, *self._written, *self._retired]
        self._in_pages, self._covered, self._synced, self._written, self._retired = [], [], [], [], []
        return waiting
