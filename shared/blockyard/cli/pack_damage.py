"""Damage done on purpose to a pack in the object store: one payload byte flipped.

The proof run uses it to show that damage is found. Only a payload byte of a whole, valid block is touched.
Threading: one event loop.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from blockyard.core.errors import StorageError
from blockyard.core.vocabulary import ContentKey
from blockyard.runtime.settings import G4Section
from blockyard.tiers.bucket_admin import S3BucketAdmin
from blockyard.tiers.g4_packs import (
    PACK_HEADER_BYTES,
    PackHeader,
    decode_pack_header,
    packs_prefix,
    parse_key,
    record_offset,
)
from blockyard.tiers.header import HEADER_BYTES
from blockyard.tiers.object_store import PutOutcome, S3ObjectStore, StoreCredentials, StoreEndpoint

_FLIP: Final = 0x10


@dataclass(frozen=True, slots=True)
class PackedBlock:
    """The last block of a pack in the object store."""

    object_key: str
    pack: PackHeader

    @property
    def key(self) -> ContentKey:
        """Its content key."""
        return self.pack.content_keys()[-1]


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
        """Size of all packs."""
        return sum([listed.object_bytes async for listed in self._admin.list_objects(packs_prefix(self._prefix))])

    async def find(self, wanted: Collection[ContentKey]) -> PackedBlock | None:
        """A block of group 0 with one of these keys that is the last one of a pack and lies in no other pack."""
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
