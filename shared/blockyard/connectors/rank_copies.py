"""Copies of one rank between its pages and granted slots of the arena, on side streams (executor ``engine``).

::

    store   pages of a row ──store stream, after the step that wrote them──► this rank's shard of a granted slot
    load    pinned slot ──load stream, after compute as it is now──► pages of a row

A rank writes its own shard and nothing else of a payload, the last one also the zeros behind it; the record, with the
checksum, is made by the node when all shards are committed. An end is reported only when its event was queried done,
so a slot is committed, and a load used, only after that.
Invariants: which work waits for which is decided in ``tiers.device.fences``; a row that fails is not copied, and says
so, and never fails the others. Slots of submitted copies stay granted or pinned until the copy's end was reported.
Threading: one thread, that in which the engine submits its kernels; nothing here waits, except ``close``.
"""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum, unique
from types import TracebackType
from typing import Generic, NewType, Self, final

from blockyard.core.errors import ConfigurationError, LayoutMismatchError, StaleGenerationError
from blockyard.core.kv_groups import NO_PAGE, KvGroup
from blockyard.core.vocabulary import BlockId, EngineBlockId, Generation, GroupId, ItemStatus
from blockyard.tiers.arena import Arena
from blockyard.tiers.checksum import ByteArray
from blockyard.tiers.device.base import Device, PageCopy, PagesT
from blockyard.tiers.device.events import EventLease, EventPool
from blockyard.tiers.device.fences import Fences
from blockyard.tiers.header import HeaderVerdict

CopyId = NewType("CopyId", int)
"""One submission to this rank, counted from 1."""
_log = logging.getLogger(__name__)


@unique
class CopyKind(StrEnum):
    """Direction of a copy."""

    STORE = "store"
    LOAD = "load"


@final
@dataclass(frozen=True, slots=True)
class RowCopy:
    """One row: its pages in G1, and its slot."""

    pages: tuple[EngineBlockId, ...]
    """As many as a row of the group has; a load leaves ``NO_PAGE`` alone, a store cannot have it."""
    slot: BlockId
    generation: Generation
    group: GroupId = GroupId(0)


@final
@dataclass(frozen=True, slots=True)
class EndedCopy:
    """A submission that has ended: per row, in order, OK or why nothing was copied."""

    copy: CopyId
    kind: CopyKind
    statuses: tuple[ItemStatus, ...]


@final
@dataclass(frozen=True, slots=True)
class RankLayout(Generic[PagesT]):
    """What a rank holds: per group, in the model's order, the pages of its regions in the order of the layout."""

    rank: int
    ranks: int
    block_tokens: int
    groups: tuple[KvGroup, ...]
    pages: tuple[tuple[PagesT, ...], ...]


@final
@dataclass(frozen=True, slots=True)
class _Shard(Generic[PagesT]):
    """Where this rank's part of a row of one group lies in a payload."""

    pages_per_row: int
    blocks: int
    """Engine blocks that every region has a page of."""
    regions: tuple[tuple[PagesT, int, int], ...]
    """Pages, and the first and last byte of theirs in the part of one engine block."""
    start: int
    stop: int
    row_bytes: int
    writes: bool
    is_last: bool

    def fits(self, pages: tuple[EngineBlockId, ...]) -> bool:
        """Whether these are the pages of a row."""
        return len(pages) == self.pages_per_row and all(0 <= page < self.blocks or page == NO_PAGE for page in pages)


@dataclass(slots=True)
class _Pending(Generic[PagesT]):
    kind: CopyKind
    rows: Sequence[RowCopy]
    statuses: list[ItemStatus]
    end: EventLease


