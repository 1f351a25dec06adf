"""Which part executes which job, and what is refused before anything is touched."""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest

from blockyard.connectors.engine_memory import EngineMemory
from blockyard.core.errors import (
    LayoutMismatchError,
    NotReadyError,
    UnavailableError,
    UnknownMappingError,
    UnsupportedOperationError,
)
from blockyard.core.vocabulary import EngineBlockId, Epoch, ItemStatus, JobKind, Lane, Tier
from blockyard.testing.rank_engine import map_fds, map_request
from blockyard.testing.worker_jobs import Move, ScriptedControl, job_payload, named_digest, transfer_job
from blockyard.tiers.base import MoverPreference
from blockyard.tiers.g3_slab.committer import CommitPolicy
from blockyard.tiers.header import parse_inventory
from blockyard.tiers.open_mover import ChosenMover
from blockyard.wire.worker_channel import Attach, Find, UnmapEngine
from blockyard_offload_worker.arena_owner import ArenaOwner, ArenaPlan
from blockyard_offload_worker.copy_thread import CopyThread, Work
from blockyard_offload_worker.disk_tier import DiskOutage, DiskPlan, DiskTier
from blockyard_offload_worker.engine_mappings import EngineMappings
from blockyard_offload_worker.executor import NO_MOVER, OffloadExecutor

SIZE = 8_192
SLOTS = 4
A = named_digest("a")
ATTACH = Attach(version=1, instance="node", epoch=7)


@dataclass(slots=True)
class Watching:
    """What the executor told about the disk."""

    movers: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def mover_chosen(self, chosen: ChosenMover) -> None:
        self.movers.append(chosen.mover.name)

    def disk_used(self, failure: str) -> None:
        self.failures.append(failure)


@pytest.fixture
def owner() -> Iterator[ArenaOwner]:
    owner = ArenaOwner(ArenaPlan(SLOTS, SIZE, verify=True), Epoch(1))
    yield owner
    owner.close()


@pytest.fixture
def copies() -> Iterator[CopyThread]:
    with CopyThread() as copies:
        yield copies


@pytest.fixture
def mappings() -> Iterator[EngineMappings]:
    mappings = EngineMappings()
    yield mappings
    mappings.close()


@pytest.fixture
async def disk(tmp_path: Path) -> AsyncIterator[DiskTier]:
    plan = DiskPlan(tmp_path, SLOTS, SIZE, MoverPreference.PLAIN, CommitPolicy(interval_seconds=0.001))
    disk = await DiskTier.open(plan, Epoch(1))
    assert isinstance(disk, DiskTier)
    yield disk
    await disk.close()


@pytest.fixture
def memory() -> Iterator[EngineMemory]:
    with EngineMemory(2, SIZE) as memory:
        memory.view(EngineBlockId(0))[:] = job_payload(A, SIZE)
        yield memory


@pytest.fixture
def executor(owner: ArenaOwner, copies: CopyThread, mappings: EngineMappings, disk: DiskTier) -> OffloadExecutor:
    return OffloadExecutor(Epoch(1), owner, copies, mappings, disk, Watching())


async def run(
    executor: OffloadExecutor, kind: JobKind, *moves: Move, size: int = SIZE, free_tier: int = 0
) -> list[ItemStatus]:
    job = transfer_job(kind, moves, payload_bytes=size, mapping=1, free_tier=free_tier)
    return list(await executor.run(job, ScriptedControl(job)))


async def mapped(executor: OffloadExecutor, memory: EngineMemory) -> None:
    await executor.attach(ATTACH, None)
    await executor.map_engine(map_request(memory), [os.dup(fd) for fd in map_fds(memory)])


async def test_a_block_travels_through_all_tiers_and_back(executor: OffloadExecutor, memory: EngineMemory) -> None:
    await mapped(executor, memory)
    assert await run(executor, JobKind.G1_G2, Move(A, 0, 0, 1, 1)) == [ItemStatus.OK]
    assert await run(executor, JobKind.G2_G3, Move(A, 1, 1, 2, 1)) == [ItemStatus.OK]
    assert await run(executor, JobKind.FREE, Move(A, target=1, target_mark=1), free_tier=Tier.G2) == [ItemStatus.OK]
    assert await run(executor, JobKind.G3_G2, Move(A, 2, 1, 3, 1)) == [ItemStatus.OK]
    assert await run(executor, JobKind.G2_G1, Move(A, 3, 1, 1, 0)) == [ItemStatus.OK]
    assert bytes(memory.view(EngineBlockId(1))) == job_payload(A, SIZE).tobytes()
    assert await run(executor, JobKind.FREE, Move(A, target=2, target_mark=1), free_tier=Tier.G3) == [ItemStatus.OK]
    page = await executor.inventory(Tier.G2, 0, 100, frozenset({1}))
    assert [record.block for record in parse_inventory(page.records)] == [3]
    assert (page.worker_epoch, page.tier, page.end) == (1, Tier.G2, True)


