"""Messages between a block-manager and a worker (offload-worker or remote-tier): the JobChannel.

The block-manager connects and asks; the worker replies and pushes results, repeated until acknowledged. Delivery may
lose, repeat, delay and reorder: ids, epochs and generations carry the meaning, never the order of arrival.
Columns are packed bytes aligned with the items of a job: digests n × 32, keys and parents n × 16, positions and
indexes n × u32, generations and guards n × u64 (little-endian); an empty column means "not applicable".
"""

from typing import Final

import msgspec

from blockyard.core.jobs import JobPhase, Refusal
from blockyard.core.vocabulary import DEFAULT_TENANT, ItemStatus, JobEnd, JobKind, Lane, WorkerRole

_STATUSES: Final = {int(status): status for status in ItemStatus}


# --- parts --------------------------------------------------------------------------------------------------------
class ArenaInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Geometry of the G2 arena; its descriptor travels with the message."""

    arena: bytes
    """16 bytes: id of this arena."""
    slots: int
    stride_bytes: int
    bytes: int


class SlabInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Geometry of one G3 slab."""

    slab: bytes
    slots: int
    stride_bytes: int
    failed: bool = False


class RegionInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Where the pages of one layer lie in a rank's memory: page i at ``offset_bytes + i * stride_bytes``."""

    offset_bytes: int
    stride_bytes: int
    page_bytes: int


class RankInfo(msgspec.Struct, frozen=True, kw_only=True):
    """KV memory of one rank."""

    memory_bytes: int
    regions: tuple[tuple[RegionInfo, ...], ...]
    """Per group, in the order of ``MapEngine.groups``."""


class GroupLayout(msgspec.Struct, frozen=True, kw_only=True):
    """How rows of one group are laid out (see ``core.kv_groups``)."""

    group: int
    pages_per_row: int
    replicated: bool = False
    """One shard, read from rank 0, written to all ranks."""


class RunningJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job of an earlier life of the block-manager that has not ended yet, with its destinations."""

    epoch: int
    seq: int
    kind: JobKind
    destinations: bytes
    """n × u32 slot indexes in the destination tier."""


class Pack(msgspec.Struct, frozen=True, kw_only=True):
    """One G4 pack within a job: ``count`` items from ``first_item`` on belong to it."""

    pack: bytes
    first_item: int
    count: int
    first_position: int
    blocks: int
    """Blocks in the whole pack."""
    stride_bytes: int
    """Bytes from record to record."""


class Items(msgspec.Struct, frozen=True, kw_only=True):
    """Columns of a job's items."""

    count: int
    digests: bytes
    parents: bytes
    positions: bytes
    src_index: bytes = b""
    """G1: k engine blocks per item (see ``core.kv_groups``); G2, G3: slot; G4_GET: index in the pack."""
    src_generation: bytes = b""
    """G1: k guards per item; G2, G3: generation."""
    dst_index: bytes = b""
    dst_generation: bytes = b""


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """One transfer job. ``FREE`` jobs name their slots as destinations, with generations equal to the headers'."""

    epoch: int
    seq: int
    worker_epoch: int
    kind: JobKind
    lane: Lane
    ttl_ms: int
    identity: bytes
    purge_epoch: int = 0
    tenant: bytes = DEFAULT_TENANT
    group: int = 0
    payload_bytes: int
    items: Items
    mapping: int = 0
    """Engine mapping for G1 items."""
    packs: tuple[Pack, ...] = ()
    free_tier: int = 0
    """Tier of a ``FREE`` job (2 or 3)."""
    bad: bool = False
    """``FREE`` job that condemns instead of freeing: the header becomes BAD."""


class JobState(msgspec.Struct, frozen=True, kw_only=True):
    """State of one job at a worker; an unseen one is tombstoned."""

    epoch: int
    seq: int
    state: JobPhase


# --- requests -----------------------------------------------------------------------------------------------------
class Attach(msgspec.Struct, frozen=True, kw_only=True, tag="attach"):
    """Make the worker serve this block-manager; the arena's descriptor travels along where ``arena`` is set."""

    version: int
    instance: str
    epoch: int
    arena: ArenaInfo | None = None
    give_up: bytes = b""
    """Id of an arena that the worker replaces by a new, empty one if it is its own: somebody who stands still may
    still write there."""


class Submit(msgspec.Struct, frozen=True, kw_only=True, tag="submit"):
    """Hand over a job; repeating it is harmless."""

    job: Job
    settled_below: int
    """Lowest sequence number of this epoch that is not settled."""


class Ack(msgspec.Struct, frozen=True, kw_only=True, tag="ack"):
    """Results received; the worker may forget them."""

    epoch: int
    seqs: tuple[int, ...]
    settled_below: int


