"""Format of G4 objects: a pack of consecutive blocks of one chain, and the key it lies under.

::

    key    <prefix>/p1/<tenant 32 hex>/<purge epoch>/<identity 32 hex>/<2 hex>/<pack id 32 hex>
    pack   4096 bytes header: 0 magic, 8 version u32, 12 flags u32, 16 pack id, 32 identity, 64 first position u32,
           68 blocks u16, 70 blocks per pack u16, 72 stride u32, 76 group u16, 80 writer epoch, 88 created ms,
           128 blocks x 16 content keys, 4088 xxh3-64 of what is before it
           record i at 4096 + i * stride: slot header (256 bytes), payload, padding

The id of a pack is the stored key of its last block: its content key and KV group (``core.stored_key``). A content key
fixes its whole prefix, so everyone who packs a run names it alike and writes the same blocks (though not the same
bytes: payloads of one key may differ by writer). All blocks of a pack are of one group.
Invariants: a record is accepted for what it says about itself, never for where it was found.
Threading: pure functions and values.
"""

import re
import struct
from dataclasses import dataclass
from enum import Enum, unique
from typing import Final

from blockyard.core.errors import CorruptBlockError, ForeignFileError
from blockyard.core.pack_plan import MAX_PACK_BLOCKS
from blockyard.core.stored_key import StoredKey, stored_key, stored_keys
from blockyard.core.vocabulary import (
    KEY_BYTES,
    ChainDigest,
    ContentKey,
    Epoch,
    GroupId,
    IdentityDigest,
    PackId,
    TenantDigest,
)
from blockyard.tiers.checksum import ReadableBuffer, record_checksum
from blockyard.tiers.header import HEADER_BYTES, NO_FILE, SlotHeader, check_record, unpack_header

PACK_HEADER_BYTES: Final = 4_096
PACK_FORMAT: Final = 1
MAX_PACK_BYTES: Final = 64 << 20
"""One object is one upload; larger packs are refused."""
_MAGIC: Final = b"BYPACK01"
_FIELDS: Final = struct.Struct("<8sII16s32sIHHIH2xQQ32x")
_KEYS_OFFSET: Final = 128
_CHECKSUM_OFFSET: Final = 4_088
_IDENTITY_KEY_BYTES: Final = 16
_KEY_PATTERN: Final = re.compile(r"/p1/([0-9a-f]{32})/([0-9]{1,20})/([0-9a-f]{32})/([0-9a-f]{2})/([0-9a-f]{32})")


def pack_bytes(blocks: int, stride_bytes: int) -> int:
    """Length of a pack of ``blocks`` records."""
    return PACK_HEADER_BYTES + blocks * stride_bytes


def record_offset(index: int, stride_bytes: int) -> int:
    """Where record ``index`` starts in its pack."""
    return PACK_HEADER_BYTES + index * stride_bytes


@dataclass(frozen=True, slots=True)
class PackAddress:
    """What the key of a pack is made of."""

    tenant: TenantDigest
    purge_epoch: int
    identity: bytes
    """First 16 bytes of the identity digest."""
    pack: PackId

    @classmethod
    def of(cls, tenant: bytes, purge_epoch: int, identity: bytes, pack: bytes) -> "PackAddress":
        """Address of a pack of this tenant and identity (32-byte digest)."""
        return cls(TenantDigest(tenant), purge_epoch, bytes(identity[:_IDENTITY_KEY_BYTES]), PackId(pack))

    def key(self, prefix: str) -> str:
        """Object key below ``prefix``."""
        name = self.pack.hex()
        return f"{prefix}/p1/{self.tenant.hex()}/{self.purge_epoch}/{self.identity.hex()}/{name[:2]}/{name}"


def packs_prefix(prefix: str) -> str:
    """What the keys of all packs of a store begin with."""
    return f"{prefix}/p1/"


def parse_key(prefix: str, key: str) -> PackAddress:
    """Address of the pack under ``key``.

    Raises:
        ForeignFileError: the key is none that a pack of this store can have.
    """
    match = _KEY_PATTERN.fullmatch(key, len(prefix)) if key.startswith(prefix) else None
    if match is None:
        raise ForeignFileError("the key is not that of a pack", key=key)
    tenant, purge_epoch, identity, shard, pack = match.groups()
    address = PackAddress(
        TenantDigest(bytes.fromhex(tenant)), int(purge_epoch), bytes.fromhex(identity), PackId(bytes.fromhex(pack))
    )
    if shard != pack[:2] or address.key(prefix) != key:
        raise ForeignFileError("the key is not that of a pack", key=key)
    return address


