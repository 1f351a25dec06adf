"""The data plane of a node behind the job channel: which part moves the blocks of which kind of job.

::

    G1_G2, G2_G1        copy thread, between engine memory and arena
    SEAL, CHECK         copy thread, on slots that ranks write and read
    G2_G3, G3_G2        mover, between arena and slab; sources and destinations hashed by the copy thread
    FREE                headers of arena or slab
    attach              arena (made, taken over, or replaced), then the mover on it
    inventory           headers of arena or slab

Invariants: no job touches anything before the first attach; a stopping executor lets running jobs end and takes no
more. Threading: event loop; bytes are touched by the copy thread and the mover's threads only.
"""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from blockyard.core.errors import ConfigurationError, LayoutMismatchError, UnavailableError, UnsupportedOperationError
from blockyard.core.vocabulary import Epoch, ItemStatus, JobKind, Lane, Tier
from blockyard.runtime.job_executor import AttachAnswer, JobControl
from blockyard.runtime.rpc.frame_buffer import close_descriptors
from blockyard.tiers.arena import Arena
from blockyard.tiers.open_mover import ChosenMover
from blockyard.wire.worker_channel import Attach, Find, Found, InventoryPage, Job, MapEngine, UnmapEngine
from blockyard_offload_worker.arena_owner import ArenaOwner
from blockyard_offload_worker.copy_thread import CopyThread
from blockyard_offload_worker.disk_tier import DiskOutage, DiskTier
from blockyard_offload_worker.engine_copies import EngineCopies
from blockyard_offload_worker.engine_mappings import EngineMappings
from blockyard_offload_worker.inventory import SlotTable, list_slots
from blockyard_offload_worker.job_items import copy_items, free_items
from blockyard_offload_worker.releases import free_in_arena
from blockyard_offload_worker.seals import check_slots, seal_slots
from blockyard_offload_worker.slab_transfers import SlabTransfers

NO_MOVER = "none"
"""Name of the mover of a node without a disk tier."""


class DiskObserver(Protocol):
    """Who wants to know about the disk: metrics and readiness."""

    def mover_chosen(self, chosen: ChosenMover) -> None:
        """A mover was opened, or asked for again."""
        ...

    def disk_used(self, failure: str) -> None:
        """A job used the disk; ``failure`` says why the slab serves reads only or the mover moves nothing any more."""
        ...


