"""What goes into a worker's ledger of jobs and what comes out: tickets, admissions, outcomes.

Threading: frozen values.
"""

from dataclasses import dataclass
from enum import Enum, IntEnum, auto, unique
from typing import Generic, TypeVar

from blockyard.core.jobs import JobId
from blockyard.core.vocabulary import Epoch, JobEnd, JobKind, Lane

Payload = TypeVar("Payload")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTicket(Generic[Payload]):
    """What the ledger must know of a job, and the job itself, which it only keeps."""

    job: JobId
    worker_epoch: Epoch
    kind: JobKind
    lane: Lane
    ttl_ms: int
    items: int
    payload: Payload
    trace: str = ""
    """Trace context of the job; only kept, like the job."""


@dataclass(frozen=True, slots=True)
class JobOutcome:
    """End of a job: one status byte per item."""

    job: JobId
    end: JobEnd
    status: bytes
    index_pending: bool = False


@unique
class Admission(Enum):
    """Answer to a submit that is not a refusal."""

    QUEUED = auto()
    KNOWN = auto()
    """A repeated command: the job is queued, running or ended already."""
    BUSY = auto()
    """No room; nothing was taken or remembered."""


@unique
class AttachKind(IntEnum):
    """What an attach means to the jobs that are here."""

    TAKEOVER = 0
    RECONNECT = 1


@dataclass(frozen=True, slots=True)
class Attachment:
    """The block-manager that is served."""

    instance: str
    epoch: Epoch