@final
class RankCopies(Generic[PagesT]):
    """The engine executor of one rank. Close it before its arena or its device."""

    def __init__(
        self, device: Device[PagesT], fences: Fences, events: EventPool, layout: RankLayout[PagesT], arena: Arena
    ) -> None:
        """Make the side streams and pin the arena.

        Args:
            device: where the pages are; stays the caller's.
            fences: who waits for whom.
            events: of this device.
            layout: the rank's pages.
            arena: what the rank may copy to and from; stays the caller's. Another one needs another ``RankCopies``.

        Raises:
            LayoutMismatchError: groups and pages do not fit each other, or a row does not fit a slot.
        """
        self._shards = {group.group: _shard(device, layout, index, arena) for index, group in enumerate(layout.groups)}
        self._device = device
        self._fences = fences
        self._events = events
        self._arena = arena
        self._stores = device.new_stream()
        self._loads = device.new_stream()
        self._pending: dict[CopyId, _Pending[PagesT]] = {}
        self._readers: dict[EngineBlockId, set[CopyId]] = {}
        self._last = 0
        self._memory = arena.strides(0, arena.slots)
        try:
            device.register_host(self._memory, arena.stride_bytes)
        except ConfigurationError as error:
            _log.warning("copies will be slow: %s", error)

    @property
    def pending(self) -> int:
        """Copies whose end was not reported yet."""
        return len(self._pending)

    def step_ended(self) -> EventLease:
        """To be called behind the kernels of a step: its event, for ``submit_store``. The caller releases it."""
        return self._events.record(self._device.compute_stream)

    def submit_store(self, step: EventLease, rows: Sequence[RowCopy]) -> CopyId:
        """Copy this rank's shards of rows into granted slots, once the step that wrote them is done on the device."""
        statuses = [ItemStatus.SKIPPED] * len(rows)
        copies: list[PageCopy[PagesT]] = []
        readers: list[EngineBlockId] = []
        for index, row in enumerate(rows):
            shard = self._shards.get(row.group)
            if shard is None or not shard.fits(row.pages) or NO_PAGE in row.pages:
                continue
            if not shard.writes:
                statuses[index] = ItemStatus.OK  # another rank holds the same bytes and writes them
            elif (payload := self._begin_write(row)) is None:
                statuses[index] = ItemStatus.STALE
            else:
                if shard.is_last:
                    payload[shard.row_bytes :] = 0
                copies += _page_copies(shard, row, payload)
                readers += row.pages
                statuses[index] = ItemStatus.OK
        self._fences.store_after_step(self._stores, step.event)
        self._device.copy_to_host(self._stores, copies, self._fences.source_order)
        copy = self._submitted(_Pending(CopyKind.STORE, rows, statuses, self._events.record(self._stores)))
        for block in readers:
            self._readers.setdefault(block, set()).add(copy)
        return copy

    def submit_load(self, rows: Sequence[RowCopy]) -> CopyId:
        """Copy this rank's shards of rows out of pinned slots, behind all compute submitted so far."""
        statuses = [ItemStatus.SKIPPED] * len(rows)
        copies: list[PageCopy[PagesT]] = []
        for index, row in enumerate(rows):
            shard = self._shards.get(row.group)
            if shard is None or not shard.fits(row.pages):
                continue
            if not self._arena.is_current(row.slot, row.generation):
                statuses[index] = ItemStatus.STALE
                continue
            copies += _page_copies(shard, row, self._arena.payload(row.slot))
            statuses[index] = ItemStatus.OK
        # Compute first waits for the stores that read these pages, then the load stream for compute.
        self.before_rewrite({page for row in rows for page in row.pages})
        compute = self._events.record(self._device.compute_stream)
        self._fences.load_after_compute(self._loads, compute.event)
        compute.release()
        self._device.copy_to_device(self._loads, copies, self._fences.source_order)
        return self._submitted(_Pending(CopyKind.LOAD, rows, statuses, self._events.record(self._loads)))

    def before_rewrite(self, blocks: Iterable[EngineBlockId]) -> None:
        """To be called for every engine block allocated anew, by whomever, before the kernels of the step.

        Compute submitted from now on waits, on the device, for the stores that still read these blocks. Stores that
        were put off are submitted before this call: it knows of no others.
        """
        readers = self._readers
        stores = {copy for block in blocks if block in readers for copy in readers[block]}
        ends = [self._pending[copy].end.event for copy in sorted(stores)]
        self._fences.rewrite_after_store(self._device.compute_stream, ends)

    def poll(self) -> tuple[EndedCopy, ...]:
        """Copies that have ended since the last call."""
        return tuple(
            self._ended(copy)
            for copy, pending in tuple(self._pending.items())
            if self._fences.has_ended(pending.end.event)
        )

    def close(self) -> tuple[EndedCopy, ...]:
        """Wait for all copies and unpin the arena; the ends that were not reported yet. Harmless when repeated."""
        self._device.synchronize()
        ended = tuple(self._ended(copy) for copy in tuple(self._pending))
        self._device.unregister_host(self._memory)
        self._memory = self._memory[:0]
        return ended

    def __enter__(self) -> Self:
        """Close at the end of the block."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close; ends that were not reported are lost with the rank."""
        self.close()

    def _begin_write(self, row: RowCopy) -> ByteArray | None:
        """Payload of a granted slot, or None: the first rank opens it, the others find it open."""
        try:
            return self._arena.begin_write(row.slot, row.generation)
        except StaleGenerationError:
            found = self._arena.read(row.slot)
            is_open = found.verdict is HeaderVerdict.WRITING and found.generation == row.generation
            return self._arena.payload(row.slot) if is_open else None

    def _submitted(self, pending: _Pending[PagesT]) -> CopyId:
        self._last += 1
        copy = CopyId(self._last)
        self._pending[copy] = pending
        return copy

    def _ended(self, copy: CopyId) -> EndedCopy:
        pending = self._pending.pop(copy)
        pending.end.release()
        if pending.kind is CopyKind.STORE:
            self._forget_readers(copy, pending.rows)
        else:
            for index, row in enumerate(pending.rows):
                if pending.statuses[index] is ItemStatus.OK and not self._arena.is_current(row.slot, row.generation):
                    pending.statuses[index] = ItemStatus.STALE
        return EndedCopy(copy, pending.kind, tuple(pending.statuses))

    def _forget_readers(self, copy: CopyId, rows: Sequence[RowCopy]) -> None:
        for block in {page for row in rows for page in row.pages}:
            readers = self._readers.get(block)
            if readers is not None:
                readers.discard(copy)
                if not readers:
                    del self._readers[block]


