"""What the job table says and is told about: states, due messages, bounds.

Threading: values only.
"""

from dataclasses import dataclass
from enum import IntEnum, unique

from blockyard.core.jobs import SEQ_WINDOW, JobId
from blockyard.core.vocabulary import Epoch, JobKind, JobSeq, Lane, WorkerRole


@unique
class JobState(IntEnum):
    """State of a job that is not settled."""

    PLANNED = 0
    """Not sent, or sent and answered with *busy*."""
    SENT = 1
    ACTIVE = 2
    CANCELLING = 3
    """Its end is wanted; repeated until the worker has said what became of it."""


@unique
class JobVerb(IntEnum):
    """What the caller has to send now."""

    RESEND = 0
    """Submit the job again under the same number."""
    CANCEL = 1
    POLL = 2


@dataclass(frozen=True, slots=True)
class JobAction:
    """One message that is due."""

    verb: JobVerb
    seq: JobSeq
    role: WorkerRole


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLimits:
    """Bounds and periods."""

    resend_seconds: float = 0.2
    resend_limit: int = 3
    unsettled_limit: int = 256
    """Open jobs per worker."""
    seq_window: int = SEQ_WINDOW
    silence_seconds: float = 1.0
    """A worker that leaves messages about jobs without any answer for so long hangs."""

    @property
    def store_limit(self) -> int:
        """Open stores per worker: the rest is for loads, so that no request waits for a disk or server that hangs."""
        return max(1, self.unsettled_limit * 3 // 4)


@dataclass(frozen=True, slots=True)
class JobFacts:
    """What is known about an open job."""

    seq: JobSeq
    role: WorkerRole
    worker_epoch: Epoch
    kind: JobKind
    lane: Lane
    state: JobState
    deadline: float
    """Monotonic time after which its end is wanted."""


@dataclass(frozen=True, slots=True)
class LostJobs:
    """Jobs that ended because their worker's life did, or because it no longer knows them."""

    jobs: tuple[JobSeq, ...] = ()
    inherited: tuple[JobId, ...] = ()
    """Jobs of earlier lives of this block-manager."""
