"""Port of a worker's data plane: what the worker server asks of whoever moves the bytes.

The server owns ids, fencing, queueing, results and their repetition; an executor owns descriptors, memory, disks and
connections. An operation without meaning for a worker raises ``UnsupportedOperationError``.
Threading: called on the server's event loop; ``JobControl`` may be used from any thread of the executor.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from blockyard.core.vocabulary import Generation, ItemStatus, Tier
from blockyard.wire.worker_channel import (
    ArenaInfo,
    Attach,
    Find,
    Found,
    InventoryPage,
    Job,
    MapEngine,
    SlabInfo,
    UnmapEngine,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttachAnswer:
    """What a worker has; goes into the answer to attach.

    ``arena_fd`` stays the executor's: the server sends a duplicate.
    """

    mover: str
    arena: ArenaInfo | None = None
    arena_fd: int | None = None
    slabs: tuple[SlabInfo, ...] = ()


class JobControl(Protocol):
    """What a running job asks before each item, from whichever thread issues its I/O."""

    @property
    def cancelled(self) -> bool:
        """True where nothing more should be issued; what has been issued goes on to its end."""
        ...

    @property
    def remaining_seconds(self) -> float:
        """Time until the job's deadline, which counts from its receipt, not its start; zero or less once it is over."""
        ...

    def may_issue(self, item: int, header: Generation | None = None) -> ItemStatus:
        """Last check, immediately before the I/O of one item.

        Args:
            item: index of the item in the job.
            header: generation in the slot header at the destination (``FREE``: at the slot itself). Required for jobs
                that write slots of G2 or G3; None for destinations without headers (engine memory, object store).

        Returns:
            OK, or SKIPPED: then the item must stay untouched and has this status.
        """
        ...

    def index_is_pending(self) -> None:
        """The objects of this job are stored, but the index could not be written yet."""
        ...


class JobExecutor(Protocol):
    """The data plane of one worker."""

    async def attach(self, attach: Attach, arena_fd: int | None) -> AttachAnswer:
        """Serve this block-manager from now on; called again with equal contents after a reconnect.

        Args:
            attach: the message. Mappings of engines are not its matter: the server unmaps those of older lives.
            arena_fd: descriptor of the arena named in the message; the executor's from now on, also where it raises.
        """
        ...

    async def run(self, job: Job, control: JobControl) -> Sequence[ItemStatus]:
        """Execute a job: one status per item, returned when every issued write has landed or failed.

        Failures of items are statuses. A ``BlockyardError`` means that nothing is in flight any more and that every
        item failed; any other exception is a bug and ends the worker.
        """
        ...

    async def inventory(self, tier: Tier, cursor: int, max_records: int, busy: frozenset[int]) -> InventoryPage:
        """One page of a tier's granted slots from ``cursor`` on, without the slots in ``busy``."""
        ...

    async def map_engine(self, request: MapEngine, fds: Sequence[int]) -> None:
        """Map an engine's memory; the descriptors are the executor's from now on, also where it raises.

        Args:
            request: the message.
            fds: guard words first, then the KV memory of each rank, as many as the message names.
        """
        ...

    async def unmap_engine(self, request: UnmapEngine) -> None:
        """Forget a mapping; no job uses it any more."""
        ...

    async def find(self, request: Find) -> Found:
        """Look keys up in the shared index."""
        ...


class WorkerMeter(Protocol):
    """What the server reports to the service's metrics."""

    def job_ended(self, job: Job, status: Sequence[ItemStatus], seconds: float) -> None:
        """A job ended after ``seconds`` of execution."""
        ...
