"""G3: one slab of blocks on a local disk, with warm restart.

    store:  grant checked -> (page of an older block made FREE first) -> payload moved -> committed -> OK = durable
    free:   record FREE or BAD in memory at once -> page durable -> OK = the slot may be granted again

Invariants: in every state a crash can leave, a valid header on disk has its payload; OK of a store means durable; a
slot whose page may be READY gets no new payload before its FREE page is durable; a slab whose sync failed serves reads
only. A slot has one change at a time; what comes meanwhile is answered SKIPPED and touches nothing.
Threading: one event loop, except ``read`` and ``is_current``, which any thread may call. Cancelling a call detaches
its waiter; the change goes on to its end, and ``close`` waits for it.
"""

import asyncio
import warnings
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self, final

import numpy as np

from blockyard.core.errors import BlockSizeMismatchError, BlockStateError, StorageError, UnsupportedOperationError
from blockyard.core.vocabulary import BlockId, Epoch, ItemStatus
from blockyard.tiers.base import Mover, SlabRegion
from blockyard.tiers.g3_slab.committer import CommitPolicy, Committer, PageRequest
from blockyard.tiers.g3_slab.layout import SlabGeometry
from blockyard.tiers.g3_slab.slab_opening import OpenedSlab, open_slab_file
from blockyard.tiers.g3_slab.superblock import write_superblock
from blockyard.tiers.header import HeaderReading, HeaderState, SlotHeader, pack_header, with_state
from blockyard.wire.worker_channel import SlabInfo

_LOCK_WAIT_SECONDS: Final = 10.0
"""A killed process keeps the lock until the kernel has finished its requests."""
_CLOSE_SECONDS: Final = 30.0
_DEFAULT_POLICY: Final = CommitPolicy()


@dataclass(frozen=True, slots=True)
class StoreItem:
    """One block to store: where its bytes are, and the header of the copy (slot, generation, checksum and names)."""

    arena_slot: int
    header: SlotHeader