async def test_the_answer_to_attach_names_arena_slab_and_mover(executor: OffloadExecutor, owner: ArenaOwner) -> None:
    answer = await executor.attach(ATTACH, None)
    assert (answer.mover, answer.arena, answer.arena_fd) == ("plain", owner.arena.info(), owner.arena.fd)
    assert [(slab.slots, slab.failed) for slab in answer.slabs] == [(SLOTS, False)]
    assert await executor.attach(ATTACH, None) == answer


async def test_nothing_is_moved_before_the_first_attach(executor: OffloadExecutor) -> None:
    with pytest.raises(NotReadyError):
        await run(executor, JobKind.G2_G3, Move(A))


async def test_an_arena_is_given_up_with_all_that_holds_its_addresses_and_the_next_attach_keeps_the_new_one(
    executor: OffloadExecutor, owner: ArenaOwner, mappings: EngineMappings, disk: DiskTier, memory: EngineMemory
) -> None:
    await mapped(executor, memory)
    assert await run(executor, JobKind.G1_G2, Move(A, 0, 0, 1, 1)) == [ItemStatus.OK]
    old, mover = owner.arena.arena_id, disk.mover
    give_up = msgspec.structs.replace(ATTACH, give_up=old)
    answer = await executor.attach(give_up, None)
    assert answer.arena is not None
    assert answer.arena.arena == owner.arena.arena_id != old
    assert disk.mover is not mover, "the mover knew the memory of the old arena"
    assert len(mappings) == 0, "and so did the copiers of engines"
    with pytest.raises(UnknownMappingError):
        await run(executor, JobKind.G1_G2, Move(A, 0, 0, 1, 2))
    assert await run(executor, JobKind.G2_G3, Move(A, 1, 1, 2, 1)) == [ItemStatus.STALE], "it starts empty"
    assert await executor.attach(give_up, None) == answer, "it is given up once"


