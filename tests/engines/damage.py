"""Damage done on purpose to every copy of a tier: one payload byte flipped in each block.

Threading: functions block for a moment; the one that reaches the object store is for an event loop.
"""

import os
from pathlib import Path
from typing import Final

from blockyard.cli.slab_damage import flip_slab_byte, slab_blocks
from blockyard.runtime.settings import G4Section
from blockyard.tiers.arena import Arena
from blockyard.tiers.bucket_admin import S3BucketAdmin
from blockyard.tiers.g4_packs import PACK_HEADER_BYTES, decode_pack_header, packs_prefix, record_offset
from blockyard.tiers.header import HEADER_BYTES
from blockyard.tiers.object_store import PutOutcome, S3ObjectStore, StoreCredentials, StoreEndpoint

_FLIP: Final = 0x10


def damage_slabs(folder: Path, *, most: int = 1 << 30) -> int:
    """Flip a byte in blocks of the slab files; returns how many."""
    blocks = slab_blocks(folder)[:most]
    for block in blocks:
        flip_slab_byte(block)
    return len(blocks)


def damage_arena(worker: int) -> int:
    """Flip a byte in every block of the arena that the worker with this process id has; returns how many."""
    for link in Path(f"/proc/{worker}/fd").iterdir():
        if "blockyard-arena" in os.readlink(link):
            break
    else:
        return 0
    damaged = 0
    with Arena.adopt(os.open(link, os.O_RDWR | os.O_CLOEXEC)) as arena:
        for slot in range(arena.slots):
            if arena.read(slot).verdict.is_block:
                arena.payload(slot)[7] ^= _FLIP
                damaged += 1
    return damaged


async def damage_packs(settings: G4Section) -> int:
    """Flip a byte in every block of every pack in the store; returns how many."""
    endpoint = StoreEndpoint(
        url=settings.endpoint_url,
        region=settings.region,
        bucket=settings.bucket,
        timeout_seconds=settings.request_timeout_seconds,
        max_requests=1,
    )
    account = StoreCredentials(
        access_key=settings.access_key.get_secret_value(), secret_key=settings.secret_key.get_secret_value()
    )
    store, admin = S3ObjectStore(endpoint, account), S3BucketAdmin(endpoint, account)
    damaged = 0
    async for listed in admin.list_objects(packs_prefix(settings.prefix)):
        whole = await store.get_range(listed.key, 0, listed.object_bytes)
        body, pack = bytearray(whole.data), decode_pack_header(whole.data[:PACK_HEADER_BYTES])
        for index in range(pack.blocks):
            body[record_offset(index, pack.stride_bytes) + HEADER_BYTES + 7] ^= _FLIP
        if await store.replace(listed.key, bytes(body), whole.facts.etag) is PutOutcome.STORED:
            damaged += pack.blocks
    return damaged
