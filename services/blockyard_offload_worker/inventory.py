"""What lies in the slots of a tier, page by page: the truth from which a block-manager rebuilds its table.

READY slots are listed as blocks. Slots without a block are listed too once they were granted, because the next grant
needs a generation above the one in their header; a damaged header is listed as BAD for the same reason. Slots that a
running job writes are left out: they are neither the old block nor the new one yet.

Invariants: a page never repeats a slot; cursors rise; the last page says so. A page is a moment's work whatever the
slots hold: what bounds it is the number of slots that were looked at, not only of those that were found worth listing.
Threading: runs on the copy thread, a few slots per step, so that a listing does not hold up loads.
"""

from dataclasses import dataclass
from typing import Final, Protocol

from blockyard.core.vocabulary import DIGEST_BYTES, ROOT_KEY, BlockId, ChainDigest, IdentityDigest
from blockyard.tiers.checksum import CHECKSUM_BYTES
from blockyard.tiers.header import NO_FILE, HeaderReading, HeaderState, SlotHeader, inventory_record, pack_header
from blockyard_offload_worker.copy_thread import Work

PAGE_SLOTS: Final = 8_192
"""Slots that are looked at for one page: an empty tier has millions and would else be one endless page."""
_SLOTS_PER_STEP: Final = 256
_NO_IDENTITY: Final = IdentityDigest(bytes(DIGEST_BYTES))
_NO_DIGEST: Final = ChainDigest(bytes(DIGEST_BYTES))


class SlotTable(Protocol):
    """Headers of one tier."""

    @property
    def slots(self) -> int:
        """Number of slots."""
        ...

    def read(self, slot: int) -> HeaderReading:
        """Copy of a slot's header and what it is."""
        ...


@dataclass(frozen=True, slots=True)
class SlotListing:
    """One page of a tier's slots.

    Attributes:
        records: inventory records, one after the other.
        cursor: slot at which the next page begins.
        end: True where nothing follows.
    """

    records: bytes
    cursor: int
    end: bool


def list_slots(table: SlotTable, cursor: int, max_records: int, busy: frozenset[int]) -> Work[SlotListing]:
    """List at most ``max_records`` of the next ``PAGE_SLOTS`` slots from ``cursor`` on."""
    records: list[bytes] = []
    slot = cursor
    stop = min(table.slots, cursor + PAGE_SLOTS)
    while slot < stop and len(records) < max_records:
        for _ in range(min(_SLOTS_PER_STEP, stop - slot)):
            if len(records) == max_records:
                break
            record = None if slot in busy else _record(slot, table.read(slot))
            if record is not None:
                records.append(record)
            slot += 1
        yield
    return SlotListing(b"".join(records), slot, end=slot >= table.slots)


def _record(slot: int, reading: HeaderReading) -> bytes | None:
    if reading.verdict.is_block:
        return inventory_record(reading.record)
    if reading.generation == 0:
        return None
    # Made anew: a slot whose first write never ended does not even know its own index yet.
    state = HeaderState.BAD if reading.verdict.is_damaged else HeaderState(reading.verdict)
    vacant = SlotHeader(
        generation=reading.generation,
        state=state,
        slot=BlockId(slot),
        identity=_NO_IDENTITY,
        digest=_NO_DIGEST,
        parent=ROOT_KEY,
        position=0,
        payload_bytes=0,
        checksum=bytes(CHECKSUM_BYTES),
        file_id=NO_FILE,
    )
    return inventory_record(pack_header(vacant))
