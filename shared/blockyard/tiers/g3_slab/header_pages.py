"""The header pages of a slab: all records in memory, and their pages on disk.

Reads of blocks compare with the records in memory; the pages on disk matter at start only.
Invariants: ``may_be_ready(slot)`` is False only if the page on disk is certainly not READY; it is set before a READY
page is handed to the device and cleared after a FREE or BAD page is durable.
Threading: ``read`` from any thread; everything else that changes records and marks from one thread (the event loop);
``write`` runs in the committer's thread and touches neither.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, final

import numpy as np

from blockyard.core.errors import NoSpaceError, StorageError
from blockyard.tiers.arena import PAGE_BYTES
from blockyard.tiers.base import MoveOutcome, SlabFile
from blockyard.tiers.g3_slab.commit_cycle import PageChange
from blockyard.tiers.g3_slab.layout import SlabGeometry
from blockyard.tiers.g3_slab.slab_file import aligned_bytes
from blockyard.tiers.header import HEADER_BYTES, HeaderReading, HeaderVerdict, read_record

_SCAN_PAGES: Final = 1_024
_WRITE_PAGES: Final = 256


@dataclass(frozen=True, slots=True)
class ScanReport:
    """What the header pages were at start."""

    ready: int
    free: int
    """FREE and BAD pages."""
    damaged: int
    """Pages that are neither a block nor an orderly absence of one; treated as empty."""

    @property
    def is_empty(self) -> bool:
        """True if the slab holds no block."""
        return not self.ready


@final
class HeaderPages:
    """Records of all slots of one slab."""

    def __init__(self, file: SlabFile, geometry: SlabGeometry, slab_id: bytes) -> None:
        """Begin with empty records; ``scan`` reads them."""
        self._file = file
        self._geometry = geometry
        self._slab_id = slab_id
        self._records = np.zeros((geometry.slots, HEADER_BYTES), np.uint8)
        # Through a memoryview a whole record is copied under the interpreter lock, so no reader sees half of one.
        self._table = self._records.reshape(-1).data
        self._may_be_ready = np.zeros(geometry.slots, np.uint8)
        self._staging = aligned_bytes(min(_WRITE_PAGES, geometry.slots) * PAGE_BYTES)

    def scan(self) -> ScanReport:
        """Read all pages once, in order.

        Raises:
            TransferError: the device failed.
        """
        chunk = aligned_bytes(min(_SCAN_PAGES, self._geometry.slots) * PAGE_BYTES)
        for first in range(0, self._geometry.slots, _SCAN_PAGES):
            count = min(_SCAN_PAGES, self._geometry.slots - first)
            self._file.read(self._geometry.page_offset(first), [chunk[: count * PAGE_BYTES]])
            pages = chunk[: count * PAGE_BYTES].reshape(count, PAGE_BYTES)
            self._records[first : first + count] = pages[:, :HEADER_BYTES]
        verdicts = Counter(self._judge(int(slot)) for slot in np.flatnonzero(self._records.any(axis=1)))
        return ScanReport(
            ready=verdicts[HeaderVerdict.READY],
            free=verdicts[HeaderVerdict.FREE] + verdicts[HeaderVerdict.BAD],
            damaged=sum(count for verdict, count in verdicts.items() if verdict.is_damaged),
        )

    def _judge(self, slot: int) -> HeaderVerdict:
        verdict = self.read(slot).verdict
        if verdict.is_block:
            self._may_be_ready[slot] = 1
        elif verdict.is_damaged:
            self._records[slot] = 0
        return verdict

    def read(self, slot: int) -> HeaderReading:
        """Look at a slot's record in memory; the answer is a copy."""
        limit = self._geometry.stride_bytes
        record = self._table[slot * HEADER_BYTES : (slot + 1) * HEADER_BYTES]
        return read_record(record, file_id=self._slab_id, slot=slot, max_payload_bytes=limit)

    def remember(self, slot: int, record: bytes) -> None:
        """Replace a slot's record in memory."""
        self._table[slot * HEADER_BYTES : (slot + 1) * HEADER_BYTES] = record

    def may_be_ready(self, slot: int) -> bool:
        """False if the page on disk is certainly not READY, so that the slot's payload may be overwritten."""
        return bool(self._may_be_ready[slot])

    def expect_ready(self, slot: int) -> None:
        """A READY page of this slot is about to be written."""
        self._may_be_ready[slot] = 1

    def confirm_free(self, slot: int) -> None:
        """A FREE or BAD page of this slot is durable."""
        self._may_be_ready[slot] = 0

    def write(self, changes: Sequence[PageChange]) -> list[MoveOutcome]:
        """Write the pages of ``changes``, which are in the order of their slots; neighbours go out in one call."""
        outcomes: list[MoveOutcome] = []
        start = 0
        for index in range(1, len(changes) + 1):
            is_last = index == len(changes) or index - start == _WRITE_PAGES
            if is_last or changes[index].slot != changes[index - 1].slot + 1:
                outcomes.extend([self._write_run(changes[start:index])] * (index - start))
                start = index
        return outcomes

    def _write_run(self, changes: Sequence[PageChange]) -> MoveOutcome:
        pages = self._staging[: len(changes) * PAGE_BYTES].reshape(-1, PAGE_BYTES)
        for page, change in zip(pages, changes, strict=True):
            page[:HEADER_BYTES] = np.frombuffer(change.record, np.uint8)
        try:
            self._file.write(self._geometry.page_offset(changes[0].slot), [pages.reshape(-1)])
        except NoSpaceError:
            return MoveOutcome.NO_SPACE
        except StorageError:
            return MoveOutcome.IO_ERROR
        return MoveOutcome.DONE