class Cancel(msgspec.Struct, frozen=True, kw_only=True, tag="cancel"):
    """End these jobs as soon as no write of theirs can follow."""

    epoch: int
    seqs: tuple[int, ...]


class Poll(msgspec.Struct, frozen=True, kw_only=True, tag="poll"):
    """What became of these jobs? Unseen ones are tombstoned."""

    epoch: int
    seqs: tuple[int, ...]


class Inventory(msgspec.Struct, frozen=True, kw_only=True, tag="inventory"):
    """List the slots of a tier from ``cursor`` on: those with a block, and those that were granted before.

    Slots that accepted jobs write are left out: they are neither the old block nor the new one yet.
    """

    tier: int
    cursor: int = 0
    max_records: int = 4_096


class MapEngine(msgspec.Struct, frozen=True, kw_only=True, tag="map_engine"):
    """Map an engine's memory; descriptors travel along: guard words first, then the KV memory of each rank."""

    mapping: int
    blocks: int
    """Engine blocks, each with a guard word."""
    groups: tuple[GroupLayout, ...]
    ranks: tuple[RankInfo, ...]
    executor: str = "mapped"
    """``mapped``: plain copies by the worker; ``nixl``: the same copies by NIXL."""


class UnmapEngine(msgspec.Struct, frozen=True, kw_only=True, tag="unmap_engine"):
    """Forget a mapping; answered when no job uses it any more."""

    mapping: int


class Find(msgspec.Struct, frozen=True, kw_only=True, tag="find"):
    """Longest-prefix lookup in the shared index (remote-tier only)."""

    identity: bytes
    group: int = 0
    keys: bytes
    """n × 16 content keys in chain order."""


# --- replies ------------------------------------------------------------------------------------------------------
class Attached(msgspec.Struct, frozen=True, kw_only=True, tag="attached"):
    """Reply to ``Attach``; the arena's descriptor travels along where the worker owns one."""

    version: int
    role: WorkerRole
    worker_epoch: int
    mover: str
    """Name of the mover in use, for metrics and logs."""
    arena: ArenaInfo | None = None
    slabs: tuple[SlabInfo, ...] = ()
    running: tuple[RunningJob, ...] = ()


class Accepted(msgspec.Struct, frozen=True, kw_only=True, tag="accepted"):
    """The job is queued, running, or ended and its result will be pushed again."""


class Busy(msgspec.Struct, frozen=True, kw_only=True, tag="busy"):
    """The queue is full; nothing was taken."""

    retry_ms: int


class Refused(msgspec.Struct, frozen=True, kw_only=True, tag="refused"):
    """The job will never run."""

    reason: Refusal


class JobStates(msgspec.Struct, frozen=True, kw_only=True, tag="job_states"):
    """Reply to ``Cancel`` and ``Poll``."""

    states: tuple[JobState, ...]


class InventoryPage(msgspec.Struct, frozen=True, kw_only=True, tag="inventory_page"):
    """One page of slots: n × 184 bytes, the slot header's bytes 8-135 followed by its bytes 184-239 (``tiers.header``).

    Only READY records are blocks; the others are listed for their generation, and their names are zero.
    """

    worker_epoch: int
    tier: int
    records: bytes
    cursor: int
    end: bool


class Found(msgspec.Struct, frozen=True, kw_only=True, tag="index_found"):
    """Reply to ``Find``: per key an ``Availability`` byte (MISS, G4 or UNKNOWN) and its locator.

    A locator is 32 bytes: pack id 16, index u8, blocks u8, zero u16, stride u32, zero u64. The first position of the
    pack is that of the block minus the index.
    """

    availability: bytes
    locators: bytes


class WorkerDone(msgspec.Struct, frozen=True, kw_only=True, tag="done"):
    """Reply of requests without a result of their own."""


# --- pushes -------------------------------------------------------------------------------------------------------
class JobResult(msgspec.Struct, frozen=True, kw_only=True, tag="job_result"):
    """End of a job: one ``ItemStatus`` byte per item, aligned with the items of the request."""

    epoch: int
    seq: int
    worker_epoch: int
    end: JobEnd
    status: bytes
    index_pending: bool = False
    """G4_PUT: the objects are stored but the index could not be written yet."""

    def statuses(self) -> list[ItemStatus]:
        """Item results as enum values; one that this version does not know is no success: UNKNOWN."""
        return [_STATUSES.get(value, ItemStatus.UNKNOWN) for value in self.status]


Request = Attach | Submit | Ack | Cancel | Poll | Inventory | MapEngine | UnmapEngine | Find
Reply = Attached | Accepted | Busy | Refused | JobStates | InventoryPage | Found | WorkerDone
Push = JobResult