def _shard(device: Device[PagesT], layout: RankLayout[PagesT], index: int, arena: Arena) -> _Shard[PagesT]:
    if len(layout.pages) != len(layout.groups) or not 0 <= layout.rank < layout.ranks:
        raise LayoutMismatchError("a rank has pages for every group", groups=len(layout.groups), rank=layout.rank)
    group, pages = layout.groups[index], layout.pages[index]
    regions: list[tuple[PagesT, int, int]] = []
    blocks, block_bytes = int(NO_PAGE), 0
    for region in pages:
        count, size = device.page_shape(region)
        blocks = min(blocks, count)
        regions.append((region, block_bytes, block_bytes + size))
        block_bytes += size
    pages_per_row, shards = group.pages_per_row(layout.block_tokens), group.shards(layout.ranks)
    shard_bytes = block_bytes * pages_per_row
    if not shard_bytes or shard_bytes * shards > arena.payload_bytes:
        raise LayoutMismatchError(
            "a row does not fit a slot", group=group.group, row_bytes=shard_bytes * shards, slot=arena.payload_bytes
        )
    place = 0 if group.replicated else layout.rank
    return _Shard(
        pages_per_row=pages_per_row,
        blocks=blocks,
        regions=tuple(regions),
        start=place * shard_bytes,
        stop=(place + 1) * shard_bytes,
        row_bytes=shard_bytes * shards,
        writes=not group.replicated or layout.rank == 0,
        is_last=place == shards - 1,
    )


def _page_copies(shard: _Shard[PagesT], row: RowCopy, payload: ByteArray) -> list[PageCopy[PagesT]]:
    parts = payload[shard.start : shard.stop].reshape(shard.pages_per_row, -1)
    if NO_PAGE not in row.pages:
        return [PageCopy(pages, row.pages, parts[:, first:last]) for pages, first, last in shard.regions]
    return [
        PageCopy(pages, (page,), parts[place : place + 1, first:last])
        for place, page in enumerate(row.pages)
        if page != NO_PAGE
        for pages, first, last in shard.regions
    ]
