"""Columns of a job message as numbers, and the check that they can be a job at all.

In engine memory an item is a row of k pages, so those columns have k entries per item; k is told by their length, and
whether it is the k of the mapping is for the executor to say.
Invariants: ``check_job`` passes only where every column that the kind of job needs is there and aligned with the
items, so that executors may index without looking.
Threading: pure functions.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from blockyard.core.block_facts import MAX_GROUP
from blockyard.core.errors import RequestError
from blockyard.core.job_tickets import JobTicket
from blockyard.core.jobs import JobId, destination_tier
from blockyard.core.kv_groups import NO_PAGE
from blockyard.core.vocabulary import DEFAULT_TENANT, DIGEST_BYTES, KEY_BYTES, Epoch, Generation, JobKind, JobSeq
from blockyard.wire.codec import MAX_PAGES_PER_CALL
from blockyard.wire.trace_parent import NO_TRACE, TraceParent
from blockyard.wire.worker_channel import Job

MAX_ITEMS: Final = 4_096
_INDEX_BYTES: Final = 4
_GENERATION_BYTES: Final = 8
_TENANT_BYTES: Final = len(DEFAULT_TENANT)
_FROM_SLOT: Final = (JobKind.G2_G1, JobKind.G2_G3, JobKind.G3_G2, JobKind.G4_PUT, JobKind.CHECK)
_INTO_SLOT: Final = (JobKind.G1_G2, JobKind.G2_G3, JobKind.G3_G2, JobKind.G4_GET, JobKind.FREE, JobKind.SEAL)
_MOST_GENERATION: Final = (1 << 56) - 1
"""A slot header keeps the generation beside the state in one 64-bit word."""
_WITH_PACKS: Final = (JobKind.G4_PUT, JobKind.G4_GET)


def check_job(job: Job) -> None:
    """Refuse a job whose columns do not fit its kind.

    Raises:
        RequestError: names the column.
    """
    items = job.items
    if not 1 <= items.count <= MAX_ITEMS:
        raise RequestError("a job has at least one item and not too many", items=items.count, limit=MAX_ITEMS)
    if job.payload_bytes < 1:
        raise RequestError("a payload has at least one byte", payload_bytes=job.payload_bytes)
    _check_names(job)
    _need("digests", items.digests, items.count, DIGEST_BYTES, needed=job.kind is not JobKind.FREE)
    _need("parents", items.parents, items.count, KEY_BYTES, needed=job.kind is not JobKind.FREE)
    _need("positions", items.positions, items.count, _INDEX_BYTES, needed=job.kind is not JobKind.FREE)
    _check_source(job)
    _check_target(job)
    if job.kind in _INTO_SLOT and max(destination_generations(job)) > _MOST_GENERATION:
        raise RequestError("a generation has at most 56 bits", column="dst_generation")
    if job.kind is JobKind.FREE and destination_tier(job.kind, job.free_tier) is None:
        raise RequestError("only slots of G2 and G3 can be freed", free_tier=job.free_tier)
    if job.kind in _WITH_PACKS:
        _check_packs(job)


def _check_source(job: Job) -> None:
    items = job.items
    if job.kind is JobKind.G1_G2:
        pages = _check_pages("src", items.src_index, items.src_generation, items.count)
        if NO_PAGE in pages:
            raise RequestError("a row is stored whole: every page of it is named", column="src_index")
        return
    source = job.kind in _FROM_SLOT
    _need("src_index", items.src_index, items.count, _INDEX_BYTES, needed=source or job.kind is JobKind.G4_GET)
    _need("src_generation", items.src_generation, items.count, _GENERATION_BYTES, needed=source)


def _check_target(job: Job) -> None:
    items = job.items
    if job.kind is JobKind.G2_G1:
        pages = _check_pages("dst", items.dst_index, items.dst_generation, items.count)
        written = pages[pages != NO_PAGE]
        # Not np.unique, whose first call imports numpy.ma: on a busy machine the event loop would stand for a second.
        written.sort()
        if (written[1:] == written[:-1]).any():
            raise RequestError("a job writes no destination twice", column="dst_index")
        return
    target = job.kind in _INTO_SLOT
    _need("dst_index", items.dst_index, items.count, _INDEX_BYTES, needed=target)
    _need("dst_generation", items.dst_generation, items.count, _GENERATION_BYTES, needed=target)
    if target and len(destination_slots(job)) != items.count:
        raise RequestError("a job writes no destination twice", column="dst_index")


def _check_pages(side: str, indexes: bytes, guards: bytes, count: int) -> npt.NDArray[np.uint32]:
    """Pages of engine memory: equally many per item, each with its guard."""
    pages = len(indexes) // _INDEX_BYTES
    whole = pages and not len(indexes) % _INDEX_BYTES and not pages % count
    if not whole or pages > MAX_PAGES_PER_CALL:
        raise RequestError(
            "an item in engine memory has one or more pages, and each as many",
            column=f"{side}_index",
            bytes=len(indexes),
            items=count,
            limit_pages=MAX_PAGES_PER_CALL,
        )
    _need(f"{side}_generation", guards, pages, _GENERATION_BYTES, needed=True)
    return np.frombuffer(indexes, dtype="<u4")


def _check_names(job: Job) -> None:
    """Names go into fixed fields of headers: one of another width would change there, or end a job half done."""
    for name, value, width in (("identity", job.identity, DIGEST_BYTES), ("tenant", job.tenant, _TENANT_BYTES)):
        if len(value) != width:
            raise RequestError("a name has another length", field=name, bytes=len(value), expected=width)
    if not 0 <= job.group <= MAX_GROUP:
        raise RequestError("a group is an unsigned 16-bit integer", field="group", group=job.group)


def ticket_of(job: Job, trace: TraceParent = NO_TRACE) -> JobTicket[Job]:
    """What the ledger must know of a job, and the trace context that it came with."""
    return JobTicket(
        job=JobId(Epoch(job.epoch), JobSeq(job.seq)),
        worker_epoch=Epoch(job.worker_epoch),
        kind=job.kind,
        lane=job.lane,
        ttl_ms=job.ttl_ms,
        items=job.items.count,
        payload=job,
        trace=trace,
    )


def destination_slots(job: Job) -> frozenset[int]:
    """Indexes of the destinations; empty where the kind of job has none."""
    return frozenset(np.frombuffer(job.items.dst_index, dtype="<u4").tolist())


def destination_generations(job: Job) -> Sequence[Generation]:
    """Generations granted to the destinations, one per item; empty where the kind of job has none."""
    return [Generation(value) for value in np.frombuffer(job.items.dst_generation, dtype="<u8").tolist()]


def _need(column: str, data: bytes, count: int, width: int, *, needed: bool) -> None:
    if len(data) != count * width and (data or needed):
        raise RequestError("a column does not fit the items", column=column, bytes=len(data), expected=count * width)


def _check_packs(job: Job) -> None:
    item = 0
    for pack in job.packs:
        if pack.first_item != item or pack.count < 1 or len(pack.pack) != KEY_BYTES:
            raise RequestError("packs must cover the items in order", first_item=pack.first_item, expected=item)
        item += pack.count
    if item != job.items.count:
        raise RequestError("packs must cover the items in order", covered=item, items=job.items.count)
