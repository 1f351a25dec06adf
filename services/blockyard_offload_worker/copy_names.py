"""What a stored copy must say about itself: compared before its bytes are used, written after they arrived.

Invariants: a header is compared with everything the job asked for (state, generation, identity, digest, group,
length), so a slot that was granted to another block meanwhile is told from one that holds damaged bytes.
Threading: pure functions over values.
"""

from typing import Protocol

from blockyard.core.vocabulary import (
    BlockId,
    ChainDigest,
    ContentKey,
    Epoch,
    Generation,
    GroupId,
    IdentityDigest,
    ItemStatus,
    JobSeq,
    TenantDigest,
)
from blockyard.tiers.header import HeaderReading, HeaderVerdict, SlotHeader
from blockyard.wire.worker_channel import Job


class SourceItem(Protocol):
    """Item whose source is a slot."""

    @property
    def digest(self) -> ChainDigest:
        """Chain digest of the block."""
        ...

    @property
    def source_mark(self) -> int:
        """Generation that the slot must have."""
        ...


class TargetItem(Protocol):
    """Item whose target is a slot."""

    @property
    def digest(self) -> ChainDigest:
        """Chain digest of the block."""
        ...

    @property
    def parent(self) -> ContentKey:
        """Content key of the block before it in the chain."""
        ...

    @property
    def position(self) -> int:
        """Place in the chain."""
        ...

    @property
    def target(self) -> int:
        """The slot."""
        ...

    @property
    def target_mark(self) -> int:
        """Generation granted to it."""
        ...


def source_status(job: Job, item: SourceItem, reading: HeaderReading) -> ItemStatus:
    """``OK`` where the slot that was read holds the block that ``item`` asks for; else why not.

    A damaged header is ``CORRUPT``: its slot cannot be trusted whatever its bytes are. A slot of another generation or
    state was given away after the job was planned, which is ``STALE`` and no damage.
    """
    if reading.verdict.is_damaged:
        return ItemStatus.CORRUPT
    if reading.generation != item.source_mark:
        return ItemStatus.STALE
    if reading.verdict is HeaderVerdict.BAD:
        return ItemStatus.CORRUPT
    if not reading.verdict.is_block:
        return ItemStatus.STALE
    header = reading.header
    found = (header.identity, header.digest, header.group, header.payload_bytes)
    if found != (job.identity, item.digest, job.group, job.payload_bytes):
        return ItemStatus.IDENTITY_MISMATCH
    return ItemStatus.OK


def target_header(job: Job, item: TargetItem, file_id: bytes, checksum: bytes) -> SlotHeader:
    """Header of the copy that ``item`` makes in the file ``file_id``, with the generation it was granted."""
    return SlotHeader(
        generation=Generation(item.target_mark),
        identity=IdentityDigest(job.identity),
        digest=item.digest,
        parent=item.parent,
        position=item.position,
        payload_bytes=job.payload_bytes,
        checksum=checksum,
        slot=BlockId(item.target),
        file_id=file_id,
        bm_epoch=Epoch(job.epoch),
        worker_epoch=Epoch(job.worker_epoch),
        job_seq=JobSeq(job.seq),
        tenant=TenantDigest(job.tenant),
        group=GroupId(job.group),
    )
