"""Copies between engine memory and the arena: what is checked, and what each failure leaves behind."""

from collections.abc import Iterator

import numpy as np
import pytest

from blockyard.connectors.engine_memory import EngineMemory
from blockyard.core.errors import TransferError
from blockyard.core.vocabulary import EngineBlockId, Generation, GroupId, ItemStatus, JobKind
from blockyard.testing.rank_engine import map_fds, map_request
from blockyard.testing.worker_jobs import (
    TEST_IDENTITY,
    TEST_TENANT,
    Move,
    ScriptedControl,
    job_payload,
    named_digest,
    transfer_job,
)
from blockyard.tiers.arena import Arena
from blockyard.tiers.checksum import ByteArray
from blockyard.tiers.g1_mapping import G1Mapping, PageColumn
from blockyard.tiers.header import HeaderVerdict
from blockyard_offload_worker.copy_thread import Work
from blockyard_offload_worker.engine_copies import EngineCopies, MappedEngine
from blockyard_offload_worker.mapped_copies import MappedCopies

SIZE = 8_192
A, B = named_digest("a"), named_digest("b")


@pytest.fixture
def arena() -> Iterator[Arena]:
    with Arena.create(slots=4, payload_bytes=SIZE) as arena:
        yield arena


@pytest.fixture
def memory() -> Iterator[EngineMemory]:
    with EngineMemory(blocks=4, block_bytes=SIZE) as memory:
        yield memory


@pytest.fixture
def engine(memory: EngineMemory) -> Iterator[MappedEngine]:
    mapping = G1Mapping(map_request(memory), map_fds(memory))
    engine = MappedEngine(mapping, MappedCopies(mapping))
    yield engine
    engine.close()


def ended(work: Work[list[ItemStatus]]) -> list[ItemStatus]:
    while True:
        try:
            next(work)
        except StopIteration as end:
            statuses: list[ItemStatus] = end.value
            return statuses


def store(arena: Arena, engine: MappedEngine, *moves: Move) -> list[ItemStatus]:
    job = transfer_job(JobKind.G1_G2, moves, payload_bytes=SIZE)
    return ended(EngineCopies(job, ScriptedControl(job), arena, engine).store())


def load(arena: Arena, engine: MappedEngine, *moves: Move, verify: bool = True) -> list[ItemStatus]:
    job = transfer_job(JobKind.G2_G1, moves, payload_bytes=SIZE)
    return ended(EngineCopies(job, ScriptedControl(job), arena, engine).load(verify=verify))


def test_a_stored_block_has_the_engines_bytes_and_a_full_header(
    arena: Arena, engine: MappedEngine, memory: EngineMemory
) -> None:
    memory.view(EngineBlockId(1))[:] = job_payload(A, SIZE)
    memory.view(EngineBlockId(2))[:] = job_payload(B, SIZE)
    assert store(arena, engine, Move(A, 1, 0, 3, 5), Move(B, 2, 0, 0, 9)) == [ItemStatus.OK] * 2
    header = arena.read(0).header
    assert np.array_equal(arena.payload(0), job_payload(B, SIZE))
    assert (header.identity, header.tenant, header.digest) == (TEST_IDENTITY, TEST_TENANT, B)
    assert (header.parent, header.position, header.generation) == (A[:16], 1, 9)
    assert (header.bm_epoch, header.worker_epoch, header.job_seq) == (7, 1, 1)


def test_a_guard_that_differs_before_the_copy_leaves_the_slot_untouched(
    arena: Arena, engine: MappedEngine, memory: EngineMemory
) -> None:
    memory.raise_guards([EngineBlockId(1)])
    assert store(arena, engine, Move(A, 1, 0, 0, 1)) == [ItemStatus.SOURCE_CHANGED]
    assert arena.read(0).verdict is HeaderVerdict.EMPTY


def test_a_stale_grant_is_skipped_and_its_neighbour_is_stored(arena: Arena, engine: MappedEngine) -> None:
    store(arena, engine, Move(A, 0, 0, 0, 5))
    assert store(arena, engine, Move(B, 1, 0, 0, 5), Move(B, 1, 0, 1, 1)) == [ItemStatus.SKIPPED, ItemStatus.OK]
    assert arena.read(0).header.digest == A


def test_indexes_beyond_arena_or_engine_are_skipped(arena: Arena, engine: MappedEngine) -> None:
    assert store(arena, engine, Move(A, 9, 0, 0, 1), Move(A, 0, 0, 9, 1)) == [ItemStatus.SKIPPED] * 2
    assert load(arena, engine, Move(A, 9, 1, 0, 0), Move(A, 0, 1, 9, 0)) == [ItemStatus.SKIPPED] * 2