async def test_an_arena_is_not_replaced_under_a_job_and_no_engine_is_mapped_on_one_that_goes(
    executor: OffloadExecutor, owner: ArenaOwner, memory: EngineMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    await mapped(executor, memory)
    old, gate, inside = owner.arena.arena_id, asyncio.Event(), asyncio.Event()

    async def slow(self: CopyThread, lane: Lane, work: Work[list[ItemStatus]]) -> list[ItemStatus]:
        inside.set()
        await gate.wait()
        return await plain(self, lane, work)

    plain = CopyThread.run
    monkeypatch.setattr(CopyThread, "run", slow)
    async with asyncio.TaskGroup() as group:
        job = group.create_task(run(executor, JobKind.G1_G2, Move(A, 0, 0, 1, 1)))
        await inside.wait()
        attach = group.create_task(executor.attach(msgspec.structs.replace(ATTACH, give_up=old), None))
        await asyncio.sleep(0)
        with pytest.raises(UnavailableError, match="being replaced"):
            await executor.map_engine(map_request(memory), [os.dup(fd) for fd in map_fds(memory)])
        draining = group.create_task(executor.drain())
        await asyncio.sleep(0)
        assert owner.arena.arena_id == old
        gate.set()
    assert job.result() == [ItemStatus.OK]
    replaced = attach.result().arena
    assert replaced is not None
    assert replaced.arena != old
    assert draining.done()
    with pytest.raises(UnavailableError, match="stopping"):
        await run(executor, JobKind.G1_G2, Move(A, 0, 0, 1, 2))


async def test_a_payload_longer_than_a_slot_is_refused(executor: OffloadExecutor, memory: EngineMemory) -> None:
    await mapped(executor, memory)
    with pytest.raises(LayoutMismatchError):
        await run(executor, JobKind.G1_G2, Move(A, 0, 0, 1, 1), size=SIZE + 1)


async def test_an_unmapped_engine_gets_no_copies(executor: OffloadExecutor, memory: EngineMemory) -> None:
    await mapped(executor, memory)
    await executor.unmap_engine(UnmapEngine(mapping=1))
    with pytest.raises(UnknownMappingError):
        await run(executor, JobKind.G1_G2, Move(A, 0, 0, 1, 1))


async def test_a_mapping_that_is_too_short_is_refused_and_its_descriptors_are_closed(
    executor: OffloadExecutor, memory: EngineMemory
) -> None:
    await executor.attach(ATTACH, None)
    fds = [os.dup(fd) for fd in map_fds(memory)]
    with pytest.raises(LayoutMismatchError):
        await executor.map_engine(msgspec.structs.replace(map_request(memory), blocks=9), fds)
    for fd in fds:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(fd)


async def test_an_unknown_executor_is_refused_by_name(executor: OffloadExecutor, memory: EngineMemory) -> None:
    await executor.attach(ATTACH, None)
    with pytest.raises(UnsupportedOperationError, match=r"executor='?carrier-pigeon.*known='?mapped"):
        await executor.map_engine(
            map_request(memory, executor="carrier-pigeon"), [os.dup(fd) for fd in map_fds(memory)]
        )


async def test_a_payload_shorter_than_the_rows_is_refused(executor: OffloadExecutor, memory: EngineMemory) -> None:
    await mapped(executor, memory)
    with pytest.raises(LayoutMismatchError, match="row_bytes"):
        await run(executor, JobKind.G1_G2, Move(A, 0, 0, 1, 1), size=SIZE - 1)


async def test_jobs_of_the_shared_tier_are_refused(executor: OffloadExecutor) -> None:
    await executor.attach(ATTACH, None)
    with pytest.raises(UnsupportedOperationError):
        await run(executor, JobKind.G4_PUT, Move(A))
    with pytest.raises(UnsupportedOperationError):
        await executor.find(Find(identity=bytes(32), keys=b""))
    with pytest.raises(UnsupportedOperationError):
        await executor.inventory(Tier.G4, 0, 1, frozenset())


async def test_without_a_disk_tier_only_its_jobs_are_refused(
    owner: ArenaOwner, copies: CopyThread, mappings: EngineMappings, memory: EngineMemory
) -> None:
    executor = OffloadExecutor(Epoch(1), owner, copies, mappings, None, Watching())
    await mapped(executor, memory)
    answer = await executor.attach(ATTACH, None)
    assert (answer.mover, answer.slabs) == (NO_MOVER, ())
    assert await run(executor, JobKind.G1_G2, Move(A, 0, 0, 1, 1)) == [ItemStatus.OK]
    with pytest.raises(UnsupportedOperationError):
        await run(executor, JobKind.G2_G3, Move(A, 1, 1, 2, 1))
    assert (await executor.inventory(Tier.G3, 0, 1, frozenset())).end


async def test_a_disk_outage_is_the_answer_to_its_jobs(
    owner: ArenaOwner, copies: CopyThread, mappings: EngineMappings
) -> None:
    outage = DiskOutage(ItemStatus.NO_SPACE, "full")
    executor = OffloadExecutor(Epoch(1), owner, copies, mappings, outage, Watching())
    await executor.attach(ATTACH, None)
    assert await run(executor, JobKind.G2_G3, Move(A), Move(A)) == [ItemStatus.NO_SPACE] * 2
    assert await run(executor, JobKind.FREE, Move(A), free_tier=Tier.G3) == [ItemStatus.NO_SPACE]


async def test_a_mover_that_moves_nothing_any_more_is_told(
    owner: ArenaOwner, copies: CopyThread, mappings: EngineMappings, disk: DiskTier, monkeypatch: pytest.MonkeyPatch
) -> None:
    watching = Watching()
    executor = OffloadExecutor(Epoch(1), owner, copies, mappings, disk, watching)
    await executor.attach(ATTACH, None)
    await run(executor, JobKind.G2_G3, Move(A, 1, 1, 2, 1))
    monkeypatch.setattr(type(disk.mover), "failure", "its thread ended")
    await run(executor, JobKind.G2_G3, Move(A, 1, 1, 2, 1))
    assert watching.failures == ["", "its thread ended"]


async def test_draining_lets_running_jobs_end_and_takes_no_more(
    executor: OffloadExecutor, memory: EngineMemory
) -> None:
    await mapped(executor, memory)
    running = asyncio.create_task(run(executor, JobKind.G1_G2, Move(A, 0, 0, 1, 1)))
    await asyncio.sleep(0)
    await executor.drain()
    assert await running == [ItemStatus.OK]
    with pytest.raises(UnavailableError):
        await run(executor, JobKind.G1_G2, Move(A, 0, 0, 1, 2))