@final
class Slab:
    """An open slab. Make one with ``open``."""

    def __init__(self, opened: OpenedSlab, committer: Committer) -> None:
        """Serve an opened file; the slab owns it and the committer from now on."""
        self._file = opened.file
        self._superblock = opened.superblock
        self._pages = opened.pages
        self._committer = committer
        self._busy: set[int] = set()
        self._changes: set[asyncio.Task[list[ItemStatus]]] = set()
        self._closed = False
        self.scan: Final = opened.scan
        self.was_clean: Final = opened.was_clean
        """False where the last life that wrote to the slab did not end in order."""
        self.direct_obstacle: Final = opened.direct_obstacle
        """Why direct I/O is not used; empty where it is."""
        self.region: Final[SlabRegion] = self._superblock.geometry.region(opened.file)
        """The payloads, for a mover."""

    @classmethod
    def open(
        cls,
        folder: Path,
        slots: int,
        payload_bytes: int,
        *,
        worker_epoch: Epoch,
        policy: CommitPolicy = _DEFAULT_POLICY,
        lock_wait_seconds: float = _LOCK_WAIT_SECONDS,
    ) -> Self:
        """Open the slab of ``folder``, or make it. Blocks: scanning takes time, so call it in a thread.

        An empty slab of another size is made anew; one that holds blocks is refused, since its blocks would be lost.

        Raises:
            AlreadyRunningError: another process has the slab.
            ConfigurationError: the slab holds blocks and has another size.
            ForeignFileError: the file is not a slab of this folder.
            NoSpaceError: the device has no room for the whole slab.
            StorageError: the device failed.
        """
        geometry = SlabGeometry.for_payload(slots, payload_bytes)
        opened = open_slab_file(folder, geometry, worker_epoch, lock_wait_seconds)
        committer = Committer(opened.file, opened.pages, policy)
        committer.start()
        return cls(opened, committer)

    # --- facts ----------------------------------------------------------------------------------------------------
    @property
    def slab_id(self) -> bytes:
        """16 bytes that name the slab; the file id in its headers."""
        return self._superblock.slab_id

    @property
    def slots(self) -> int:
        """Number of slots."""
        return self._superblock.geometry.slots

    @property
    def stride_bytes(self) -> int:
        """Bytes from payload to payload."""
        return self._superblock.geometry.stride_bytes

    @property
    def direct(self) -> bool:
        """True where the page cache is bypassed."""
        return self._file.direct

    @property
    def failure(self) -> str:
        """Why the slab serves reads only; empty while it works."""
        return self._committer.failure

    def info(self) -> SlabInfo:
        """What the block-manager is told."""
        failed = bool(self.failure)
        return SlabInfo(slab=self.slab_id, slots=self.slots, stride_bytes=self.stride_bytes, failed=failed)

    def read(self, slot: int) -> HeaderReading:
        """Look at a slot's header; the answer is a copy. READY means durable."""
        return self._pages.read(slot)

    def is_current(self, slot: int, generation: int) -> bool:
        """True while the slot is READY with this generation: ask again after a read."""
        reading = self._pages.read(slot)
        return reading.verdict.is_block and reading.generation == generation

    # --- changes --------------------------------------------------------------------------------------------------
    async def store(self, mover: Mover, items: Sequence[StoreItem]) -> list[ItemStatus]:
        """Store blocks from the arena; their sources must stay pinned until this returns.

        Returns:
            Per item: OK = durable; SKIPPED = the slot has a newer grant or a change in progress, nothing was touched;
            NO_SPACE or IO_ERROR = the device refused it, the slot holds no block.

        Raises:
            BlockStateError, BlockSizeMismatchError: a header that is not for a slot of this slab; nothing was touched.
        """
        for item in items:
            self._check(item.header)
        return await self._to_end(self._store(mover, items))

    async def free(
        self, slots: Sequence[int], generations: Sequence[int], state: HeaderState = HeaderState.FREE
    ) -> list[ItemStatus]:
        """Make slots FREE or BAD. Their blocks are gone for readers at once.

        Returns:
            Per slot: OK = no restart brings the block back, the slot may be granted again; SKIPPED = its header has
            another generation or a change is in progress; else the device refused the page, try again.
        """
        if state not in (HeaderState.FREE, HeaderState.BAD) or len(slots) != len(generations):
            raise BlockStateError("a slot is made FREE or BAD, under its generation", state=state.name)
        return await self._to_end(self._free(slots, generations, state))

    async def close(self, *, timeout_seconds: float = _CLOSE_SECONDS) -> None:
        """Finish all changes and close the file; close the mover first. Harmless when repeated.

        Args:
            timeout_seconds: how long to wait for changes in progress, e.g. for a device that does not answer.

        Raises:
            StorageError: changes did not end, or the clean mark could not be written; the file is closed all the same,
                and the next start scans it as after a crash.
        """
        if self._closed:
            return
        self._closed = True
        try:
            if self._changes:
                _, unfinished = await asyncio.wait(self._changes, timeout=timeout_seconds)
                if unfinished:
                    raise StorageError("changes of the slab never ended", changes=len(unfinished))
            await asyncio.to_thread(self._finish)
        finally:
            self._file.close()

    def __del__(self) -> None:
        """Warn about a slab that nobody closed."""
        if not getattr(self, "_closed", True):
            warnings.warn(f"unclosed slab {self.slab_id.hex()}", ResourceWarning, source=self, stacklevel=2)

    def _finish(self) -> None:
        self._committer.stop()
        if not self.failure:
            write_superblock(self._file, self._superblock.next(worker_epoch=self._superblock.worker_epoch, clean=True))

    async def _to_end(self, change: Coroutine[Any, Any, list[ItemStatus]]) -> list[ItemStatus]:
        """Run ``change`` to its end whatever becomes of the caller: its slots are in use until then."""
        if self._closed:
            change.close()
            raise UnsupportedOperationError("the slab is closed", slab=self.slab_id.hex())
        task = asyncio.create_task(change)
        self._changes.add(task)
        task.add_done_callback(self._changes.discard)
        return await asyncio.shield(task)

    def _check(self, header: SlotHeader) -> None:
        if header.file_id != self.slab_id or not 0 <= header.slot < self.slots:
            raise BlockStateError("not a header for this slab", slot=header.slot, file=header.file_id.hex())
        if header.state is not HeaderState.READY:
            raise BlockStateError("only READY blocks are stored", slot=header.slot, state=header.state.name)
        if header.payload_bytes > self.stride_bytes:
            raise BlockSizeMismatchError("the payload is longer than a slot", payload=header.payload_bytes)

    async def _store(self, mover: Mover, items: Sequence[StoreItem]) -> list[ItemStatus]:
        statuses = [self._claim_for_store(item.header) for item in items]
        claimed = [index for index, status in enumerate(statuses) if status is ItemStatus.OK]
        try:
            for stage in (self._free_old_pages, self._move, self._commit):
                going = [index for index in claimed if statuses[index] is ItemStatus.OK]
                if not going:
                    break
                results = await stage(mover, [items[index] for index in going])
                for index, status in zip(going, results, strict=True):
                    statuses[index] = status
        finally:
            self._busy.difference_update(items[index].header.slot for index in claimed)
        return statuses

    def _claim_for_store(self, header: SlotHeader) -> ItemStatus:
        if self.failure:
            return ItemStatus.IO_ERROR
        reading = self._pages.read(header.slot)
        if header.slot in self._busy or header.generation <= reading.generation:
            return ItemStatus.SKIPPED
        self._busy.add(header.slot)
        self._pages.remember(header.slot, with_state(reading.record, header.generation, HeaderState.WRITING))
        return ItemStatus.OK

    async def _free_old_pages(self, _: Mover, items: Sequence[StoreItem]) -> list[ItemStatus]:
        """A page that may be READY would, after a crash, vouch for the payload that is about to be overwritten."""
        statuses = [ItemStatus.OK] * len(items)
        old = [index for index, item in enumerate(items) if self._pages.may_be_ready(item.header.slot)]
        results = await self._retire([items[index].header.slot for index in old], HeaderState.FREE)
        for index, status in zip(old, results, strict=True):
            statuses[index] = status
        return statuses

    async def _move(self, mover: Mover, items: Sequence[StoreItem]) -> list[ItemStatus]:
        sources = np.array([item.arena_slot for item in items], np.int32)
        slots = np.array([item.header.slot for item in items], np.int32)
        try:
            return [outcome.status for outcome in await mover.write(self.region, sources, slots)]
        except (StorageError, UnsupportedOperationError):
            # The mover failed as a whole, or was closed before this store came to it.
            return [ItemStatus.IO_ERROR] * len(items)

    async def _commit(self, _: Mover, items: Sequence[StoreItem]) -> list[ItemStatus]:
        requests = [
            PageRequest(item.header.slot, pack_header(item.header), item.header.payload_bytes) for item in items
        ]
        for request in requests:
            self._pages.expect_ready(request.slot)
        statuses = await asyncio.wrap_future(self._committer.payloads_written(requests).done)
        for request, status in zip(requests, statuses, strict=True):
            if status is ItemStatus.OK:
                self._pages.remember(request.slot, request.record)
        return statuses

    async def _free(self, slots: Sequence[int], generations: Sequence[int], state: HeaderState) -> list[ItemStatus]:
        statuses = [self._claim_for_free(*pair, state) for pair in zip(slots, generations, strict=True)]
        claimed = [index for index, status in enumerate(statuses) if status is ItemStatus.OK]
        try:
            pages = [index for index in claimed if state is HeaderState.BAD or self._pages.may_be_ready(slots[index])]
            for index, status in zip(pages, await self._retire([slots[i] for i in pages], state), strict=True):
                statuses[index] = status
        finally:
            self._busy.difference_update(slots[index] for index in claimed)
        return statuses

    def _claim_for_free(self, slot: int, generation: int, state: HeaderState) -> ItemStatus:
        if self.failure:
            return ItemStatus.IO_ERROR
        if not 0 <= slot < self.slots or slot in self._busy:
            return ItemStatus.SKIPPED
        reading = self._pages.read(slot)
        if reading.generation != generation:
            return ItemStatus.SKIPPED
        self._busy.add(slot)
        self._pages.remember(slot, with_state(reading.record, generation, state))
        return ItemStatus.OK

    async def _retire(self, slots: Sequence[int], state: HeaderState) -> list[ItemStatus]:
        """Make the pages of ``slots`` say ``state``, under the generation of the record in memory."""
        if not slots:
            return []
        readings = [self._pages.read(slot) for slot in slots]
        requests = [
            PageRequest(BlockId(slot), with_state(reading.record, reading.generation, state))
            for slot, reading in zip(slots, readings, strict=True)
        ]
        statuses = await asyncio.wrap_future(self._committer.retired(requests).done)
        for slot, status in zip(slots, statuses, strict=True):
            if status is ItemStatus.OK:
                self._pages.confirm_free(slot)
        return statuses
