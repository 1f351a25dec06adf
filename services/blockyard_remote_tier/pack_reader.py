"""Loads blocks of packs into granted arena slots; only records that prove themselves become READY.

One ranged get per pack, from the first to the last wanted record. A record that fails is fetched once more: bytes can
be damaged on the way. If it fails again, the pack is condemned and its locators go. An object that the server says it
does not have is believed only while the marker of the store is still there: a bucket that vanished, or the wrong one,
says the same.
Threading: one event loop; slots are written on the copy thread.
"""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from blockyard.core.errors import AccessDeniedError, BlockyardError, ObjectNotFoundError, StaleGenerationError
from blockyard.core.stored_key import StoredKey
from blockyard.core.vocabulary import BlockId, Epoch, ItemStatus, Tier
from blockyard.runtime.job_executor import JobControl
from blockyard.runtime.logs import get_logger
from blockyard.runtime.telemetry import Metrics
from blockyard.tiers.arena import Arena
from blockyard.tiers.checksum import ByteArray, copy_and_hash
from blockyard.tiers.g4_packs import (
    PACK_HEADER_BYTES,
    RecordFault,
    check_pack_record,
    decode_pack_header,
    record_offset,
)
from blockyard.tiers.header import HEADER_BYTES, SlotHeader
from blockyard.tiers.object_store import ObjectStore
from blockyard_remote_tier.arena_lease import CopyThread
from blockyard_remote_tier.failures import log_failure, status_of
from blockyard_remote_tier.index_writes import DropLocators, IndexWrites
from blockyard_remote_tier.job_items import PackItem, PackWork
from blockyard_remote_tier.open_store import OpenStore
from blockyard_remote_tier.pack_register import PackRegister

_READINGS: Final = 2
_FAULT_STATUS: Final = {
    RecordFault.DAMAGED: ItemStatus.CORRUPT,
    RecordFault.OTHER_IDENTITY: ItemStatus.IDENTITY_MISMATCH,
    # The locator was wrong, not the pack.
    RecordFault.OTHER_BLOCK: ItemStatus.NOT_FOUND,
}
_log: Final = get_logger(__name__)


@dataclass(slots=True)
class _Reading:
    """One pack that is being read, and what became of its items so far."""

    arena: Arena
    work: PackWork
    control: JobControl
    status: dict[int, ItemStatus] = field(default_factory=dict)
    begun: set[int] = field(default_factory=set)
    """Items whose slots carry this grant already: a second reading goes on with it."""
    gone: bool = False
    """The store does not have the object."""

    def settle(self, items: Iterable[PackItem], status: ItemStatus) -> None:
        self.status.update((item.item, status) for item in items)

    def with_status(self, status: ItemStatus) -> list[PackItem]:
        return [item for item in self.work.items if self.status.get(item.item) is status]