class OffloadExecutor:
    """``JobExecutor`` of the offload-worker."""

    def __init__(
        self,
        worker_epoch: Epoch,
        owner: ArenaOwner,
        copies: CopyThread,
        mappings: EngineMappings,
        disk: DiskTier | DiskOutage | None,
        observer: DiskObserver,
    ) -> None:
        """Execute on these parts, which stay the caller's to close.

        Args:
            worker_epoch: this life of the process.
            owner: owner of the arena.
            copies: thread that copies and hashes.
            mappings: table of engine memories.
            disk: the disk tier; None where it is switched off.
            observer: told of the mover and of the state of the disk.
        """
        self._worker_epoch = worker_epoch
        self._owner = owner
        self._copies = copies
        self._mappings = mappings
        self._disk = disk
        self._observer = observer
        self._running = 0
        self._stopping = False
        self._replacing = False
        self._idle = asyncio.Event()
        self._idle.set()

    # --- life -----------------------------------------------------------------------------------------------------
    async def attach(self, attach: Attach, arena_fd: int | None) -> AttachAnswer:
        """Own an arena (the one handed over, if it fits) and open the mover on it."""
        arena = self._owner.attach(attach.arena, arena_fd)
        if arena.arena_id == attach.give_up:
            arena = await self._replace_arena()
        if not isinstance(self._disk, DiskTier):
            return AttachAnswer(mover=NO_MOVER, arena=arena.info(), arena_fd=arena.fd)
        try:
            chosen = await self._disk.bind(arena)
        except ConfigurationError as error:
            self._observer.disk_used(str(error))
            raise
        self._observer.mover_chosen(chosen)
        slabs = (self._disk.slab.info(),)
        return AttachAnswer(mover=chosen.mover.name, arena=arena.info(), arena_fd=arena.fd, slabs=slabs)

    async def drain(self) -> None:
        """Take no more jobs and return when none runs."""
        self._stopping = True
        await self._idle.wait()

    async def _replace_arena(self) -> Arena:
        """Another arena, once nothing moves in the old one; jobs that come meanwhile are not carried out.

        Everything that holds addresses of the old one goes before its memory does: the mover, and the copiers of
        engines. Engines are mapped again, on the new one, under new numbers.
        """
        self._replacing = True
        try:
            await self._idle.wait()
            self._mappings.close()
            if isinstance(self._disk, DiskTier):
                await self._disk.unbind()
            return await self._owner.replace()
        finally:
            self._replacing = False

    # --- engines --------------------------------------------------------------------------------------------------
    async def map_engine(self, request: MapEngine, fds: Sequence[int]) -> None:
        """Map an engine's memory; the descriptors are closed here, the mapping keeps the memory.

        Raises:
            UnavailableError: there is no arena, it is being replaced, or the worker is stopping.
        """
        try:
            with self._using_tiers():
                await self._mappings.add(request, fds, self._owner.arena)
        finally:
            close_descriptors(fds)

    async def unmap_engine(self, request: UnmapEngine) -> None:
        """Forget a mapping."""
        self._mappings.remove(request.mapping)

    # --- jobs -----------------------------------------------------------------------------------------------------
    async def run(self, job: Job, control: JobControl) -> Sequence[ItemStatus]:
        """Execute a job: one status per item.

        Raises:
            LayoutMismatchError: the payload does not fit the slots; nothing was touched.
            UnsupportedOperationError: this worker does not move blocks that way.
            UnavailableError: there is no arena yet, or the worker is stopping.
        """
        with self._using_tiers():
            return await self._dispatch(job, control)

    @contextmanager
    def _using_tiers(self) -> Iterator[None]:
        if self._stopping or self._replacing:
            raise UnavailableError("the offload-worker is stopping, or its arena is being replaced")
        self._running += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._running -= 1
            if not self._running:
                self._idle.set()

    async def _dispatch(self, job: Job, control: JobControl) -> Sequence[ItemStatus]:
        arena = self._owner.arena
        _check_payload(job, arena.payload_bytes)
        match job.kind:
            case JobKind.G1_G2 | JobKind.G2_G1:
                return await self._move_engine_rows(job, control)
            case JobKind.G2_G3 | JobKind.G3_G2:
                return await self._move_slab_blocks(job, control)
            case JobKind.SEAL:
                return await self._copies.run(job.lane, seal_slots(job, control, arena))
            case JobKind.CHECK:
                return await self._copies.run(job.lane, check_slots(job, control, arena, verify=self._owner.verify))
            case JobKind.FREE if job.free_tier == Tier.G2:
                return await self._copies.run(job.lane, free_in_arena(job, free_items(job.items), control, arena))
            case JobKind.FREE:
                return await self._free_slab_blocks(job, control)
            case _:
                raise UnsupportedOperationError("not a job for the offload-worker", kind=job.kind.name)

    async def _move_engine_rows(self, job: Job, control: JobControl) -> list[ItemStatus]:
        copies = EngineCopies(job, control, self._owner.arena, self._mappings.get(job.mapping))
        work = copies.store() if job.kind is JobKind.G1_G2 else copies.load(verify=self._owner.verify)
        return await self._copies.run(job.lane, work)

    async def _move_slab_blocks(self, job: Job, control: JobControl) -> list[ItemStatus]:
        if isinstance(self._disk, DiskOutage):
            return [self._disk.status] * job.items.count
        transfers = self._slab_transfers()
        items = copy_items(job.items)
        try:
            if job.kind is JobKind.G2_G3:
                return await transfers.store(job, items, control)
            return await transfers.load(job, items, control)
        finally:
            self._observer.disk_used(transfers.slab.failure or transfers.mover.failure)

    async def _free_slab_blocks(self, job: Job, control: JobControl) -> list[ItemStatus]:
        if isinstance(self._disk, DiskOutage):
            return [self._disk.status] * job.items.count
        transfers = self._slab_transfers()
        try:
            return await transfers.free(job, free_items(job.items), control)
        finally:
            self._observer.disk_used(transfers.slab.failure or transfers.mover.failure)

    def _slab_transfers(self) -> SlabTransfers:
        if not isinstance(self._disk, DiskTier):
            raise UnsupportedOperationError("the disk tier is switched off", setting="g3.enabled")
        return SlabTransfers(
            self._owner.arena, self._disk.slab, self._disk.mover, self._copies, verify=self._owner.verify
        )

    # --- inventory ------------------------------------------------------------------------------------------------
    async def inventory(self, tier: Tier, cursor: int, max_records: int, busy: frozenset[int]) -> InventoryPage:
        """One page of a tier's slots; a tier that is switched off has none."""
        table = self._table(tier)
        if table is None:
            return InventoryPage(worker_epoch=self._worker_epoch, tier=tier, records=b"", cursor=cursor, end=True)
        with self._using_tiers():
            page = await self._copies.run(Lane.LOAD, list_slots(table, cursor, max_records, busy))
        return InventoryPage(
            worker_epoch=self._worker_epoch, tier=tier, records=page.records, cursor=page.cursor, end=page.end
        )

    async def find(self, request: Find) -> Found:
        """Refused: the index of the shared tier belongs to the remote-tier."""
        raise UnsupportedOperationError("the offload-worker has no shared index", keys=len(request.keys) // 16)

    def _table(self, tier: Tier) -> SlotTable | None:
        if tier is Tier.G2:
            return self._owner.arena
        if tier is Tier.G3:
            return self._disk.slab if isinstance(self._disk, DiskTier) else None
        raise UnsupportedOperationError("the offload-worker lists G2 and G3", tier=tier.label)


def _check_payload(job: Job, limit: int) -> None:
    if job.kind is not JobKind.FREE and job.payload_bytes > limit:
        raise LayoutMismatchError("the payload does not fit", payload_bytes=job.payload_bytes, limit=limit)
