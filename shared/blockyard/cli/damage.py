"""Damage done on purpose: one payload byte flipped in a slab file on disk, or in a pack in the object store.

The proof run uses it to show that damage is found. Only payload bytes of whole, valid blocks are touched.
Threading: slab functions block for a few milliseconds; the others belong to one event loop.
"""

import os
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from blockyard.core.errors import ForeignFileError, StorageError
from blockyard.core.vocabulary import ContentKey
from blockyard.runtime.settings import G4Section
from blockyard.tiers.bucket_admin import S3BucketAdmin
from blockyard.tiers.g3_slab.header_pages import HeaderPages
from blockyard.tiers.g3_slab.slab_file import PosixSlabFile
from blockyard.tiers.g3_slab.superblock import read_superblock
from blockyard.tiers.g4_packs import (
    PACK_HEADER_BYTES,
    PackHeader,
    decode_pack_header,
    packs_prefix,
    parse_key,
    record_offset,
)
from blockyard.tiers.header import HEADER_BYTES, SlotHeader
from blockyard.tiers.object_store import PutOutcome, S3ObjectStore, StoreCredentials, StoreEndpoint

_FLIP: Final = 0x10


@dataclass(frozen=True, slots=True)
class SlabBlock:
    """A block as it lies in a slab file."""

    file: Path
    payload_offset: int
    header: SlotHeader


@dataclass(frozen=True, slots=True)
class PackedBlock:
    """The last block of a pack in the object store."""

    object_key: str
    pack: PackHeader

    @property
    def key(self) -> ContentKey:
        """Its content key."""
        return self.pack.content_keys()[-1]


def slab_blocks(folder: Path) -> list[SlabBlock]:
    """Every block that the slab files in ``folder`` hold now; files of other kinds are passed over."""
    found: list[SlabBlock] = []
    for path in sorted(path for path in folder.iterdir() if path.is_file()):
        file = PosixSlabFile(os.open(path, os.O_RDONLY | os.O_CLOEXEC), path, direct=False)
        try:
            superblock = read_superblock(file, str(path))
            geometry = superblock.geometry
            pages = HeaderPages(file, geometry, superblock.slab_id)
            pages.scan()
            for slot in range(geometry.slots):
                reading = pages.read(slot)
                if reading.verdict.is_block:
                    offset = geometry.payload_offset + slot * geometry.stride_bytes
                    found.append(SlabBlock(path, offset, reading.header))
        except ForeignFileError:
            continue
        finally:
            file.close()
    return found


def flip_slab_byte(block: SlabBlock) -> None:
    """Flip a bit in the middle of the payload on disk, behind the back of whoever serves it."""
    place = block.payload_offset + block.header.payload_bytes // 2
    descriptor = os.open(block.file, os.O_RDWR | os.O_CLOEXEC)
    try:
        byte = os.pread(descriptor, 1, place)[0]
        os.pwrite(descriptor, bytes((byte ^ _FLIP,)), place)
        # The server reads past the page cache: the change must be on the device.
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class PackVandal:
    """Finds and damages packs of one store."""

    def __init__(self, settings: G4Section) -> None:
        """Reach the store as the services do."""
        endpoint = StoreEndpoint(
            url=settings.endpoint_url,
            region=settings.region,
            bucket=settings.bucket,
            timeout_seconds=settings.request_timeout_seconds,
            max_requests=1,
        )
        credentials = StoreCredentials(
            access_key=settings.access_key.get_secret_value(), secret_key=settings.secret_key.get_secret_value()
        )
        self._prefix = settings.prefix
        self._store = S3ObjectStore(endpoint, credentials)
        self._admin = S3BucketAdmin(endpoint, credentials)

    async def stored_bytes(self) -> int:
        """Bytes of all packs."""
        return sum([listed.object_bytes async for listed in self._admin.list_objects(packs_prefix(self._prefix))])

    async def find(self, wanted: Collection[ContentKey]) -> PackedBlock | None:
        """A block with one of these keys that is the last one of a pack and lies in no other pack."""
        packs: list[PackedBlock] = []
        async for listed in self._admin.list_objects(packs_prefix(self._prefix)):
            if ContentKey(parse_key(self._prefix, listed.key).pack) in wanted:
                head = await self._store.get_range(listed.key, 0, PACK_HEADER_BYTES)
                packs.append(PackedBlock(listed.key, decode_pack_header(head.data)))
        for candidate in packs:
            others = (other for other in packs if other is not candidate)
            if not any(candidate.key in other.pack.content_keys() for other in others):
                return candidate
        return None

    async def flip_byte(self, block: PackedBlock) -> None:
        """Flip a bit in the middle of the block's payload and put the object over the old one.

        Raises:
            StorageError: the object changed meanwhile.
        """
        pack = block.pack
        whole = await self._store.get_range(block.object_key, 0, pack.object_bytes)
        body = bytearray(whole.data)
        record = record_offset(pack.blocks - 1, pack.stride_bytes)
        body[record + HEADER_BYTES + (pack.stride_bytes - HEADER_BYTES) // 2] ^= _FLIP
        if await self._store.replace(block.object_key, bytes(body), whole.facts.etag) is not PutOutcome.STORED:
            raise StorageError("the object changed while it was being damaged", key=block.object_key)