class PackReader:
    """Executes get jobs."""

    def __init__(
        self,
        store: ObjectStore,
        opened: OpenStore,
        writes: IndexWrites,
        register: PackRegister,
        copies: CopyThread,
        *,
        metrics: Metrics,
        worker_epoch: Epoch,
        max_packs: int,
        verify: bool,
    ) -> None:
        """Read through these; ``max_packs`` bounds the bodies in memory, ``verify`` compares payload checksums."""
        self._store = store
        self._opened = opened
        self._writes = writes
        self._register = register
        self._copies = copies
        self._metrics = metrics
        self._worker_epoch = worker_epoch
        self._bodies = asyncio.Semaphore(max_packs)
        self._verify = verify

    async def get(
        self, arena: Arena, works: Sequence[PackWork], deadline: float, control: JobControl
    ) -> list[ItemStatus]:
        """Load the items of all packs, packs at the same time; one status per item, in order."""
        readings = [_Reading(arena, work, control) for work in works]
        async with asyncio.TaskGroup() as group:
            for reading in readings:
                group.create_task(self._get_pack(reading, deadline))
        return [reading.status[item.item] for reading in readings for item in reading.work.items]

    async def _get_pack(self, reading: _Reading, deadline: float) -> None:
        waiting: list[PackItem] = list(reading.work.items)
        try:
            async with asyncio.timeout_at(deadline):
                await self._bodies.acquire()
        except TimeoutError:
            reading.settle(waiting, ItemStatus.TIMEOUT)
            return
        try:
            for _ in range(_READINGS):
                await self._read(reading, waiting, deadline)
                waiting = reading.with_status(ItemStatus.CORRUPT)
                if not waiting:
                    break
        finally:
            self._bodies.release()
        await self._report_false(reading, deadline)

    async def _read(self, reading: _Reading, items: Sequence[PackItem], deadline: float) -> None:
        if reading.control.cancelled:
            reading.settle(items, ItemStatus.SKIPPED)
            return
        work = reading.work
        first = min(item.index for item in items)
        start = record_offset(first, work.stride_bytes)
        last = record_offset(max(item.index for item in items), work.stride_bytes)
        key = work.address.key(self._opened.prefix)
        try:
            async with asyncio.timeout_at(deadline):
                found = await self._store.get_range(key, start, last + HEADER_BYTES + work.payload_bytes)
        except TimeoutError:
            reading.settle(items, ItemStatus.TIMEOUT)
        except (ObjectNotFoundError, AccessDeniedError) as error:
            # Servers that may not list their bucket answer "denied" for a missing object.
            reading.gone = await self._opened.is_there(deadline)
            reading.settle(items, ItemStatus.NOT_FOUND if reading.gone else ItemStatus.UNKNOWN)
            _log.warning("pack not found", pack=work.pack.hex(), believed=reading.gone, reason=str(error))
        except BlockyardError as error:
            reading.settle(items, status_of(error))
            log_failure("pack not read", work.pack, error)
        else:
            data = np.frombuffer(found.data, np.uint8)
            await self._copies.run(lambda: self._place(reading, items, data, start))

    # --- slots (copy thread) -----------------------------------------------------------------------------------------
    def _place(self, reading: _Reading, items: Sequence[PackItem], data: ByteArray, start: int) -> None:
        stride = reading.work.stride_bytes
        for item in items:
            record = data[record_offset(item.index, stride) - start :]
            reading.status[item.item] = self._place_one(reading, item, record)

    def _place_one(self, reading: _Reading, item: PackItem, record: ByteArray) -> ItemStatus:
        arena, work = reading.arena, reading.work
        if len(record) < HEADER_BYTES + work.payload_bytes:
            return ItemStatus.CORRUPT
        found = check_pack_record(record[:HEADER_BYTES].data, work.wanted(item))
        if isinstance(found, RecordFault):
            return _FAULT_STATUS[found]
        try:
            if item.item in reading.begun:
                if reading.control.cancelled:
                    return ItemStatus.SKIPPED
                slot = arena.payload(item.slot)
            else:
                allowed = reading.control.may_issue(item.item, arena.generation(item.slot))
                if allowed is not ItemStatus.OK:
                    return allowed
                slot = arena.begin_write(item.slot, item.generation)
                reading.begun.add(item.item)
            payload = record[HEADER_BYTES : HEADER_BYTES + work.payload_bytes]
            checksum = copy_and_hash(slot[: work.payload_bytes], payload)
            if self._verify and checksum != found.checksum:
                return ItemStatus.CORRUPT
            arena.publish(self._slot_header(arena, work, item, found))
        except StaleGenerationError:
            return ItemStatus.SKIPPED
        return ItemStatus.OK

    def _slot_header(self, arena: Arena, work: PackWork, item: PackItem, record: SlotHeader) -> SlotHeader:
        return SlotHeader(
            generation=item.generation,
            identity=work.identity,
            digest=item.digest,
            parent=item.parent,
            position=item.position,
            payload_bytes=work.payload_bytes,
            checksum=record.checksum,
            slot=BlockId(item.slot),
            file_id=arena.arena_id,
            bm_epoch=work.bm_epoch,
            worker_epoch=self._worker_epoch,
            job_seq=work.job_seq,
            tenant=work.tenant,
            group=work.group,
            shard=record.shard,
            shards=record.shards,
        )

    # --- what proved false -------------------------------------------------------------------------------------------
    async def _report_false(self, reading: _Reading, deadline: float) -> None:
        work = reading.work
        damaged = reading.with_status(ItemStatus.CORRUPT)
        absent = reading.with_status(ItemStatus.NOT_FOUND)
        foreign = reading.with_status(ItemStatus.IDENTITY_MISMATCH)
        keys = {work.stored_key(item) for item in (*damaged, *absent, *foreign)}
        # Here, where one that was read twice counts once, and one with a broken header like one with a broken payload.
        compared = len(reading.with_status(ItemStatus.OK)) + len(damaged)
        self._metrics.checksum_checks.labels(Tier.G4.label).inc(compared)
        if damaged:
            self._metrics.checksum_failures.labels(Tier.G4.label).inc(len(damaged))
            _log.error("pack is damaged", pack=work.pack.hex(), blocks=len(damaged))
            self._register.condemn(work.pack)
            keys |= await self._keys_in_header(work, deadline)
        if damaged or reading.gone:
            keys |= self._register.forget(work.pack)
        if keys:
            await self._writes.write(DropLocators(work.identity, work.pack, tuple(sorted(keys))), deadline)

    async def _keys_in_header(self, work: PackWork, deadline: float) -> set[StoredKey]:
        try:
            async with asyncio.timeout_at(deadline):
                found = await self._store.get_range(work.address.key(self._opened.prefix), 0, PACK_HEADER_BYTES)
            header = decode_pack_header(found.data)
        except (BlockyardError, TimeoutError):
            # The locators that are not known here are dropped by whoever reads them.
            return set()
        return set(header.stored_keys()) if header.pack == work.pack else set()
