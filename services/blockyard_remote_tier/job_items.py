"""The items of G4 jobs as values, grouped by pack.

Invariants: columns were checked by the worker server, so every item is there; what is checked here is what only this
worker knows: the geometry of packs. Threading: frozen values.
"""

from dataclasses import dataclass

import numpy as np

from blockyard.core.errors import RequestError
from blockyard.core.pack_plan import MAX_PACK_BLOCKS, PackGeometry
from blockyard.core.stored_key import StoredKey, stored_key
from blockyard.core.vocabulary import (
    DIGEST_BYTES,
    KEY_BYTES,
    ChainDigest,
    ContentKey,
    Epoch,
    Generation,
    GroupId,
    IdentityDigest,
    JobSeq,
    PackId,
    TenantDigest,
    key_of,
)
from blockyard.tiers.g4_packs import MAX_PACK_BYTES, PackAddress, WantedRecord, pack_bytes
from blockyard.wire.worker_channel import Job, Pack


@dataclass(frozen=True, slots=True)
class PackItem:
    """One block of a pack job.

    Attributes:
        item: place in the job.
        index: record within the pack.
        digest: chain digest of the block.
        parent: content key of the block before it.
        position: place in the chain.
        slot: arena slot: the source of a put, the destination of a get.
        generation: generation that the slot has (put) or was granted (get).
    """

    item: int
    index: int
    digest: ChainDigest
    parent: ContentKey
    position: int
    slot: int
    generation: Generation

    @property
    def key(self) -> ContentKey:
        """Content key of the block."""
        return key_of(self.digest)


@dataclass(frozen=True, slots=True, kw_only=True)
class PackWork:
    """One pack of a job and the items that belong to it."""

    address: PackAddress
    identity: IdentityDigest
    tenant: TenantDigest
    group: GroupId
    payload_bytes: int
    first_position: int
    blocks: int
    stride_bytes: int
    bm_epoch: Epoch
    job_seq: JobSeq
    items: tuple[PackItem, ...]

    @property
    def pack(self) -> PackId:
        """Id of the pack."""
        return self.address.pack

    @property
    def object_bytes(self) -> int:
        """Length of the whole object."""
        return pack_bytes(self.blocks, self.stride_bytes)

    def stored_key(self, item: PackItem) -> StoredKey:
        """Key of the entry of ``item`` in the index."""
        return stored_key(item.key, self.group)

    def wanted(self, item: PackItem) -> WantedRecord:
        """What the record of ``item`` must say."""
        return WantedRecord(item.index, self.identity, item.digest, item.position, self.group, self.payload_bytes)


def put_work(job: Job, geometry: PackGeometry) -> list[PackWork]:
    """Packs of a ``G4_PUT`` job, in order.

    Raises:
        RequestError: a pack is not the whole run of blocks that its id names, or is cut elsewhere than the store wants.
    """
    works = [_work(job, pack, slots=job.items.src_index, generations=job.items.src_generation) for pack in job.packs]
    for work in works:
        if geometry.segment_start(work.first_position) != work.first_position or work.blocks > geometry.blocks_per_pack:
            raise RequestError("the pack is cut elsewhere than the store wants", first_position=work.first_position)
        positions = [item.position - work.first_position for item in work.items]
        if len(work.items) != work.blocks or positions != list(range(work.blocks)):
            raise RequestError("a put names all blocks of its pack in order", pack=work.pack.hex())
        if PackId(work.stored_key(work.items[-1])) != work.pack:
            raise RequestError("the id of a pack is the key of its last block", pack=work.pack.hex())
        if any(after.parent != before.key for before, after in zip(work.items, work.items[1:], strict=False)):
            raise RequestError("the blocks of a pack follow each other", pack=work.pack.hex())
    return works


def get_work(job: Job) -> list[PackWork]:
    """Packs of a ``G4_GET`` job.

    Raises:
        RequestError: an item lies outside of its pack, or the geometry of a pack makes no sense.
    """
    works = [_work(job, pack, slots=job.items.dst_index, generations=job.items.dst_generation) for pack in job.packs]
    for work in works:
        if any(item.index >= work.blocks for item in work.items):
            raise RequestError("an item lies outside of its pack", pack=work.pack.hex(), blocks=work.blocks)
    return works


def _work(job: Job, pack: Pack, *, slots: bytes, generations: bytes) -> PackWork:
    if not 0 < pack.blocks <= MAX_PACK_BLOCKS or pack_bytes(pack.blocks, pack.stride_bytes) > MAX_PACK_BYTES:
        raise RequestError("a pack of this size is not possible", blocks=pack.blocks, stride=pack.stride_bytes)
    if pack.stride_bytes != PackGeometry(job.payload_bytes, MAX_PACK_BYTES).stride_bytes:
        raise RequestError("the stride does not follow from the payload", stride=pack.stride_bytes)
    return PackWork(
        address=PackAddress.of(job.tenant, job.purge_epoch, job.identity, pack.pack),
        identity=IdentityDigest(job.identity),
        tenant=TenantDigest(job.tenant),
        group=GroupId(job.group),
        payload_bytes=job.payload_bytes,
        first_position=pack.first_position,
        blocks=pack.blocks,
        stride_bytes=pack.stride_bytes,
        bm_epoch=Epoch(job.epoch),
        job_seq=JobSeq(job.seq),
        items=tuple(_items(job, pack, slots, generations)),
    )


def _items(job: Job, pack: Pack, slots: bytes, generations: bytes) -> list[PackItem]:
    digests, parents = job.items.digests, job.items.parents
    positions = np.frombuffer(job.items.positions, dtype="<u4")
    slot_of = np.frombuffer(slots, dtype="<u4")
    generation_of = np.frombuffer(generations, dtype="<u8")
    # A put holds the records in the order of its items; a get says which record each item is.
    stored = np.frombuffer(job.items.src_index, dtype="<u4") if slots is job.items.dst_index else None
    return [
        PackItem(
            item=item,
            index=item - pack.first_item if stored is None else int(stored[item]),
            digest=ChainDigest(digests[item * DIGEST_BYTES : (item + 1) * DIGEST_BYTES]),
            parent=ContentKey(parents[item * KEY_BYTES : (item + 1) * KEY_BYTES]),
            position=int(positions[item]),
            slot=int(slot_of[item]),
            generation=Generation(int(generation_of[item])),
        )
        for item in range(pack.first_item, pack.first_item + pack.count)
    ]
