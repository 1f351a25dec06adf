"""Permission to touch memory or disk for the items of one running job, asked from any thread.

Invariants: an item that was refused once for lack of time or by a newer life is refused for good; generations come
from the command, headers from the place itself at the moment of asking.
Threading: reads single fields of the ledger; safe from any thread.
"""

from typing import Final

from blockyard.core.clock import Clock
from blockyard.core.job_ledger import JobLedger, JobTicket
from blockyard.core.vocabulary import Generation, ItemStatus
from blockyard.runtime.job_columns import destination_generations
from blockyard.wire.worker_channel import Job


class LedgerControl:
    """``JobControl`` of one job, backed by the worker's ledger."""

    def __init__(self, ledger: JobLedger[Job], ticket: JobTicket[Job], clock: Clock) -> None:
        """Control the running job ``ticket``."""
        self.index_pending = False
        self._ledger: Final = ledger
        self._job: Final = ticket.job
        self._clock: Final = clock
        self._generations: Final = destination_generations(ticket.payload)

    @property
    def cancelled(self) -> bool:
        """True where nothing more of the job should be issued."""
        return self._ledger.cancelled(self._job)

    @property
    def remaining_seconds(self) -> float:
        """Time until the deadline of the job; see ``JobControl``."""
        return self._ledger.remaining_seconds(self._job, self._clock.monotonic())

    def may_issue(self, item: int, header: Generation | None = None) -> ItemStatus:
        """Last check before the I/O of one item; see ``JobControl``."""
        granted = self._generations[item] if self._generations else None
        return self._ledger.may_issue(self._job, granted, header, self._clock.monotonic())

    def index_is_pending(self) -> None:
        """The objects are stored, but the index could not be written yet."""
        self.index_pending = True
