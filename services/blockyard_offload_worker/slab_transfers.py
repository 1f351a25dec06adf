"""Copies between the arena (G2) and a slab on local disk (G3), with both ends proven by their checksums.

G2 to G3: header as asked -> source hashed and compared -> permission -> payload moved -> page committed -> OK, which
means durable. G3 to G2: slab header as asked -> permission -> slot WRITING -> payload moved -> destination hashed and
compared -> header, READY. A mismatch is read once more, so that a torn read is told from damage; damage is condemned on
disk before it is reported.

Invariants: a failed block never fails its neighbours; a slot that is reported as failed is not READY.
Threading: the event loop decides and asks for permission, the copy thread hashes, the mover moves.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from blockyard.core.vocabulary import ItemStatus
from blockyard.runtime.job_executor import JobControl
from blockyard.tiers.arena import Arena
from blockyard.tiers.base import MoveOutcome, Mover
from blockyard.tiers.checksum import payload_checksum
from blockyard.tiers.g3_slab.slab import Slab, StoreItem
from blockyard.tiers.header import HeaderState
from blockyard.wire.worker_channel import Job
from blockyard_offload_worker.copy_names import source_status, target_header
from blockyard_offload_worker.copy_thread import CopyThread, Work
from blockyard_offload_worker.engine_copies import condemn
from blockyard_offload_worker.job_items import FreeItem, JobItem


@dataclass(frozen=True, slots=True)
class Proof:
    """What hashing said about one block; ``checksum`` is that of its bytes where the status is OK."""

    status: ItemStatus
    checksum: bytes = b""


@dataclass(frozen=True, slots=True)
class SlabTransfers:
    """Both ends of the copies and who carries them out.

    Attributes:
        arena: host memory.
        slab: local disk.
        mover: moves payloads between the two.
        copies: thread that hashes.
        verify: compare checksums; False breaks the promise of right bytes, for tests that prove the checks matter.
    """

    arena: Arena
    slab: Slab
    mover: Mover
    copies: CopyThread
    verify: bool

    # --- G2 to G3 -------------------------------------------------------------------------------------------------
    async def store(self, job: Job, items: Sequence[JobItem], control: JobControl) -> list[ItemStatus]:
        """Store blocks of the arena; OK means durable."""
        proofs = await self.copies.run(job.lane, self._prove_sources(job, items, control))
        statuses = [proof.status for proof in proofs]
        going: list[JobItem] = []
        for item in items:
            if statuses[item.index] is ItemStatus.OK:
                statuses[item.index] = self._may_write(item, control)
            if statuses[item.index] is ItemStatus.OK:
                going.append(item)
        stored = await self.slab.store(
            self.mover,
            [
                StoreItem(item.source, target_header(job, item, self.slab.slab_id, proofs[item.index].checksum))
                for item in going
            ],
        )
        for item, status in zip(going, stored, strict=True):
            statuses[item.index] = status
        await self._take_back_changed(going, statuses)
        return statuses

    def _prove_sources(self, job: Job, items: Sequence[JobItem], control: JobControl) -> Work[list[Proof]]:
        proofs: list[Proof] = []
        for item in items:
            proofs.append(Proof(ItemStatus.SKIPPED) if control.cancelled else self._prove_source(job, item))
            yield
        return proofs

    def _prove_source(self, job: Job, item: JobItem) -> Proof:
        if item.source >= self.arena.slots:
            return Proof(ItemStatus.SKIPPED)
        reading = self.arena.read(item.source)
        status = source_status(job, item, reading)
        if status is ItemStatus.OK:
            checksum = payload_checksum(self.arena.payload(item.source, job.payload_bytes).data)
            if not self.arena.is_current(item.source, item.source_mark):
                return Proof(ItemStatus.STALE)
            if not self.verify or checksum == reading.header.checksum:
                return Proof(ItemStatus.OK, checksum)
            status = ItemStatus.CORRUPT
        if status is ItemStatus.CORRUPT:
            condemn(self.arena, item.source, item.source_mark)
        return Proof(status)

    def _may_write(self, item: JobItem, control: JobControl) -> ItemStatus:
        if item.target >= self.slab.slots:
            return ItemStatus.SKIPPED
        return control.may_issue(item.index, self.slab.read(item.target).generation)

    async def _take_back_changed(self, stored: Sequence[JobItem], statuses: list[ItemStatus]) -> None:
        """Free what was stored from a slot that was granted again while its bytes were moved."""
        changed = [
            item
            for item in stored
            if statuses[item.index] is ItemStatus.OK and not self.arena.is_current(item.source, item.source_mark)
        ]
        if changed:
            await self.slab.free([item.target for item in changed], [item.target_mark for item in changed])
        for item in changed:
            statuses[item.index] = ItemStatus.STALE

    # --- G3 to G2 -------------------------------------------------------------------------------------------------
    async def load(self, job: Job, items: Sequence[JobItem], control: JobControl) -> list[ItemStatus]:
        """Load blocks of the slab into granted arena slots."""
        statuses = [self._begin_load(job, item, control) for item in items]
        await self._load_once(job, [item for item in items if statuses[item.index] is ItemStatus.OK], statuses)
        mismatched = [item for item in items if statuses[item.index] is ItemStatus.CORRUPT]
        again = [item for item in mismatched if self.slab.is_current(item.source, item.source_mark)]
        await self._load_once(job, again, statuses)
        damaged = [item for item in again if statuses[item.index] is ItemStatus.CORRUPT]
        if damaged:
            # Awaited, so that whoever hears of the damage may at once free or refill the slot.
            slots, generations = [item.source for item in damaged], [item.source_mark for item in damaged]
            await self.slab.free(slots, generations, HeaderState.BAD)
        return statuses

    def _begin_load(self, job: Job, item: JobItem, control: JobControl) -> ItemStatus:
        if item.source >= self.slab.slots or item.target >= self.arena.slots:
            return ItemStatus.SKIPPED
        status = source_status(job, item, self.slab.read(item.source))
        if status is ItemStatus.OK:
            status = control.may_issue(item.index, self.arena.generation(item.target))
        if status is ItemStatus.OK:
            self.arena.begin_write(item.target, item.grant)
        return status

    async def _load_once(self, job: Job, items: Sequence[JobItem], statuses: list[ItemStatus]) -> None:
        """Move and check; a block whose bytes do not fit is noted as CORRUPT."""
        if not items:
            return
        targets = np.array([item.target for item in items], np.int32)
        sources = np.array([item.source for item in items], np.int32)
        outcomes = await self.mover.read(self.slab.region, targets, sources)
        arrived: list[JobItem] = []
        for item, outcome in zip(items, outcomes, strict=True):
            statuses[item.index] = outcome.status
            if outcome is MoveOutcome.DONE:
                arrived.append(item)
        checked = await self.copies.run(job.lane, self._prove_targets(job, arrived))
        for item, status in zip(arrived, checked, strict=True):
            statuses[item.index] = status

    def _prove_targets(self, job: Job, items: Sequence[JobItem]) -> Work[list[ItemStatus]]:
        statuses: list[ItemStatus] = []
        for item in items:
            statuses.append(self._prove_target(job, item))
            yield
        return statuses

    def _prove_target(self, job: Job, item: JobItem) -> ItemStatus:
        reading = self.slab.read(item.source)
        status = source_status(job, item, reading)
        if status is not ItemStatus.OK:
            return status
        checksum = payload_checksum(self.arena.payload(item.target, job.payload_bytes).data)
        if self.verify and checksum != reading.header.checksum:
            return ItemStatus.CORRUPT
        self.arena.publish(target_header(job, item, self.arena.arena_id, checksum))
        return ItemStatus.OK

    # --- end of blocks --------------------------------------------------------------------------------------------
    async def free(self, job: Job, items: Sequence[FreeItem], control: JobControl) -> list[ItemStatus]:
        """Make slots of the slab FREE or BAD; OK means that no restart brings their blocks back."""
        statuses = [self._may_free(item, control) for item in items]
        going = [item for item in items if statuses[item.index] is ItemStatus.OK]
        freed = await self.slab.free(
            [item.slot for item in going],
            [item.generation for item in going],
            HeaderState.BAD if job.bad else HeaderState.FREE,
        )
        for item, status in zip(going, freed, strict=True):
            statuses[item.index] = status
        return statuses

    def _may_free(self, item: FreeItem, control: JobControl) -> ItemStatus:
        if item.slot >= self.slab.slots:
            return ItemStatus.SKIPPED
        return control.may_issue(item.index, self.slab.read(item.slot).generation)
