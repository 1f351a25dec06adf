"""The 256-byte record that every stored copy of a block carries: in the arena, in slab files and in packs.

Layout (little-endian): 0 magic, 8 control word, 16 epoch of the block-manager that granted the slot, 24 epoch of the
worker that wrote it, 32 job, 40 file id, 56 slot, 60 flags, 64 identity, 96 content key, 112 parent key, 128 position,
132 payload length, 136 payload checksum, 152 key id, 156 nonce, 168 tag (all three zero: blocks are not sealed),
184 group, shard, shards, 192 chain digest, 224 tenant, 240 xxh3-64 of bytes 0-7 and 16-239, 248 second control word.
A control word is ``generation << 8 | state``. It is outside of the checksum, so that a state can change by one store.

Invariants: a record is a block only if magic, both control words, state READY, checksum, file id and slot are all
right; everything else is no block, and ``HeaderVerdict`` says why. Threading: values and pure functions.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum, unique
from typing import Final

import numpy as np

from blockyard.core.errors import CorruptBlockError, MalformedFrameError
from blockyard.core.vocabulary import (
    DEFAULT_TENANT,
    BlockId,
    ChainDigest,
    ContentKey,
    Epoch,
    Generation,
    GroupId,
    IdentityDigest,
    JobSeq,
    TenantDigest,
    key_of,
)
from blockyard.tiers.checksum import ReadableBuffer, record_checksum

HEADER_BYTES: Final = 256
INVENTORY_BYTES: Final = 184
"""Header bytes 8-135 followed by 184-239 (group, shard, chain digest, tenant): what an inventory sends per slot."""
MAGIC: Final = b"BYSLOT01"
NO_FILE: Final = bytes(16)
"""File id of records that lie in packs."""
MOST_SLOTS: Final = (1 << 31) - 1
"""Movers take slot indexes as signed 32-bit integers."""
MOST_PAYLOAD_BYTES: Final = (1 << 32) - 4_096
"""Longest payload whose length, rounded up to pages, still fits the 32 bits that records have for it."""

CONTROL_OFFSET: Final = 8
SECOND_CONTROL_OFFSET: Final = 248
_BODY: Final = slice(16, 240)
_STATE_MASK: Final = 0xFF
_RECORD: Final = struct.Struct("<8sQQQQ16sII32s16s16sII16sI12s16sHHHH32s16sQQ")
_ESSENTIALS: Final = struct.Struct("<8sQ24x16sII")
_PAYLOAD_LENGTH: Final = struct.Struct("<I")
_TAIL: Final = struct.Struct("<QQ")
_INVENTORY: Final = struct.Struct("<QQQQ16sI4x32s16x16sIIHHH2x32s16s")
_INVENTORY_PARTS: Final = (slice(8, 136), slice(184, 240))
_FLAG_SEALED: Final = 1
_KIND_SHIFT: Final = 8


@unique
class HeaderState(IntEnum):
    """State of a slot, low byte of the control word."""

    EMPTY = 0
    FREE = 1
    WRITING = 2
    READY = 3
    BAD = 4


@unique
class ChecksumKind(IntEnum):
    """How the payload checksum was made."""

    NONE = 0
    """Not made yet; legal in the arena only."""
    XXH3_128 = 1


@unique
class HeaderVerdict(IntEnum):
    """What a record is. Only ``READY`` is a block."""

    EMPTY = 0
    FREE = 1
    WRITING = 2
    READY = 3
    BAD = 4
    NO_MAGIC = 5
    """Not empty, and not a record of this format."""
    UNKNOWN_STATE = 6
    TORN = 7
    """The two control words differ: the writer did not finish."""
    CHECKSUM = 8
    OTHER_FILE = 9
    OTHER_SLOT = 10
    TOO_LONG = 11
    """The payload would not fit the slot."""
    SEALED = 12
    """Encrypted by a version that knows how."""

    @property
    def is_block(self) -> bool:
        """True for a record whose payload may be read (and then compared with its checksum)."""
        return self is HeaderVerdict.READY

    @property
    def is_damaged(self) -> bool:
        """True where the record is neither a block nor an orderly absence of one."""
        return self > HeaderVerdict.BAD


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotHeader:
    """Everything a stored copy says about itself."""

    generation: Generation
    identity: IdentityDigest
    digest: ChainDigest
    parent: ContentKey
    position: int
    payload_bytes: int
    checksum: bytes
    """16 bytes: checksum of the payload of this very copy."""
    slot: BlockId
    file_id: bytes
    """16 bytes: id of the arena or slab; ``NO_FILE`` in packs."""
    state: HeaderState = HeaderState.READY
    bm_epoch: Epoch = Epoch(0)
    worker_epoch: Epoch = Epoch(0)
    job_seq: JobSeq = JobSeq(0)
    tenant: TenantDigest = DEFAULT_TENANT
    group: GroupId = GroupId(0)
    shard: int = 0
    shards: int = 1
    checksum_kind: ChecksumKind = ChecksumKind.XXH3_128

    @property
    def key(self) -> ContentKey:
        """Content key: first half of the chain digest."""
        return key_of(self.digest)


@dataclass(frozen=True, slots=True)
class HeaderReading:
    """One look at a slot: a copy of its record and what it is."""

    verdict: HeaderVerdict
    generation: Generation
    """From the first control word, whatever the verdict; 0 for a slot that was never granted."""
    record: bytes

    @property
    def header(self) -> SlotHeader:
        """The decoded record.

        Raises:
            CorruptBlockError: the record is no block; of others not even the checksum was compared.
        """
        if not self.verdict.is_block:
            raise CorruptBlockError("the slot header names no block", verdict=self.verdict.name)
        return unpack_header(self.record)


@dataclass(frozen=True, slots=True)
class InventoryRecord:
    """One slot as a worker lists it: what a block table needs to take the block over."""

    state: HeaderState
    """Only READY slots hold a block; the others are listed for their generation."""
    block: BlockId
    generation: Generation
    bm_epoch: Epoch
    worker_epoch: Epoch
    job_seq: JobSeq
    file_id: bytes
    identity: IdentityDigest
    digest: ChainDigest
    parent: ContentKey
    position: int
    payload_bytes: int
    tenant: TenantDigest
    group: GroupId
    shard: int
    shards: int

    @property
    def key(self) -> ContentKey:
        """Content key: first half of the chain digest."""
        return key_of(self.digest)


def control_word(generation: int, state: HeaderState) -> int:
    """Generation and state as one 64-bit word."""
    return generation << 8 | state


def control_of(record: ReadableBuffer) -> int:
    """First control word of a record."""
    return int.from_bytes(record[CONTROL_OFFSET : CONTROL_OFFSET + 8], "little")


def generation_of(control: int) -> Generation:
    """Generation in a control word."""
    return Generation(control >> 8)


def pack_header(header: SlotHeader) -> bytes:
    """The 256 bytes of ``header``, checksum and both control words included."""
    control = control_word(header.generation, header.state)
    record = bytearray(
        _RECORD.pack(
            MAGIC,
            control,
            header.bm_epoch,
            header.worker_epoch,
            header.job_seq,
            header.file_id,
            header.slot,
            header.checksum_kind << _KIND_SHIFT,
            header.identity,
            header.key,
            header.parent,
            header.position,
            header.payload_bytes,
            header.checksum,
            0,
            b"",
            b"",
            header.group,
            header.shard,
            header.shards,
            0,
            header.digest,
            header.tenant,
            0,
            control,
        )
    )
    _TAIL.pack_into(record, 240, record_checksum(MAGIC, memoryview(record)[_BODY]), control)
    return bytes(record)


def unpack_header(record: ReadableBuffer) -> SlotHeader:
    """Decode a record whose verdict is READY."""
    (
        _,
        control,
        bm_epoch,
        worker_epoch,
        job_seq,
        file_id,
        slot,
        flags,
        identity,
        _,
        parent,
        position,
        length,
        *rest,
    ) = _RECORD.unpack_from(record)
    checksum, _, _, _, group, shard, shards, _, digest, tenant, _, _ = rest
    return SlotHeader(
        generation=generation_of(control),
        state=HeaderState(control & _STATE_MASK),
        bm_epoch=bm_epoch,
        worker_epoch=worker_epoch,
        job_seq=job_seq,
        file_id=file_id,
        slot=slot,
        identity=identity,
        digest=digest,
        parent=parent,
        position=position,
        payload_bytes=length,
        checksum=checksum,
        checksum_kind=ChecksumKind(flags >> _KIND_SHIFT & 0xFF),
        tenant=tenant,
        group=group,
        shard=shard,
        shards=shards,
    )


def with_state(record: ReadableBuffer, generation: int, state: HeaderState) -> bytes:
    """The record with both control words replaced; the checksum does not cover them."""
    changed = bytearray(record)
    changed[: len(MAGIC)] = MAGIC
    word = control_word(generation, state).to_bytes(8, "little")
    changed[CONTROL_OFFSET : CONTROL_OFFSET + 8] = word
    changed[SECOND_CONTROL_OFFSET:] = word
    return bytes(changed)


def check_record(record: ReadableBuffer, *, file_id: bytes, slot: int, max_payload_bytes: int) -> HeaderVerdict:
    """Say what a record is.

    Args:
        record: 256 bytes.
        file_id: id of the file that the record was read from.
        slot: place of the record in that file.
        max_payload_bytes: bytes of one payload place; a longer claim is refused before anything is copied.
    """
    magic, control, found_file, found_slot, flags = _ESSENTIALS.unpack_from(record)
    if magic != MAGIC:
        return HeaderVerdict.NO_MAGIC if any(bytes(record)) else HeaderVerdict.EMPTY
    state = control & _STATE_MASK
    if state > HeaderState.BAD:
        return HeaderVerdict.UNKNOWN_STATE
    if state in (HeaderState.EMPTY, HeaderState.WRITING):
        return HeaderVerdict(state)
    checksum, second = _TAIL.unpack_from(record, 240)
    if second != control:
        return HeaderVerdict.TORN
    if state != HeaderState.READY:
        return HeaderVerdict(state)
    if checksum != record_checksum(MAGIC, memoryview(record)[_BODY]):
        return HeaderVerdict.CHECKSUM
    if found_file != file_id:
        return HeaderVerdict.OTHER_FILE
    if found_slot != slot:
        return HeaderVerdict.OTHER_SLOT
    if flags & _FLAG_SEALED or flags >> _KIND_SHIFT & 0xFF > ChecksumKind.XXH3_128:
        return HeaderVerdict.SEALED
    if _PAYLOAD_LENGTH.unpack_from(record, 132)[0] > max_payload_bytes:
        return HeaderVerdict.TOO_LONG
    return HeaderVerdict.READY


def read_record(record: ReadableBuffer, *, file_id: bytes, slot: int, max_payload_bytes: int) -> HeaderReading:
    """Copy a record, then judge the copy."""
    copy = bytes(record)
    verdict = check_record(copy, file_id=file_id, slot=slot, max_payload_bytes=max_payload_bytes)
    generation = Generation(0) if verdict is HeaderVerdict.NO_MAGIC else generation_of(control_of(copy))
    return HeaderReading(verdict, generation, copy)


def inventory_record(record: ReadableBuffer) -> bytes:
    """The part of a header that an inventory sends."""
    names, chain = _INVENTORY_PARTS
    return bytes(record[names]) + bytes(record[chain])


def parse_inventory(records: bytes) -> Iterator[InventoryRecord]:
    """Decode the records of an inventory page.

    Raises:
        MalformedFrameError: not a whole number of records, or an unknown state; raised before the first record.
    """
    if len(records) % INVENTORY_BYTES:
        raise MalformedFrameError("an inventory page holds whole records", length=len(records))
    states = np.frombuffer(records, np.uint8)[::INVENTORY_BYTES]
    if len(states) and int(states.max()) > HeaderState.BAD:
        raise MalformedFrameError("an inventory record has an unknown state", state=int(states.max()))
    return (_inventory_entry(fields) for fields in _INVENTORY.iter_unpack(records))


def _inventory_entry(
    fields: tuple[int, int, int, int, bytes, int, bytes, bytes, int, int, int, int, int, bytes, bytes],
) -> InventoryRecord:
    control, bm_epoch, worker_epoch, job_seq, file_id, slot, identity, parent, position, length = fields[:10]
    group, shard, shards, digest, tenant = fields[10:]
    return InventoryRecord(
        state=HeaderState(control & _STATE_MASK),
        block=BlockId(slot),
        generation=generation_of(control),
        bm_epoch=Epoch(bm_epoch),
        worker_epoch=Epoch(worker_epoch),
        job_seq=JobSeq(job_seq),
        file_id=file_id,
        identity=IdentityDigest(identity),
        digest=ChainDigest(digest),
        parent=ContentKey(parent),
        position=position,
        payload_bytes=length,
        tenant=TenantDigest(tenant),
        group=GroupId(group),
        shard=shard,
        shards=shards,
    )
