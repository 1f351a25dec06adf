"""A real offload-worker process, driven over its job channel as a block-manager does it."""

import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import numpy as np
import pytest
from pydantic import ByteSize

from blockyard.connectors.engine_memory import EngineMemory
from blockyard.core.vocabulary import ChainDigest, EngineBlockId, ItemStatus, JobKind, Tier
from blockyard.runtime.settings import G2Section, G3Section, MoverChoice, NodeSection, NodeSettings
from blockyard.testing.worker_driver import OffloadWorkerProcess, WorkerDriver
from blockyard.testing.worker_jobs import Move, job_payload, named_digest
from blockyard.tiers.g3_slab.layout import SlabGeometry
from blockyard.tiers.header import HeaderState

SIZE = 8_192
SLOTS = 16
BLOCKS = 8
NAMES = [named_digest(name) for name in "abcd"]
OK = ItemStatus.OK


@pytest.fixture
def folder() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="by-ow-"))
    yield path
    shutil.rmtree(path)


def node_settings(folder: Path, g3: G3Section | None = None) -> NodeSettings:
    return NodeSettings(
        node=NodeSection(folder=folder, block_bytes=ByteSize(SIZE)),
        g2=G2Section(capacity=ByteSize(SLOTS * SIZE)),
        g3=g3 or G3Section(capacity=ByteSize(SLOTS * SIZE), mover=MoverChoice.PLAIN, commit_interval_ms=1),
    )


@pytest.fixture
def worker(folder: Path) -> Iterator[OffloadWorkerProcess]:
    worker = OffloadWorkerProcess(node_settings(folder))
    worker.start()
    yield worker
    worker.kill()


@pytest.fixture
async def manager() -> AsyncIterator[WorkerDriver]:
    manager = WorkerDriver(SIZE)
    yield manager
    manager.close()


@pytest.fixture
def memory() -> Iterator[EngineMemory]:
    with EngineMemory(BLOCKS, SIZE) as memory:
        for index, digest in enumerate(NAMES):
            memory.view(EngineBlockId(index))[:] = job_payload(digest, SIZE)
        yield memory


def from_engine(generation: int = 1) -> list[Move]:
    return [Move(digest, index, 0, index, generation) for index, digest in enumerate(NAMES)]


def between_tiers(target: int = 0) -> list[Move]:
    return [Move(digest, index, 1, target + index, 1) for index, digest in enumerate(NAMES)]


def to_engine(first_slot: int, first_block: int) -> list[Move]:
    return [Move(digest, first_slot + index, 1, first_block + index, 0) for index, digest in enumerate(NAMES)]


def assert_blocks(memory: EngineMemory, first: int, names: Sequence[ChainDigest]) -> None:
    for index, digest in enumerate(names):
        assert np.array_equal(memory.view(EngineBlockId(first + index)), job_payload(digest, SIZE))


async def test_both_tiers_survive_the_death_of_the_worker(
    worker: OffloadWorkerProcess, manager: WorkerDriver, memory: EngineMemory
) -> None:
    first = await manager.attach(worker.folder.socket)
    await manager.map(memory)
    assert await manager.run(JobKind.G1_G2, *from_engine()) == [OK] * 4
    assert await manager.run(JobKind.G2_G3, *between_tiers()) == [OK] * 4

    worker.kill()
    worker.start()
    second = await manager.attach(worker.folder.socket)
    assert second.worker_epoch > first.worker_epoch
    assert second.arena == first.arena
    for tier in (Tier.G2, Tier.G3):
        assert [(record.block, record.key) for record in await manager.inventory(tier)] == [
            (index, digest[:16]) for index, digest in enumerate(NAMES)
        ]

    await manager.map(memory)
    assert await manager.run(JobKind.G3_G2, *between_tiers(target=8)) == [OK] * 4
    assert await manager.run(JobKind.G2_G1, *to_engine(8, 4)) == [OK] * 4
    assert_blocks(memory, 4, NAMES)
    for block in range(4):
        memory.view(EngineBlockId(block))[:] = 0
    assert await manager.run(JobKind.G2_G1, *to_engine(0, 0)) == [OK] * 4
    assert_blocks(memory, 0, NAMES)


