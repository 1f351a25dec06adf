"""Transfer jobs as a worker sees them: whom it serves, which ids it knows, and what may still touch memory or disk.

::

    unseen --submit--> QUEUED --start--> RUNNING --finish--> ENDED --ack, or settled_below passes--> forgotten
       |                  +-------------cancel----------------^
       +--cancel, poll, refusal--> TOMBSTONE (a late copy of the command has no effect)

A worker serves one block-manager. A higher epoch takes over: queued jobs of older lives vanish, running ones may issue
nothing more (``may_issue``), are named in the answer to attach, and run to their end. Results are kept until
acknowledged, ids until ``settled_below`` passes them; lower ids are refused.
Invariants: after a takeover no job of a lower epoch gets permission to issue; a job starts at most once and ends at
most once; queued, running and ended jobs together are at most ``limit``, ids at most the window.
Threading: owned by one thread, except ``may_issue`` and ``cancelled``, which read single fields and are called by the
threads that issue the I/O. Does no I/O and does not look into payloads.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Generic

from blockyard.core.clock import Clock
from blockyard.core.errors import AttachedElsewhereError, FencedError, KernelError, NotAttachedError, RequestError
from blockyard.core.job_tickets import Admission, AttachKind, Attachment, JobOutcome, JobTicket, Payload
from blockyard.core.jobs import SEQ_WINDOW, GenerationRule, JobId, JobPhase, Refusal, generation_rule
from blockyard.core.vocabulary import Epoch, Generation, ItemStatus, JobEnd, JobSeq, Lane
from blockyard.core.work_queue import QueueLimits, WorkQueue

__all__ = ["Admission", "AttachKind", "Attachment", "JobLedger", "JobOutcome", "JobTicket"]


@dataclass(slots=True)
class _Entry(Generic[Payload]):
    ticket: JobTicket[Payload]
    deadline: float
    phase: JobPhase
    cancelled: bool = False
    expired: bool = False
    outcome: JobOutcome | None = None
    push_at: float = 0.0


class JobLedger(Generic[Payload]):
    """Jobs of one life of a worker."""

    def __init__(self, worker_epoch: Epoch, clock: Clock, *, limit: int = 256, resend_seconds: float = 1.0) -> None:
        """Start unattached and empty.

        Args:
            worker_epoch: this life of the worker; commands meant for another one are refused.
            clock: source of monotonic time; a job's time starts when it is received.
            limit: most jobs that are queued, running or not acknowledged.
            resend_seconds: period at which an unacknowledged result is due again.
        """
        self.worker_epoch: Final = worker_epoch
        self._clock = clock
        self._limit = limit
        self.resend_seconds: Final = resend_seconds
        self._attachment: Attachment | None = None
        self._epoch = Epoch(0)
        self._settled_below = 1
        self._entries: dict[JobId, _Entry[Payload]] = {}
        self._queue: WorkQueue[JobId, None, JobId] = WorkQueue(QueueLimits(max(limit, 1)))
        self._closed: dict[JobSeq, JobPhase] = {}

    # --- attach -------------------------------------------------------------------------------------------------
    def attach(self, instance: str, epoch: Epoch, *, incumbent_connected: bool) -> AttachKind:
        """Serve a block-manager from now on.

        A takeover drops what was queued for older lives and everything that had ended; from here on no older job is
        permitted to issue. The caller may give the running ones a moment to end; ``drop_ended`` and naming those in
        ``running`` to the new life make one synchronous section.

        Args:
            instance: name of the block-manager's node.
            epoch: its life.
            incumbent_connected: the connection of the attached block-manager is open.

        Raises:
            FencedError: a newer life is attached; nothing changed.
            AttachedElsewhereError: another instance is served and still connected; nothing changed.
        """
        held = self._attachment
        if held is not None and held.instance != instance and incumbent_connected:
            raise AttachedElsewhereError("the worker is attached", instance=held.instance)
        if held is not None and (epoch < held.epoch or (epoch == held.epoch and held.instance != instance)):
            raise FencedError("a newer life is attached", attached=held.epoch, epoch=epoch)
        if held is not None and epoch == held.epoch:
            return AttachKind.RECONNECT
        self._attachment = Attachment(instance, epoch)
        self._epoch = epoch
        self._settled_below = 1
        self._closed.clear()
        for queued in self._queue.all_work():
            self._queue.withdraw(queued)
        self._entries = {job: entry for job, entry in self._entries.items() if entry.phase is JobPhase.RUNNING}
        return AttachKind.TAKEOVER

    def running(self, *, below: Epoch | None = None) -> list[JobId]:
        """Running jobs, in order; with ``below`` only those of lower epochs."""
        return sorted(
            job
            for job, entry in self._entries.items()
            if entry.phase is JobPhase.RUNNING and (below is None or job.epoch < below)
        )

    def drop_ended(self, below: Epoch) -> None:
        """Forget results of older lives: the new one learns of those jobs by their absence from the running ones."""
        for job in [job for job, entry in self._entries.items() if job.epoch < below and entry.outcome is not None]:
            del self._entries[job]

    def live(self) -> Iterator[JobTicket[Payload]]:
        """Jobs that are queued or running, of whatever life."""
        return (entry.ticket for entry in self._entries.values() if entry.outcome is None)

    # --- commands -----------------------------------------------------------------------------------------------
    def submit(
        self, ticket: JobTicket[Payload], settled_below: int, *, refusal: Refusal | None = None
    ) -> Admission | Refusal:
        """Take a job, or say why not.

        Args:
            ticket: the job.
            settled_below: of the message that carried it.
            refusal: the caller's own reason (bad columns, no mapping). It sticks: a refused job never runs, also
                where a later copy of the command would be acceptable.

        Raises:
            NotAttachedError: the job belongs to a life that has not attached.
        """
        epoch, seq = ticket.job
        if epoch > self._epoch or self._attachment is None:
            raise NotAttachedError("the job's block-manager is not attached", epoch=epoch)
        if epoch < self._epoch:
            return Refusal.STALE_EPOCH
        self._advance(settled_below)
        if ticket.worker_epoch != self.worker_epoch:
            return Refusal.STALE_WORKER
        if seq < self._settled_below:
            return Refusal.SETTLED
        if ticket.job in self._entries:
            return Admission.KNOWN
        if seq in self._closed:
            return Refusal.TOMBSTONE if self._closed[seq] is JobPhase.UNSEEN else Refusal.SETTLED
        if seq >= self._settled_below + SEQ_WINDOW:
            return Refusal.BAD_REQUEST
        if refusal is not None:
            self._closed[seq] = JobPhase.UNSEEN
            return refusal
        if len(self._entries) >= self._limit:
            return Admission.BUSY
        deadline = self._clock.monotonic() + ticket.ttl_ms / 1_000
        self._entries[ticket.job] = _Entry(ticket, deadline, JobPhase.QUEUED)
        self._queue.put(ticket.job, ticket.job, lane=None, priority=-ticket.lane)
        return Admission.QUEUED

    def cancel(self, epoch: Epoch, seqs: Iterable[int]) -> list[tuple[JobId, JobPhase]]:
        """End these jobs as soon as no write of theirs can follow; queued ones end now, unseen ones are tombstoned."""
        states: list[tuple[JobId, JobPhase]] = []
        for job in self._own(epoch, seqs):
            entry = self._entries.get(job)
            if entry is not None and entry.phase is JobPhase.QUEUED:
                self._queue.withdraw(job)
                entry.cancelled = True
                self._end(entry, bytes([ItemStatus.SKIPPED]) * entry.ticket.items)
            elif entry is not None:
                entry.cancelled = True
            states.append((job, self._phase(job)))
        return states

    def poll(self, epoch: Epoch, seqs: Iterable[int]) -> list[tuple[JobId, JobPhase]]:
        """State of these jobs; unseen ones are tombstoned, so that the answer stays true."""
        return [(job, self._phase(job)) for job in self._own(epoch, seqs)]

    def ack(self, epoch: Epoch, seqs: Iterable[int], settled_below: int) -> None:
        """Results received: forget them; their ids are remembered until ``settled_below`` passes."""
        for job in self._own(epoch, seqs):
            entry = self._entries.get(job)
            if entry is not None and entry.phase is JobPhase.ENDED:
                del self._entries[job]
                if epoch == self._epoch and job.seq >= self._settled_below:
                    self._closed[job.seq] = JobPhase.ENDED
        if epoch == self._epoch:
            self._advance(settled_below)

    # --- execution ----------------------------------------------------------------------------------------------
    def start(self, least: Lane = Lane.STORE) -> JobTicket[Payload] | None:
        """Take the next queued job, loads first, none less urgent than ``least``; it is RUNNING from now on.

        None where no such job waits.
        """
        jobs = self._queue.take(1, least_priority=-least)
        if not jobs:
            return None
        entry = self._entries[jobs[0]]
        entry.phase = JobPhase.RUNNING
        return entry.ticket

    def may_issue(
        self, job: JobId, destination: Generation | None, header: Generation | None, now: float
    ) -> ItemStatus:
        """Last check before the I/O of one item, called by the thread that issues it.

        Args:
            job: a running job.
            destination: generation that the command granted; None where the kind has no slots as destination.
            header: generation in the header that lies at the destination; None where there is no header.
            now: monotonic time.

        Returns:
            OK, or SKIPPED: then the item stays untouched.

        Raises:
            KernelError: a generation is missing although the kind of job writes slots.
        """
        entry = self._entries.get(job)
        if entry is None or entry.cancelled or job.epoch != self._epoch:
            return ItemStatus.SKIPPED
        if now >= entry.deadline:
            entry.expired = True
            return ItemStatus.SKIPPED
        rule = generation_rule(entry.ticket.kind)
        if rule is GenerationRule.NONE:
            return ItemStatus.OK
        if destination is None or header is None:
            raise KernelError("this kind of job compares generations", kind=entry.ticket.kind.name)
        fits = destination == header if rule is GenerationRule.EQUAL else destination > header
        return ItemStatus.OK if fits else ItemStatus.SKIPPED

    def cancelled(self, job: JobId) -> bool:
        """True where nothing more of this job may be issued by will of a block-manager; any thread."""
        entry = self._entries.get(job)
        return entry is None or entry.cancelled or job.epoch != self._epoch

    def remaining_seconds(self, job: JobId, now: float) -> float:
        """Time that a job has left, counted from its receipt; zero or less once its deadline has passed."""
        entry = self._entries.get(job)
        return 0.0 if entry is None else entry.deadline - now

    def finish(self, job: JobId, status: bytes, *, index_pending: bool = False) -> JobOutcome:
        """A running job has ended: every write it issued has landed or failed.

        Raises:
            KernelError: the job does not run, or the statuses are not one per item.
        """
        entry = self._entries.get(job)
        if entry is None or entry.phase is not JobPhase.RUNNING:
            raise KernelError("the job does not run here", epoch=job.epoch, seq=job.seq)
        if len(status) != entry.ticket.items:
            raise KernelError("one status per item", seq=job.seq, items=entry.ticket.items, statuses=len(status))
        return self._end(entry, status, index_pending)

    # --- results ------------------------------------------------------------------------------------------------
    def results_due(self, now: float, *, everything: bool = False) -> list[JobOutcome]:
        """Outcomes to push now; each is due again after ``resend_seconds``. ``everything``: after a re-attach."""
        due: list[JobOutcome] = []
        for entry in self._entries.values():
            if entry.outcome is not None and (everything or entry.push_at <= now):
                entry.push_at = now + self.resend_seconds
                due.append(entry.outcome)
        return due

    @property
    def queued(self) -> int:
        """Jobs that wait for an executor."""
        return len(self._queue)

    @property
    def remembered(self) -> int:
        """Jobs and bare ids in memory."""
        return len(self._entries) + len(self._closed)

    # --- inside -------------------------------------------------------------------------------------------------
    def _own(self, epoch: Epoch, seqs: Iterable[int]) -> list[JobId]:
        if self._attachment is None or epoch > self._epoch:
            raise NotAttachedError("the jobs' block-manager is not attached", epoch=epoch)
        jobs = [JobId(epoch, JobSeq(seq)) for seq in seqs]
        if epoch == self._epoch and any(job.seq >= self._settled_below + SEQ_WINDOW for job in jobs):
            raise RequestError("a job number is outside the window", settled_below=self._settled_below)
        return jobs

    def _phase(self, job: JobId) -> JobPhase:
        entry = self._entries.get(job)
        if entry is not None:
            return entry.phase
        if job.epoch < self._epoch:
            return JobPhase.UNSEEN  # commands of older lives are refused, so no tombstone is needed
        if job.seq < self._settled_below:
            return JobPhase.ENDED
        return self._closed.setdefault(job.seq, JobPhase.UNSEEN)

    def _end(self, entry: _Entry[Payload], status: bytes, index_pending: bool = False) -> JobOutcome:
        end = JobEnd.CANCELLED if entry.cancelled else JobEnd.EXPIRED if entry.expired else JobEnd.DONE
        entry.phase = JobPhase.ENDED
        entry.outcome = JobOutcome(entry.ticket.job, end, status, index_pending)
        return entry.outcome

    def _advance(self, settled_below: int) -> None:
        if settled_below <= self._settled_below:
            return
        self._settled_below = settled_below
        for seq in [seq for seq in self._closed if seq < settled_below]:
            del self._closed[seq]
        settled = [job for job in self._entries if job.epoch == self._epoch and job.seq < settled_below]
        for job in settled:
            phase = self._entries[job].phase
            if phase is JobPhase.QUEUED:
                self._queue.withdraw(job)
            if phase is not JobPhase.RUNNING:
                del self._entries[job]
