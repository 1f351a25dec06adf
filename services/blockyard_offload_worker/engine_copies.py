"""Copies between engine memory (G1) and the arena (G2), one generator step per row, run by the copy thread.

G1 to G2: guards as registered -> slot WRITING -> copy and hash in one pass -> guards still the same -> header, READY.
The engine does not wait for us, so a checksum alone would certify the bytes of whatever block lies there by then; the
guards tell. The rest of the slot is filled with zeros, since lower tiers move whole slots.
G2 to G1: header as asked -> guards of the destination -> copy and hash -> guards and header unchanged -> checksum.
Who moves the bytes is the matter of a ``G1Copier``.

Invariants: a failed row never fails its neighbours; a slot becomes READY only with bytes that were the engine's
row from the first to the last byte of the copy; nothing is written without permission asked right before.
Threading: the generators run on the copy thread; they hold no state between jobs.
"""

import contextlib
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Final, final

from blockyard.core.errors import LayoutMismatchError, StaleGenerationError, TransferError
from blockyard.core.kv_groups import NO_PAGE
from blockyard.core.vocabulary import Generation, GroupId, ItemStatus
from blockyard.runtime.job_executor import JobControl
from blockyard.runtime.logs import get_logger
from blockyard.tiers.arena import Arena
from blockyard.tiers.checksum import COPY_CHUNK_BYTES, ByteArray, hash_pieces
from blockyard.tiers.g1_mapping import G1Mapping, GuardColumn, PageColumn
from blockyard.tiers.header import HeaderState
from blockyard.wire.worker_channel import Job
from blockyard_offload_worker.copy_names import source_status, target_header
from blockyard_offload_worker.copy_thread import Work
from blockyard_offload_worker.g1_copier import G1Copier
from blockyard_offload_worker.job_items import RowItem, row_items

_log: Final = get_logger(__name__)


@final
@dataclass(frozen=True, slots=True)
class MappedEngine:
    """One engine's memory and who moves its rows."""

    mapping: G1Mapping
    copier: G1Copier

    def close(self) -> None:
        """Let go of the memory."""
        self.copier.close()
        self.mapping.close()


@final
class EngineCopies:
    """The copies of one job between one engine and the arena."""

    def __init__(self, job: Job, control: JobControl, arena: Arena, engine: MappedEngine) -> None:
        """Prepare the copies.

        Raises:
            LayoutMismatchError: the engine has no such group, or the payload is shorter than its rows.
            RequestError: a row of the job has another number of pages than rows of its group.
        """
        self._job = job
        self._control = control
        self._arena = arena
        self._mapping = engine.mapping
        self._copier = engine.copier
        self._group = GroupId(job.group)
        places = engine.mapping.places(self._group)
        self._row_bytes = places.row_bytes
        if not places.row_bytes <= job.payload_bytes <= arena.payload_bytes:
            raise LayoutMismatchError(
                "the payload does not fit",
                payload_bytes=job.payload_bytes,
                row_bytes=places.row_bytes,
                slot_bytes=arena.payload_bytes,
            )
        self._items = row_items(job, places.pages_per_row)

    def store(self) -> Work[list[ItemStatus]]:
        """Copy rows of the engine into granted arena slots (G1 to G2); returns one status per item."""
        statuses: list[ItemStatus] = []
        for item in self._items:
            statuses.append(self._store(item))
            yield
        return statuses

    def load(self, *, verify: bool) -> Work[list[ItemStatus]]:
        """Copy arena slots into the engine's memory (G2 to G1); returns one status per item.

        A row whose bytes do not match its header is marked BAD, so that no restart brings it back.
        """
        statuses: list[ItemStatus] = []
        for item in self._items:
            statuses.append(self._load(item, verify=verify))
            yield
        return statuses

    def _store(self, item: RowItem) -> ItemStatus:
        pages, guards = item.pages, item.guards
        if item.slot >= self._arena.slots or pages.max() >= self._mapping.blocks:
            return ItemStatus.SKIPPED
        permission = self._control.may_issue(item.index, self._arena.generation(item.slot))
        if permission is not ItemStatus.OK:
            return permission
        if not self._mapping.guards_are(pages, guards):
            return ItemStatus.SOURCE_CHANGED
        payload = self._arena.begin_write(item.slot, item.generation)[: self._job.payload_bytes]
        row, rest = payload[: self._row_bytes], payload[self._row_bytes :]
        try:
            checksum = hash_pieces(chain(self._copier.gather(self._group, pages, row), _zeroed(rest)))
        except TransferError as error:
            _log.warning("a row could not be copied out of engine memory", slot=item.slot, reason=error.finding)
            return ItemStatus.IO_ERROR
        if not self._mapping.guards_are(pages, guards):
            return ItemStatus.SOURCE_CHANGED
        self._arena.publish(target_header(self._job, item, self._arena.arena_id, checksum))
        return ItemStatus.OK

    def _load(self, item: RowItem, *, verify: bool) -> ItemStatus:
        wanted, guards = _wanted(item)
        if item.slot >= self._arena.slots or (wanted.size and wanted.max() >= self._mapping.blocks):
            return ItemStatus.SKIPPED
        permission = self._control.may_issue(item.index)
        if permission is not ItemStatus.OK:
            return permission
        reading = self._arena.read(item.slot)
        status = source_status(self._job, item, reading)
        if status is ItemStatus.CORRUPT:
            condemn(self._arena, item.slot, item.generation)
        if status is not ItemStatus.OK:
            return status
        if not self._mapping.guards_are(wanted, guards):
            # The engine gave a block to somebody else after it asked: writing would destroy that one's bytes.
            return ItemStatus.SKIPPED
        payload = self._arena.payload(item.slot, self._job.payload_bytes)
        intact = True
        try:
            moved = self._copier.scatter(self._group, item.pages, payload[: self._row_bytes])
            if verify:
                intact = hash_pieces(chain(moved, (payload[self._row_bytes :],))) == reading.header.checksum
            else:
                deque(moved, maxlen=0)
        except TransferError as error:
            _log.warning("a row could not be copied into engine memory", slot=item.slot, reason=error.finding)
            return ItemStatus.IO_ERROR
        if not self._arena.is_current(item.slot, item.generation):
            return ItemStatus.STALE
        if not intact:
            condemn(self._arena, item.slot, item.generation)
            return ItemStatus.CORRUPT
        return ItemStatus.OK if self._mapping.guards_are(wanted, guards) else ItemStatus.SKIPPED


def condemn(arena: Arena, slot: int, generation: int) -> None:
    """Mark an arena slot BAD, unless it was granted again meanwhile."""
    with contextlib.suppress(StaleGenerationError):
        arena.mark(slot, Generation(generation), HeaderState.BAD)


def _wanted(item: RowItem) -> tuple[PageColumn, GuardColumn]:
    """Pages that the engine has a use for, and their guards."""
    wanted = item.pages != NO_PAGE
    return item.pages[wanted], item.guards[wanted]


def _zeroed(rest: ByteArray) -> Iterator[ByteArray]:
    for start in range(0, len(rest), COPY_CHUNK_BYTES):
        piece = rest[start : start + COPY_CHUNK_BYTES]
        piece.fill(0)
        yield piece
