"""Copies between engine memory (G1) and the arena (G2), one generator step per block, run by the copy thread.

G1 to G2: guard as registered -> slot WRITING -> copy and hash in one pass -> guard still the same -> header, READY.
The engine does not wait for us, so a checksum alone would certify the bytes of whatever block lies there by then; the
guard tells. G2 to G1: header as asked -> guard of the destination -> copy and hash -> header unchanged -> checksum.
A mismatch counts as damage only if the source itself does not fit its header.

Invariants: a failed block never fails its neighbours; a slot becomes READY only with bytes that were the engine's
block from the first to the last byte of the copy; nothing is written without permission asked right before.
Threading: the generators run on the copy thread; they hold no state between jobs.
"""

import contextlib

from blockyard.core.errors import StaleGenerationError
from blockyard.core.vocabulary import Generation, ItemStatus
from blockyard.runtime.job_executor import JobControl
from blockyard.tiers.arena import Arena
from blockyard.tiers.checksum import copy_and_hash, payload_checksum
from blockyard.tiers.g1_mapping import G1Mapping
from blockyard.tiers.header import HeaderState
from blockyard.wire.worker_channel import Job
from blockyard_offload_worker.copy_names import source_status, target_header
from blockyard_offload_worker.copy_thread import Work
from blockyard_offload_worker.job_items import JobItem


def store_from_engine(
    job: Job, items: list[JobItem], control: JobControl, arena: Arena, engine: G1Mapping
) -> Work[list[ItemStatus]]:
    """Copy engine blocks into granted arena slots (G1 to G2); returns one status per item."""
    statuses: list[ItemStatus] = []
    for item in items:
        statuses.append(_store(job, item, control, arena, engine))
        yield
    return statuses


def load_to_engine(
    job: Job, items: list[JobItem], control: JobControl, arena: Arena, engine: G1Mapping, *, verify: bool
) -> Work[list[ItemStatus]]:
    """Copy arena slots into engine blocks (G2 to G1); returns one status per item.

    A block whose bytes do not match its header is marked BAD, so that no restart brings it back.
    """
    statuses: list[ItemStatus] = []
    for item in items:
        statuses.append(_load(job, item, control, arena, engine, verify))
        yield
    return statuses


def condemn(arena: Arena, slot: int, generation: int) -> None:
    """Mark an arena slot BAD, unless it was granted again meanwhile."""
    with contextlib.suppress(StaleGenerationError):
        arena.mark(slot, Generation(generation), HeaderState.BAD)


def _store(job: Job, item: JobItem, control: JobControl, arena: Arena, engine: G1Mapping) -> ItemStatus:
    if item.target >= arena.slots or item.source >= engine.blocks:
        return ItemStatus.SKIPPED
    permission = control.may_issue(item.index, arena.generation(item.target))
    if permission is not ItemStatus.OK:
        return permission
    if engine.guard(item.source) != item.source_mark:
        return ItemStatus.SOURCE_CHANGED
    payload = arena.begin_write(item.target, item.grant)[: job.payload_bytes]
    checksum = copy_and_hash(payload, engine.block(item.source)[: job.payload_bytes])
    if engine.guard(item.source) != item.source_mark:
        return ItemStatus.SOURCE_CHANGED
    arena.publish(target_header(job, item, arena.arena_id, checksum))
    return ItemStatus.OK


def _load(job: Job, item: JobItem, control: JobControl, arena: Arena, engine: G1Mapping, verify: bool) -> ItemStatus:
    if item.source >= arena.slots or item.target >= engine.blocks:
        return ItemStatus.SKIPPED
    permission = control.may_issue(item.index)
    if permission is not ItemStatus.OK:
        return permission
    reading = arena.read(item.source)
    status = source_status(job, item, reading)
    if status is ItemStatus.CORRUPT:
        condemn(arena, item.source, item.source_mark)
    if status is not ItemStatus.OK:
        return status
    if engine.guard(item.target) != item.target_mark:
        # The engine gave the block to somebody else after it asked: writing would destroy that one's bytes.
        return ItemStatus.SKIPPED
    payload = arena.payload(item.source, job.payload_bytes)
    checksum = copy_and_hash(engine.block(item.target)[: job.payload_bytes], payload)
    if not arena.is_current(item.source, item.source_mark):
        return ItemStatus.STALE
    expected = reading.header.checksum
    if not verify or checksum == expected:
        return ItemStatus.OK
    if payload_checksum(payload.data) == expected:
        # Somebody else wrote into the destination meanwhile: the stored copy is good and stays.
        return ItemStatus.IO_ERROR
    condemn(arena, item.source, item.source_mark)
    return ItemStatus.CORRUPT
