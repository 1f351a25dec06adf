"""Transfer jobs as the block-manager sees them: numbers, states, deadlines, and the one moment each is settled.

::

    PLANNED -sent-> SENT -accepted-> ACTIVE ---------- result ---------------> settled (forgotten)
       ^  busy  |     | no answer      | deadline                                ^
       +--------+     +-> CANCELLING <-+ ---- result / refused / unseen / lost --+

The channel may lose, repeat, delay and reorder; nothing here depends on the order of arrival. A job ends only by its
result, by its worker's word that it will never run, or by proof that the worker's life is over: a deadline, a cancel,
silence or a lost connection never settles. A worker that is asked and says nothing for a while is *silent* until it
says anything again: whoever plans jobs can spare himself the wait for it.
The caller commits the items of a job exactly where a call here returns True.
Invariants: each number is settled at most once; ``settled_below`` never falls; at most ``unsettled_limit`` jobs per
worker, ``store_limit`` of them stores, and ``SEQ_WINDOW`` numbers are open.
Threading: owned by one thread. Does no I/O and keeps no payload: the caller maps numbers to what they are about.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

from blockyard.core.clock import Clock
from blockyard.core.errors import JobWindowFullError, NotReadyError
from blockyard.core.job_facts import JobAction, JobFacts, JobLimits, JobState, JobVerb, LostJobs
from blockyard.core.jobs import JobId, JobPhase, Refusal
from blockyard.core.vocabulary import Epoch, JobKind, JobSeq, Lane, WorkerRole

__all__ = ["JobAction", "JobFacts", "JobLimits", "JobState", "JobTable", "JobVerb", "LostJobs"]

_ALL_KINDS: Final = frozenset(JobKind)


@dataclass(slots=True)
class _Job:
    role: WorkerRole
    worker_epoch: Epoch
    kind: JobKind
    lane: Lane
    deadline: float
    state: JobState = JobState.PLANNED
    sends: int = 0
    due_at: float | None = None
    verb: JobVerb = JobVerb.RESEND


@dataclass(slots=True)
class _Worker:
    epoch: Epoch
    connected: bool
    inherited: set[JobId]
    asked_at: float | None = None
    """When the first message was sent to it after the last that it said."""


class JobTable:
    """Open jobs of one life of a block-manager."""

    def __init__(self, epoch: Epoch, clock: Clock, limits: JobLimits | None = None) -> None:
        """Start with no job and no worker; numbers count from 1."""
        self.epoch: Final = epoch
        self._clock = clock
        self._limits = limits or JobLimits()
        self._jobs: dict[JobSeq, _Job] = {}
        self._open: dict[WorkerRole, dict[Lane, int]] = {role: dict.fromkeys(Lane, 0) for role in WorkerRole}
        self._workers: dict[WorkerRole, _Worker] = {}
        self._next_seq = 1
        self._settled_below = 1

    # --- what is open -------------------------------------------------------------------------------------------
    @property
    def settled_below(self) -> JobSeq:
        """Lowest number that is not settled: every message to a worker carries it."""
        return JobSeq(self._settled_below)

    def __len__(self) -> int:
        """Open jobs of this life."""
        return len(self._jobs)

    def unsettled(self, role: WorkerRole) -> list[JobSeq]:
        """Open jobs of a worker, in order."""
        return [seq for seq, job in self._jobs.items() if job.role is role]

    def inherited(self, role: WorkerRole) -> list[JobId]:
        """Jobs of earlier lives that still run at a worker; their destinations are not to be granted."""
        worker = self._workers.get(role)
        return sorted(worker.inherited) if worker else []

    def facts(self, seq: JobSeq) -> JobFacts | None:
        """What is known about a job; None where it is settled or was never planned."""
        job = self._jobs.get(seq)
        if job is None:
            return None
        return JobFacts(seq, job.role, job.worker_epoch, job.kind, job.lane, job.state, job.deadline)

    def overdue(self, role: WorkerRole, kinds: Collection[JobKind]) -> list[JobSeq]:
        """Open jobs of these kinds at a worker whose time is over, in order."""
        now = self._clock.monotonic()
        return [
            seq for seq, job in self._jobs.items() if job.role is role and job.kind in kinds and job.deadline <= now
        ]

    def connected(self, role: WorkerRole) -> bool:
        """True where the worker is attached and its channel is open."""
        worker = self._workers.get(role)
        return worker is not None and worker.connected

    def silent(self, role: WorkerRole) -> bool:
        """True where the worker is connected, was asked, and has said nothing for ``silence_seconds`` since."""
        worker = self._workers.get(role)
        if worker is None or not worker.connected or worker.asked_at is None:
            return False
        return self._clock.monotonic() - worker.asked_at >= self._limits.silence_seconds

    def can_plan(self, role: WorkerRole, lane: Lane) -> bool:
        """True where ``plan`` would succeed: the worker is attached and both windows have room for this lane."""
        opened = self._open[role]
        return (
            self.connected(role)
            and sum(opened.values()) < self._limits.unsettled_limit
            and (lane is Lane.LOAD or opened[lane] < self._limits.store_limit)
            and self._next_seq < self._settled_below + self._limits.seq_window
        )

    # --- life of a job ------------------------------------------------------------------------------------------
    def plan(self, role: WorkerRole, kind: JobKind, lane: Lane, ttl_ms: int) -> JobSeq:
        """Open a job for the attached life of a worker; its time starts now.

        Raises:
            NotReadyError: the worker is not attached or not connected; nothing changed.
            JobWindowFullError: too many jobs are open; nothing changed.
        """
        worker = self._workers.get(role)
        if worker is None or not worker.connected:
            raise NotReadyError("the worker is not attached", worker=role.label)
        if not self.can_plan(role, lane):
            opened = sum(self._open[role].values())
            raise JobWindowFullError("too many open jobs", worker=role.label, lane=lane.name.lower(), open=opened)
        seq = JobSeq(self._next_seq)
        self._next_seq += 1
        deadline = self._clock.monotonic() + ttl_ms / 1_000
        self._jobs[seq] = _Job(role, worker.epoch, kind, lane, deadline)
        self._open[role][lane] += 1
        return seq

    def sent(self, seq: JobSeq) -> None:
        """The job was handed to the channel, for the first time or again.

        After ``resend_limit`` repeats it just waits for an answer, a reconnect or its deadline: a worker that is late
        has it, and a cancel would settle nothing before the worker speaks, only undo what it could still do in time.
        """
        job = self._jobs.get(seq)
        if job is None or job.state not in (JobState.PLANNED, JobState.SENT):
            return
        job.state = JobState.SENT
        job.sends += 1
        job.verb = JobVerb.RESEND
        told_enough = job.sends > self._limits.resend_limit
        job.due_at = None if told_enough else self._clock.monotonic() + self._limits.resend_seconds
        self.asked(job.role)

    def asked(self, role: WorkerRole) -> None:
        """A message that wants an answer was sent to the worker."""
        worker = self._workers.get(role)
        if worker is not None and worker.asked_at is None:
            worker.asked_at = self._clock.monotonic()

    def heard(self, role: WorkerRole) -> None:
        """The worker said something, whatever it was."""
        worker = self._workers.get(role)
        if worker is not None:
            worker.asked_at = None

    def accepted(self, seq: JobSeq) -> None:
        """The worker has the job; a late answer to a job that is being cancelled changes nothing."""
        job = self._jobs.get(seq)
        if job is not None and job.state in (JobState.PLANNED, JobState.SENT):
            job.state = JobState.ACTIVE
            job.due_at = None

    def busy(self, seq: JobSeq, retry_ms: int) -> None:
        """The worker's queue is full: the job is due again after ``retry_ms``, with a fresh count of attempts.

        A copy of the same submit may still have been taken, so the job stays open.
        """
        job = self._jobs.get(seq)
        if job is not None and job.state is JobState.SENT:
            job.state = JobState.PLANNED
            job.sends = 0
            job.due_at = self._clock.monotonic() + retry_ms / 1_000

    def refused(self, seq: JobSeq, reason: Refusal) -> bool:
        """The worker will never run the job.

        Returns:
            True where this settled it. ``STALE_EPOCH`` settles nothing: it says that this life has been superseded,
            and an earlier copy of the job may still run.
        """
        if reason is Refusal.STALE_EPOCH:
            return False
        return self._forget(seq)

    def state_told(self, seq: JobSeq, phase: JobPhase) -> bool:
        """Answer to cancel or poll.

        Returns:
            True where this settled the job: the worker had not seen it and never will. An ended job is settled by its
            result, which the worker repeats.
        """
        if phase is JobPhase.UNSEEN:
            return self._forget(seq)
        job = self._jobs.get(seq)
        if job is not None and job.state is not JobState.CANCELLING:
            job.state = JobState.ACTIVE
            job.due_at = None
        return False

    def cancel(self, seq: JobSeq) -> None:
        """Want the end of a job now; ``due`` names it until it is settled."""
        job = self._jobs.get(seq)
        if job is not None and job.state is not JobState.CANCELLING:
            self._start_cancel(job, self._clock.monotonic())

    def settle(self, seq: JobSeq, worker_epoch: Epoch) -> bool:
        """A result of this life's job arrived; the caller acknowledges it in any case.

        Returns:
            True exactly once per job: only then may its items be committed.
        """
        job = self._jobs.get(seq)
        if job is None:
            return False
        if job.worker_epoch != worker_epoch:
            return False
        return self._forget(seq)

    def settle_inherited(self, job: JobId, worker_epoch: Epoch) -> bool:
        """A result of an earlier life's job arrived; True once, where it was listed as running at attach."""
        for worker in self._workers.values():
            if job in worker.inherited and worker.epoch == worker_epoch:
                worker.inherited.discard(job)
                return True
        return False

    # --- workers ------------------------------------------------------------------------------------------------
    def attached(self, role: WorkerRole, worker_epoch: Epoch, running: Iterable[JobId] = ()) -> LostJobs:
        """A worker answered attach.

        A higher worker epoch than before proves that the earlier life is over: its jobs are lost. The same epoch is a
        reconnect: open jobs are sent, polled or cancelled again at once.

        Returns:
            What ended by this; the caller treats their items as failed.
        """
        now = self._clock.monotonic()
        before = self._workers.get(role)
        if before is not None and worker_epoch < before.epoch:
            raise NotReadyError("an earlier life of the worker answered", worker=role.label, epoch=worker_epoch)
        still = {job for job in running if job.epoch < self.epoch}
        ended = tuple(sorted(before.inherited - still)) if before is not None else ()
        self._workers[role] = _Worker(worker_epoch, connected=True, inherited=still)
        lost = self._lose(role, below=worker_epoch)
        for seq in self.unsettled(role):
            self._ask_again(self._jobs[seq], now)
        return LostJobs(lost, ended)

    def disconnected(self, role: WorkerRole) -> None:
        """The channel to a worker ended: nothing is due for it until it is attached again, and nothing is settled."""
        worker = self._workers.get(role)
        if worker is not None:
            worker.connected = False

    def worker_lost(self, role: WorkerRole, old_epoch: Epoch) -> LostJobs:
        """The worker's life ``old_epoch`` is proven over: settle its jobs as lost, and those of lives before it."""
        worker = self._workers.get(role)
        inherited: tuple[JobId, ...] = ()
        if worker is not None and worker.epoch <= old_epoch:
            inherited = tuple(sorted(worker.inherited))
            worker.inherited.clear()
            worker.connected = False
        return LostJobs(self._lose(role, below=Epoch(old_epoch + 1)), inherited)

    def process_lost(self, role: WorkerRole, old_epoch: Epoch, kinds: Collection[JobKind]) -> LostJobs:
        """The process of the life ``old_epoch`` is gone: settle its jobs of kinds that only the process carries out.

        What its other jobs asked a device for may still go on.
        """
        return LostJobs(self._lose(role, Epoch(old_epoch + 1), kinds))

    # --- time ---------------------------------------------------------------------------------------------------
    def due(self, now: float) -> list[JobAction]:
        """Messages to send now, in order of job numbers; each is named again after ``resend_seconds``.

        A submit only ``resend_limit`` times; then it waits for an answer, a reconnect or its deadline.
        """
        actions: list[JobAction] = []
        for seq, job in self._jobs.items():
            worker = self._workers.get(job.role)
            if worker is None or not worker.connected:
                continue
            if job.state is not JobState.CANCELLING and now >= job.deadline:
                self._start_cancel(job, now)
            if job.due_at is not None and job.due_at <= now:
                actions.append(JobAction(job.verb, seq, job.role))
                self.asked(job.role)
                job.due_at = now + self._limits.resend_seconds
        return actions

    # --- inside -------------------------------------------------------------------------------------------------
    def _start_cancel(self, job: _Job, now: float) -> None:
        job.state = JobState.CANCELLING
        job.verb = JobVerb.CANCEL
        job.due_at = now

    def _ask_again(self, job: _Job, now: float) -> None:
        if job.state is JobState.ACTIVE:
            job.verb = JobVerb.POLL
        elif job.state is JobState.SENT:
            job.sends = 0
        if job.state is not JobState.PLANNED or job.due_at is not None:
            job.due_at = now

    def _lose(self, role: WorkerRole, below: Epoch, kinds: Collection[JobKind] = _ALL_KINDS) -> tuple[JobSeq, ...]:
        lost = tuple(
            seq
            for seq, job in self._jobs.items()
            if job.role is role and job.worker_epoch < below and job.kind in kinds
        )
        for seq in lost:
            self._forget(seq)
        return lost

    def _forget(self, seq: JobSeq) -> bool:
        job = self._jobs.pop(seq, None)
        if job is None:
            return False
        self._open[job.role][job.lane] -= 1
        while self._settled_below < self._next_seq and JobSeq(self._settled_below) not in self._jobs:
            self._settled_below += 1
        return True