async def test_a_flipped_byte_in_the_slab_is_corrupt_and_its_neighbours_are_served(
    worker: OffloadWorkerProcess, manager: WorkerDriver, memory: EngineMemory
) -> None:
    await manager.attach(worker.folder.socket)
    await manager.map(memory)
    await manager.run(JobKind.G1_G2, *from_engine())
    await manager.run(JobKind.G2_G3, *between_tiers())
    with worker.slab.open("r+b") as slab:
        slab.seek(SlabGeometry.for_payload(SLOTS, SIZE).payload_offset + SIZE + 77)
        slab.write(b"\0" if job_payload(NAMES[1], SIZE)[77] else b"\1")
        slab.flush()
        os.fsync(slab.fileno())

    statuses = await manager.run(JobKind.G3_G2, *between_tiers(target=8))
    assert statuses == [OK, ItemStatus.CORRUPT, OK, OK]
    states = {record.block: record.state for record in await manager.inventory(Tier.G3)}
    assert states == {0: HeaderState.READY, 1: HeaderState.BAD, 2: HeaderState.READY, 3: HeaderState.READY}
    metrics = (await worker.page("/metrics")).text
    assert 'blockyard_checksum_failures_total{tier="g3"} 1.0' in metrics
    assert 'blockyard_checksum_checks_total{tier="g3"} 4.0' in metrics
    assert f'blockyard_moved_bytes_total{{edge="g1_g2"}} {4.0 * SIZE}' in metrics
    assert 'blockyard_mover_info{mover="plain",reason="setting"} 1.0' in metrics


async def test_a_stale_generation_is_skipped(
    worker: OffloadWorkerProcess, manager: WorkerDriver, memory: EngineMemory
) -> None:
    await manager.attach(worker.folder.socket)
    await manager.map(memory)
    await manager.run(JobKind.G1_G2, *from_engine(generation=5))
    assert await manager.run(JobKind.G1_G2, *from_engine(generation=5)) == [ItemStatus.SKIPPED] * 4
    memory.raise_guards([EngineBlockId(0)])
    reused = await manager.run(JobKind.G1_G2, *from_engine(generation=6))
    assert reused == [ItemStatus.SOURCE_CHANGED, OK, OK, OK]


async def test_an_orderly_stop_marks_the_slab_clean_and_removes_the_socket(
    worker: OffloadWorkerProcess, manager: WorkerDriver, memory: EngineMemory
) -> None:
    await manager.attach(worker.folder.socket)
    await manager.map(memory)
    await manager.run(JobKind.G1_G2, *from_engine())
    await manager.run(JobKind.G2_G3, *between_tiers())
    assert (await worker.page("/readyz")).status_code == 200
    assert await worker.stop() == 0
    assert not worker.folder.socket.exists()
    assert not worker.folder.http.exists()
    page = worker.slab.read_bytes()[: 2 * 4_096]
    newest = max((page[:4_096], page[4_096:]), key=lambda block: int.from_bytes(block[80:88], "little"))
    assert int.from_bytes(newest[12:16], "little") & 1


async def test_a_full_disk_costs_the_disk_tier_only(manager: WorkerDriver, memory: EngineMemory, folder: Path) -> None:
    async with AsyncExitStack() as stack:
        shm = os.statvfs("/dev/shm")
        too_much = shm.f_blocks * shm.f_frsize + (1 << 30)
        slabs = Path(tempfile.mkdtemp(prefix="by-ow-", dir="/dev/shm"))
        stack.callback(shutil.rmtree, slabs)
        worker = OffloadWorkerProcess(node_settings(folder, G3Section(capacity=ByteSize(too_much), folder=slabs)))
        worker.start()
        stack.callback(worker.kill)
        attached = await manager.attach(worker.folder.socket)
        assert attached.slabs == ()
        await manager.map(memory)
        assert await manager.run(JobKind.G1_G2, *from_engine()) == [OK] * 4
        assert await manager.run(JobKind.G2_G3, *between_tiers()) == [ItemStatus.NO_SPACE] * 4
        assert await manager.run(JobKind.G2_G1, *to_engine(0, 4)) == [OK] * 4
        assert_blocks(memory, 4, NAMES)
        ready = await worker.page("/readyz")
        assert ready.status_code == 503
        assert [check["name"] for check in ready.json()["checks"] if not check["ok"]] == ["g3"]


async def test_the_mover_chosen_for_this_machine_moves_blocks_and_ends_in_order(
    manager: WorkerDriver, memory: EngineMemory, folder: Path
) -> None:
    worker = OffloadWorkerProcess(node_settings(folder, G3Section(capacity=ByteSize(SLOTS * SIZE))))
    worker.start()
    try:
        attached = await manager.attach(worker.folder.socket)
        assert attached.mover in ("nixl-posix-uring", "nixl-posix-aio", "plain")
        await manager.map(memory)
        await manager.run(JobKind.G1_G2, *from_engine())
        assert await manager.run(JobKind.G2_G3, *between_tiers()) == [OK] * 4
        assert await manager.run(JobKind.G3_G2, *between_tiers(target=8)) == [OK] * 4
        assert await manager.run(JobKind.G2_G1, *to_engine(8, 4)) == [OK] * 4
        assert_blocks(memory, 4, NAMES)
        assert await worker.stop() == 0
    finally:
        worker.kill()