def test_a_block_that_is_reused_during_the_copy_is_never_ready(
    arena: Arena, engine: MappedEngine, memory: EngineMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = arena.begin_write

    def reused(slot: int, generation: Generation) -> object:
        memory.raise_guards([EngineBlockId(1)])
        return real(slot, generation)

    monkeypatch.setattr(Arena, "begin_write", lambda _, slot, generation: reused(slot, generation))
    assert store(arena, engine, Move(A, 1, 0, 0, 1)) == [ItemStatus.SOURCE_CHANGED]
    assert arena.read(0).verdict is HeaderVerdict.WRITING


def test_a_loaded_block_has_the_stored_bytes(arena: Arena, engine: MappedEngine, memory: EngineMemory) -> None:
    memory.view(EngineBlockId(1))[:] = job_payload(A, SIZE)
    store(arena, engine, Move(A, 1, 0, 2, 1))
    assert load(arena, engine, Move(A, 2, 1, 3, 0)) == [ItemStatus.OK]
    assert np.array_equal(memory.view(EngineBlockId(3)), job_payload(A, SIZE))


def test_a_slot_that_was_granted_again_is_stale(arena: Arena, engine: MappedEngine) -> None:
    store(arena, engine, Move(A, 0, 0, 2, 1))
    store(arena, engine, Move(B, 0, 0, 2, 2))
    assert load(arena, engine, Move(A, 2, 1, 3, 0)) == [ItemStatus.STALE]
    arena.begin_write(2, Generation(3))
    assert load(arena, engine, Move(B, 2, 2, 3, 0), Move(B, 2, 3, 3, 0)) == [ItemStatus.STALE] * 2


def test_another_block_under_the_same_generation_is_a_mismatch(arena: Arena, engine: MappedEngine) -> None:
    store(arena, engine, Move(A, 0, 0, 2, 1))
    assert load(arena, engine, Move(B, 2, 1, 3, 0)) == [ItemStatus.IDENTITY_MISMATCH]


def test_a_flipped_byte_is_corrupt_and_the_slot_becomes_bad(arena: Arena, engine: MappedEngine) -> None:
    store(arena, engine, Move(A, 0, 0, 2, 1), Move(B, 0, 0, 1, 1))
    arena.payload(2)[100] ^= 1
    assert load(arena, engine, Move(A, 2, 1, 3, 0), Move(B, 1, 1, 3, 0)) == [ItemStatus.CORRUPT, ItemStatus.OK]
    assert arena.read(2).verdict is HeaderVerdict.BAD
    assert load(arena, engine, Move(A, 2, 1, 3, 0)) == [ItemStatus.CORRUPT]


def test_without_verification_a_flipped_byte_is_served(arena: Arena, engine: MappedEngine) -> None:
    store(arena, engine, Move(A, 0, 0, 2, 1))
    arena.payload(2)[100] ^= 1
    assert load(arena, engine, Move(A, 2, 1, 3, 0), verify=False) == [ItemStatus.OK]


def test_a_destination_that_the_engine_reused_is_not_written(
    arena: Arena, engine: MappedEngine, memory: EngineMemory
) -> None:
    memory.view(EngineBlockId(1))[:] = job_payload(A, SIZE)
    store(arena, engine, Move(A, 1, 0, 2, 1))
    memory.raise_guards([EngineBlockId(3)])
    assert load(arena, engine, Move(A, 2, 1, 3, 0)) == [ItemStatus.SKIPPED]
    assert not memory.view(EngineBlockId(3)).any()


class BrokenCopies:
    """Moves nothing out of or into the engine's block 1, and fails there."""

    def __init__(self, copies: MappedCopies) -> None:
        self._copies = copies

    def gather(self, group: GroupId, pages: PageColumn, payload: ByteArray) -> Iterator[ByteArray]:
        self._check(pages)
        return self._copies.gather(group, pages, payload)

    def scatter(self, group: GroupId, pages: PageColumn, payload: ByteArray) -> Iterator[ByteArray]:
        self._check(pages)
        return self._copies.scatter(group, pages, payload)

    def close(self) -> None:
        self._copies.close()

    def _check(self, pages: PageColumn) -> None:
        if 1 in pages:
            raise TransferError("a request failed")


def test_a_row_that_an_executor_cannot_move_fails_alone(arena: Arena, engine: MappedEngine) -> None:
    broken = MappedEngine(engine.mapping, BrokenCopies(MappedCopies(engine.mapping)))
    assert store(arena, broken, Move(A, 1, 0, 0, 1), Move(B, 2, 0, 1, 1)) == [ItemStatus.IO_ERROR, ItemStatus.OK]
    assert not arena.read(0).verdict.is_block
    for verify in (True, False):
        moves = Move(B, 1, 1, 1, 0), Move(B, 1, 1, 3, 0)
        assert load(arena, broken, *moves, verify=verify) == [ItemStatus.IO_ERROR, ItemStatus.OK]
    assert arena.read(1).verdict.is_block