@dataclass(frozen=True, slots=True, kw_only=True)
class PackHeader:
    """First 4096 bytes of a pack."""

    identity: IdentityDigest
    first_position: int
    keys: bytes
    """Content keys of all blocks, 16 bytes each; the last one names the pack."""
    group: GroupId = GroupId(0)
    blocks_per_pack: int
    stride_bytes: int
    writer_epoch: Epoch
    created_ms: int

    @property
    def blocks(self) -> int:
        """Blocks in the pack."""
        return len(self.keys) // KEY_BYTES

    @property
    def pack(self) -> PackId:
        """Id of the pack."""
        return _pack_of(self.keys, self.group)

    @property
    def object_bytes(self) -> int:
        """Length of the whole object."""
        return pack_bytes(self.blocks, self.stride_bytes)

    def content_keys(self) -> list[ContentKey]:
        """Content keys in order."""
        return [ContentKey(self.keys[start : start + KEY_BYTES]) for start in range(0, len(self.keys), KEY_BYTES)]

    def stored_keys(self) -> list[StoredKey]:
        """Keys of the blocks in the index, in order."""
        return stored_keys(self.content_keys(), self.group)

    def same_run(self, other: "PackHeader") -> bool:
        """True where both describe the same blocks in the same geometry, whoever wrote them and when."""
        return self._run() == other._run()

    def _run(self) -> tuple[object, ...]:
        geometry = (self.blocks_per_pack, self.stride_bytes)
        return (self.identity, self.group, self.first_position, self.keys, geometry)

    def encode(self) -> bytes:
        """The 4096 bytes of this header."""
        fields = _FIELDS.pack(
            _MAGIC,
            PACK_FORMAT,
            0,
            self.pack,
            self.identity,
            self.first_position,
            self.blocks,
            self.blocks_per_pack,
            self.stride_bytes,
            self.group,
            self.writer_epoch,
            self.created_ms,
        )
        body = (fields + self.keys).ljust(_CHECKSUM_OFFSET, b"\0")
        return body + record_checksum(body).to_bytes(8, "little")


def decode_pack_header(data: ReadableBuffer) -> PackHeader:
    """Decode the first bytes of an object.

    Raises:
        CorruptBlockError: they are not the header of a pack of this format.
    """
    head = bytes(data[:PACK_HEADER_BYTES])
    if len(head) < PACK_HEADER_BYTES:
        raise CorruptBlockError("the object is shorter than a pack header", bytes=len(head))
    stored = int.from_bytes(head[_CHECKSUM_OFFSET:], "little")
    fields = _FIELDS.unpack_from(head)
    magic, version, flags, pack, identity, first, blocks, per_pack, stride, group, epoch, created = fields
    if magic != _MAGIC or version != PACK_FORMAT or flags or stored != record_checksum(head[:_CHECKSUM_OFFSET]):
        raise CorruptBlockError("not the header of a pack of this format", version=version)
    if not 0 < blocks <= per_pack <= MAX_PACK_BLOCKS or stride < HEADER_BYTES:
        raise CorruptBlockError("a pack header without sense", blocks=blocks, stride=stride)
    keys = head[_KEYS_OFFSET : _KEYS_OFFSET + blocks * KEY_BYTES]
    if _pack_of(keys, GroupId(group)) != pack:
        raise CorruptBlockError("the id of a pack is the key of its last block", group=group)
    return PackHeader(
        identity=IdentityDigest(identity),
        first_position=first,
        keys=keys,
        group=GroupId(group),
        blocks_per_pack=per_pack,
        stride_bytes=stride,
        writer_epoch=Epoch(epoch),
        created_ms=created,
    )


def _pack_of(keys: bytes, group: GroupId) -> PackId:
    return PackId(stored_key(ContentKey(keys[-KEY_BYTES:]), group))


@dataclass(frozen=True, slots=True)
class WantedRecord:
    """What a reader expects at one place of a pack."""

    index: int
    identity: IdentityDigest
    digest: ChainDigest
    position: int
    group: GroupId
    payload_bytes: int


@unique
class RecordFault(Enum):
    """Why the header of a record was not accepted."""

    DAMAGED = "damaged"
    """Not a valid record, or not one of this place."""
    OTHER_IDENTITY = "other identity"
    OTHER_BLOCK = "other block"
    """A valid record of another block, position, group or length."""


def check_pack_record(record: ReadableBuffer, wanted: WantedRecord) -> SlotHeader | RecordFault:
    """Header of a record if it is the wanted one; says nothing about the payload."""
    verdict = check_record(record, file_id=NO_FILE, slot=wanted.index, max_payload_bytes=wanted.payload_bytes)
    if not verdict.is_block:
        return RecordFault.DAMAGED
    header = unpack_header(record)
    if header.identity != wanted.identity:
        return RecordFault.OTHER_IDENTITY
    found = (header.digest, header.position, header.group, header.payload_bytes)
    if found != (wanted.digest, wanted.position, wanted.group, wanted.payload_bytes):
        return RecordFault.OTHER_BLOCK
    return header
