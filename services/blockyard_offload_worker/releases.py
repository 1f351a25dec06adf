"""Ending the life of blocks on purpose: headers become FREE, or BAD where the bytes are damaged.

Evicting from host memory only changes the table; clearing, purging and condemning must reach the header too, since a
restart would bring the block back otherwise.
Invariants: only the generation that was meant is touched. Threading: the arena part runs on the copy thread.
"""

from blockyard.core.vocabulary import ItemStatus
from blockyard.runtime.job_executor import JobControl
from blockyard.tiers.arena import Arena
from blockyard.tiers.header import HeaderState
from blockyard.wire.worker_channel import Job
from blockyard_offload_worker.copy_thread import Work
from blockyard_offload_worker.job_items import FreeItem


def free_in_arena(job: Job, items: list[FreeItem], control: JobControl, arena: Arena) -> Work[list[ItemStatus]]:
    """Mark arena slots FREE or BAD; returns one status per item."""
    state = HeaderState.BAD if job.bad else HeaderState.FREE
    statuses: list[ItemStatus] = []
    for item in items:
        if item.slot >= arena.slots:
            statuses.append(ItemStatus.SKIPPED)
            continue
        permission = control.may_issue(item.index, arena.generation(item.slot))
        if permission is ItemStatus.OK:
            arena.mark(item.slot, item.generation, state)
        statuses.append(permission)
    yield
    return statuses
