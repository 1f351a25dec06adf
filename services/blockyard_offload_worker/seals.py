"""Slots of the arena that ranks write and read themselves: certified after the write, verified before the read.

Seal: the ranks have begun the write under the grant and are done with it -> hash of the whole payload -> header, READY.
The ranks fill what lies behind their row with zeros, since lower tiers move whole slots.
Check: header as asked -> hash of the payload -> header unchanged -> checksum as in the header. No byte is moved.
Invariants: a slot becomes READY only under the very grant that the ranks wrote under; a damaged slot becomes BAD, so
that no restart brings it back; a failed slot never fails its neighbours.
Threading: the generators run on the copy thread; they hold no state between jobs.
"""

from blockyard.core.vocabulary import ItemStatus
from blockyard.runtime.job_executor import JobControl
from blockyard.tiers.arena import Arena
from blockyard.tiers.checksum import payload_checksum
from blockyard.tiers.header import HeaderVerdict
from blockyard.wire.worker_channel import Job
from blockyard_offload_worker.copy_names import source_status, target_header
from blockyard_offload_worker.copy_thread import Work
from blockyard_offload_worker.engine_copies import condemn
from blockyard_offload_worker.job_items import SealItem, SourceSlot, check_items, seal_items


def seal_slots(job: Job, control: JobControl, arena: Arena) -> Work[list[ItemStatus]]:
    """Make slots READY whose payloads ranks have written; returns one status per item."""
    statuses: list[ItemStatus] = []
    for item in seal_items(job.items):
        statuses.append(_seal(job, item, control, arena))
        yield
    return statuses


def check_slots(job: Job, control: JobControl, arena: Arena, *, verify: bool) -> Work[list[ItemStatus]]:
    """Compare slots with what the job asks for, and their payloads with their checksums; one status per item."""
    statuses: list[ItemStatus] = []
    for item in check_items(job.items):
        statuses.append(_check(job, item, control, arena, verify=verify))
        yield
    return statuses


def _seal(job: Job, item: SealItem, control: JobControl, arena: Arena) -> ItemStatus:
    if item.target >= arena.slots:
        return ItemStatus.SKIPPED
    permission = control.may_issue(item.index, arena.generation(item.target))
    if permission is not ItemStatus.OK:
        return permission
    if arena.read(item.target).verdict is not HeaderVerdict.WRITING:
        return ItemStatus.STALE
    checksum = payload_checksum(arena.payload(item.target, job.payload_bytes).data)
    arena.publish(target_header(job, item, arena.arena_id, checksum))
    return ItemStatus.OK


def _check(job: Job, item: SourceSlot, control: JobControl, arena: Arena, *, verify: bool) -> ItemStatus:
    if item.source >= arena.slots:
        return ItemStatus.SKIPPED
    permission = control.may_issue(item.index)
    if permission is not ItemStatus.OK:
        return permission
    reading = arena.read(item.source)
    status = source_status(job, item, reading)
    if status is ItemStatus.OK and verify:
        checksum = payload_checksum(arena.payload(item.source, job.payload_bytes).data)
        if not arena.is_current(item.source, item.source_mark):
            return ItemStatus.STALE
        status = ItemStatus.OK if checksum == reading.header.checksum else ItemStatus.CORRUPT
    if status is ItemStatus.CORRUPT:
        condemn(arena, item.source, item.source_mark)
    return status
