"""Slots that ranks wrote become blocks only as they are, and slots that ranks are to read hold what they should."""

from collections.abc import Iterator

import numpy as np
import pytest

from blockyard.core.vocabulary import BlockId, Generation, ItemStatus, JobKind
from blockyard.testing.worker_jobs import Move, ScriptedControl, named_digest, transfer_job
from blockyard.tiers.arena import Arena
from blockyard.tiers.checksum import payload_checksum
from blockyard.tiers.header import HeaderState
from blockyard.wire.worker_channel import Job
from blockyard_offload_worker.copy_thread import Work
from blockyard_offload_worker.seals import check_slots, seal_slots

SIZE = 8_192
A = named_digest("a")


@pytest.fixture
def arena() -> Iterator[Arena]:
    with Arena.create(4, SIZE) as arena:
        yield arena


def result(work: Work[list[ItemStatus]]) -> list[ItemStatus]:
    while True:
        try:
            next(work)
        except StopIteration as end:
            statuses: list[ItemStatus] = end.value
            return statuses


def seal(arena: Arena, slot: int = 1, generation: int = 5) -> ItemStatus:
    job = transfer_job(JobKind.SEAL, [Move(A, target=slot, target_mark=generation)], payload_bytes=SIZE)
    return result(seal_slots(job, ScriptedControl(job), arena))[0]


def check(arena: Arena, job: Job | None = None, *, verify: bool = True) -> ItemStatus:
    job = job or transfer_job(JobKind.CHECK, [Move(A, source=1, source_mark=5)], payload_bytes=SIZE)
    return result(check_slots(job, ScriptedControl(job), arena, verify=verify))[0]


def written(arena: Arena) -> None:
    arena.begin_write(BlockId(1), Generation(5))[:] = np.arange(SIZE) % 251


def test_a_slot_that_ranks_wrote_becomes_a_block_with_the_checksum_of_its_bytes(arena: Arena) -> None:
    written(arena)
    assert seal(arena) is ItemStatus.OK
    header = arena.read(1).header
    assert (header.digest, header.generation) == (A, 5)
    assert header.checksum == payload_checksum(arena.payload(1).data)
    assert check(arena) is ItemStatus.OK


def test_a_slot_that_no_rank_began_to_write_or_that_is_ready_already_is_not_sealed(arena: Arena) -> None:
    assert seal(arena) is ItemStatus.SKIPPED
    written(arena)
    assert seal(arena) is ItemStatus.OK
    assert seal(arena) is ItemStatus.STALE
    assert seal(arena, slot=9) is ItemStatus.SKIPPED


def test_a_slot_with_other_bytes_than_its_checksum_is_found_before_a_rank_reads_it(arena: Arena) -> None:
    written(arena)
    seal(arena)
    arena.payload(1)[77] ^= 1
    assert check(arena, verify=False) is ItemStatus.OK
    assert check(arena) is ItemStatus.CORRUPT
    assert arena.read(1).verdict.name == HeaderState.BAD.name


def test_a_slot_that_was_granted_again_is_stale_and_no_damage(arena: Arena) -> None:
    written(arena)
    seal(arena)
    arena.begin_write(BlockId(1), Generation(6))
    assert check(arena) is ItemStatus.STALE
