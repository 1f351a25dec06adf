"""Data plane of the remote tier: what the worker server asks for, done by reader, writer and finder.

Invariants: a job works on the arena that was attached when it started, to its end; jobs that do not fit the arena are
refused before anything is touched.
Threading: one event loop; payload is copied on the copy thread.
"""

import asyncio
import os
from collections.abc import Callable, Sequence
from typing import Final

from blockyard.core.errors import BlockyardError, RequestError, UnsupportedOperationError
from blockyard.core.vocabulary import ItemStatus, JobKind, Tier
from blockyard.runtime.job_executor import AttachAnswer, JobControl
from blockyard.runtime.logs import get_logger
from blockyard.tiers.arena import Arena
from blockyard.wire.worker_channel import Attach, Find, Found, InventoryPage, Job, MapEngine, UnmapEngine
from blockyard_remote_tier.arena_lease import ArenaLease, CopyThread
from blockyard_remote_tier.finder import Finder
from blockyard_remote_tier.job_items import PackWork, get_work, put_work
from blockyard_remote_tier.open_store import OpenStore
from blockyard_remote_tier.pack_reader import PackReader
from blockyard_remote_tier.pack_writer import PackWriter, PutPlan

MOVER_NAME: Final = "obstore"
_STANDALONE: Final = "g4.standalone"
_log: Final = get_logger(__name__)


class RemoteExecutor:
    """``JobExecutor`` of the remote tier."""

    def __init__(
        self,
        arenas: ArenaLease,
        copies: CopyThread,
        opened: OpenStore,
        writer: PackWriter,
        reader: PackReader,
        finder: Finder,
        attached: Callable[[], None],
        *,
        standalone: bool,
    ) -> None:
        """Execute through these; ``attached`` is told of every attach, of which a ``standalone`` one takes none."""
        self._standalone = standalone
        self._attached = attached
        self._arenas = arenas
        self._copies = copies
        self._opened = opened
        self._writer = writer
        self._reader = reader
        self._finder = finder

    async def attach(self, attach: Attach, arena_fd: int | None) -> AttachAnswer:
        """Map the arena of the node; ends when no copy for an earlier life is in progress."""
        if self._standalone:
            if arena_fd is not None:
                os.close(arena_fd)
            _log.warning("a block-manager was refused: this serves no node", key=_STANDALONE, instance=attach.instance)
            raise UnsupportedOperationError("this remote-tier serves no node", key=_STANDALONE)
        if attach.arena is None or arena_fd is None:
            raise RequestError("the remote tier needs the arena of its node", instance=attach.instance)
        try:
            arena = Arena.adopt(arena_fd, attach.arena)
        except BlockyardError:
            os.close(arena_fd)
            raise
        self._arenas.replace(arena)
        await self._copies.barrier()
        self._attached()
        return AttachAnswer(mover=MOVER_NAME)

    async def run(self, job: Job, control: JobControl) -> Sequence[ItemStatus]:
        """Execute a put or get job."""
        deadline = asyncio.get_running_loop().time() + control.remaining_seconds
        with self._arenas.borrowed() as arena:
            if job.payload_bytes > arena.payload_bytes:
                raise RequestError("the payload is longer than a slot of the arena", payload_bytes=job.payload_bytes)
            if job.kind is JobKind.G4_PUT:
                return await self._put(arena, job, deadline, control)
            if job.kind is JobKind.G4_GET:
                works = get_work(job)
                _check_slots(arena, works)
                return await self._reader.get(arena, works, deadline, control)
        raise UnsupportedOperationError("not a job of the remote tier", kind=job.kind.name)

    async def _put(self, arena: Arena, job: Job, deadline: float, control: JobControl) -> list[ItemStatus]:
        self._opened.check_target()
        geometry = self._opened.geometry(job.payload_bytes)
        works = put_work(job, geometry)
        _check_slots(arena, works)
        plan = PutPlan(prefix=self._opened.prefix, blocks_per_pack=geometry.blocks_per_pack, deadline=deadline)
        return await self._writer.put(arena, works, plan, control)

    async def inventory(self, tier: Tier, cursor: int, max_records: int, busy: frozenset[int]) -> InventoryPage:
        """Not here: the offload-worker lists slots."""
        raise UnsupportedOperationError("the remote tier lists no slots", tier=tier.label)

    async def map_engine(self, request: MapEngine, fds: Sequence[int]) -> None:
        """Not here: the remote tier never touches the memory of engines."""
        for fd in fds:
            os.close(fd)
        raise UnsupportedOperationError("the remote tier maps no engines", mapping=request.mapping)

    async def unmap_engine(self, request: UnmapEngine) -> None:
        """Not here."""
        raise UnsupportedOperationError("the remote tier maps no engines", mapping=request.mapping)

    async def find(self, request: Find) -> Found:
        """Look keys up in the shared index."""
        return await self._finder.find(request)


def _check_slots(arena: Arena, works: Sequence[PackWork]) -> None:
    highest = max(item.slot for work in works for item in work.items)
    if highest >= arena.slots:
        raise RequestError("the arena has no such slot", slot=highest, slots=arena.slots)
