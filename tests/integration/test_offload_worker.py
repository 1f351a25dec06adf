"""A real offload-worker process, driven over its job channel as a block-manager does it."""

import asyncio
import os
import shutil
import signal
import sysconfig
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import httpx
import numpy as np
import pytest
from pydantic import ByteSize

from blockyard.cli.child_process import ChildProcess, ChildSpec
from blockyard.connectors.engine_memory import EngineMemory
from blockyard.core.errors import UnavailableError
from blockyard.core.vocabulary import ChainDigest, EngineBlockId, ItemStatus, JobKind, Tier
from blockyard.runtime.node_folder import NodeFolder, ServiceName
from blockyard.runtime.rpc.client import RpcClient
from blockyard.runtime.settings import (
    G2Section,
    G3Section,
    MoverChoice,
    NodeSection,
    NodeSettings,
    environment_of,
)
from blockyard.testing.worker_jobs import Move, digest_of, pattern, transfer_job
from blockyard.tiers.g3_slab.layout import SlabGeometry
from blockyard.tiers.header import HeaderState, InventoryRecord, parse_inventory
from blockyard.wire.codec import PROTOCOL_VERSION
from blockyard.wire.worker_channel import (
    Accepted,
    Ack,
    ArenaInfo,
    Attach,
    Attached,
    Inventory,
    InventoryPage,
    JobResult,
    MapEngine,
    Push,
    Reply,
    Submit,
)

SIZE = 8_192
SLOTS = 16
BLOCKS = 8
NAMES = [digest_of(name) for name in "abcd"]
START_SECONDS = 20.0
CALL_SECONDS = 5.0
OK = ItemStatus.OK


class BlockManager:
    """The worker's channel as a block-manager uses it; holds the arena over lives of the worker."""

    def __init__(self) -> None:
        self.arena: ArenaInfo | None = None
        self.arena_fd = -1
        self.worker_epoch = 0
        self._seq = 0
        self._results: dict[int, asyncio.Future[JobResult]] = {}
        self._client: RpcClient[Reply, JobResult] | None = None

    @property
    def client(self) -> RpcClient[Reply, JobResult]:
        if self._client is None:
            raise UnavailableError("not connected")
        return self._client

    async def attach(self, socket: Path) -> Attached:
        self.detach()
        async with asyncio.timeout(START_SECONDS):
            self._client = await connected(socket, self._pushed)
        fds = [] if self.arena is None else [self.arena_fd]
        request = Attach(version=PROTOCOL_VERSION, instance="node", epoch=7, arena=self.arena)
        reply, received = await self.client.call_with_fds(request, timeout_seconds=CALL_SECONDS, fds=fds)
        assert isinstance(reply, Attached)
        (fd,) = received
        if self.arena_fd >= 0:
            os.close(self.arena_fd)
        self.arena, self.arena_fd, self.worker_epoch = reply.arena, fd, reply.worker_epoch
        return reply

    def detach(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def close(self) -> None:
        self.detach()
        if self.arena_fd >= 0:
            os.close(self.arena_fd)

    async def map(self, memory: EngineMemory) -> None:
        request = MapEngine(mapping=1, blocks=BLOCKS, block_bytes=SIZE, stride_bytes=SIZE)
        await self.client.call(request, timeout_seconds=CALL_SECONDS, fds=[memory.kv_fd, memory.guard_fd])

    async def run(self, kind: JobKind, *moves: Move) -> list[ItemStatus]:
        self._seq += 1
        self._results[self._seq] = asyncio.get_running_loop().create_future()
        job = transfer_job(kind, moves, payload_bytes=SIZE, seq=self._seq, worker_epoch=self.worker_epoch, mapping=1)
        reply = await self.client.call(Submit(job=job, settled_below=self._seq), timeout_seconds=CALL_SECONDS)
        assert isinstance(reply, Accepted), reply
        async with asyncio.timeout(CALL_SECONDS):
            result = await self._results[self._seq]
        await self.client.call(
            Ack(epoch=7, seqs=(self._seq,), settled_below=self._seq + 1), timeout_seconds=CALL_SECONDS
        )
        return result.statuses()

    async def inventory(self, tier: Tier) -> list[InventoryRecord]:
        page = await self.client.call(Inventory(tier=tier), timeout_seconds=CALL_SECONDS)
        assert isinstance(page, InventoryPage)
        assert page.end
        return list(parse_inventory(page.records))

    def _pushed(self, result: JobResult) -> None:
        waiting = self._results[result.seq]
        if not waiting.done():
            waiting.set_result(result)


async def connected(socket: Path, pushed: Callable[[JobResult], None]) -> RpcClient[Reply, JobResult]:
    while True:
        try:
            return await RpcClient.connect(socket, Reply, Push, pushed)
        except UnavailableError:
            await asyncio.sleep(0.02)


class Worker:
    """The process under test."""

    def __init__(self, settings: NodeSettings) -> None:
        self.settings = settings
        self.folder = NodeFolder.of(settings).service(ServiceName.OFFLOAD_WORKER)
        self._child: ChildProcess | None = None

    @property
    def slab(self) -> Path:
        return NodeFolder.of(self.settings).slabs(self.settings) / "slab-0"

    def start(self) -> None:
        program = str(Path(sysconfig.get_path("scripts")) / "blockyard-offload-worker")
        self.folder.path.parent.mkdir(parents=True, exist_ok=True)
        log_file = self.folder.path.parent / "offload-worker.log"
        self._child = ChildProcess(ChildSpec("worker", (program,), log_file, environment_of(self.settings)))

    def kill(self) -> None:
        if self._child is not None:
            self._child.kill()

    async def stop(self) -> int | None:
        assert self._child is not None
        self._child.send(signal.SIGTERM)
        assert await self._child.wait_async(START_SECONDS), self._child.log_tail()
        return self._child.exit_code

    async def page(self, path: str) -> httpx.Response:
        async with httpx.AsyncClient() as client:
            return await client.get(f"{self.folder.read_http()}{path}")


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
def worker(folder: Path) -> Iterator[Worker]:
    worker = Worker(node_settings(folder))
    worker.start()
    yield worker
    worker.kill()


@pytest.fixture
async def manager() -> AsyncIterator[BlockManager]:
    manager = BlockManager()
    yield manager
    manager.close()


@pytest.fixture
def memory() -> Iterator[EngineMemory]:
    with EngineMemory(BLOCKS, SIZE) as memory:
        for index, digest in enumerate(NAMES):
            memory.view(EngineBlockId(index))[:] = pattern(digest, SIZE)
        yield memory


def from_engine(generation: int = 1) -> list[Move]:
    return [Move(digest, index, 0, index, generation) for index, digest in enumerate(NAMES)]


def between_tiers(target: int = 0) -> list[Move]:
    return [Move(digest, index, 1, target + index, 1) for index, digest in enumerate(NAMES)]


def to_engine(first_slot: int, first_block: int) -> list[Move]:
    return [Move(digest, first_slot + index, 1, first_block + index, 0) for index, digest in enumerate(NAMES)]


def assert_blocks(memory: EngineMemory, first: int, names: Sequence[ChainDigest]) -> None:
    for index, digest in enumerate(names):
        assert np.array_equal(memory.view(EngineBlockId(first + index)), pattern(digest, SIZE))


async def test_both_tiers_survive_the_death_of_the_worker(
    worker: Worker, manager: BlockManager, memory: EngineMemory
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
    worker: Worker, manager: BlockManager, memory: EngineMemory
) -> None:
    await manager.attach(worker.folder.socket)
    await manager.map(memory)
    await manager.run(JobKind.G1_G2, *from_engine())
    await manager.run(JobKind.G2_G3, *between_tiers())
    with worker.slab.open("r+b") as slab:
        slab.seek(SlabGeometry.for_payload(SLOTS, SIZE).payload_offset + SIZE + 77)
        slab.write(b"\0" if pattern(NAMES[1], SIZE)[77] else b"\1")
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
    assert 'blockyard_mover_info{mover="plain",reason="chosen by the settings"} 1.0' in metrics


async def test_a_stale_generation_is_skipped(worker: Worker, manager: BlockManager, memory: EngineMemory) -> None:
    await manager.attach(worker.folder.socket)
    await manager.map(memory)
    await manager.run(JobKind.G1_G2, *from_engine(generation=5))
    assert await manager.run(JobKind.G1_G2, *from_engine(generation=5)) == [ItemStatus.SKIPPED] * 4
    memory.raise_guards([EngineBlockId(0)])
    reused = await manager.run(JobKind.G1_G2, *from_engine(generation=6))
    assert reused == [ItemStatus.SOURCE_CHANGED, OK, OK, OK]


async def test_an_orderly_stop_marks_the_slab_clean_and_removes_the_socket(
    worker: Worker, manager: BlockManager, memory: EngineMemory
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


async def test_a_full_disk_costs_the_disk_tier_only(manager: BlockManager, memory: EngineMemory, folder: Path) -> None:
    async with AsyncExitStack() as stack:
        shm = os.statvfs("/dev/shm")
        too_much = shm.f_blocks * shm.f_frsize + (1 << 30)
        slabs = Path(tempfile.mkdtemp(prefix="by-ow-", dir="/dev/shm"))
        stack.callback(shutil.rmtree, slabs)
        worker = Worker(node_settings(folder, G3Section(capacity=ByteSize(too_much), folder=slabs)))
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
    manager: BlockManager, memory: EngineMemory, folder: Path
) -> None:
    worker = Worker(node_settings(folder, G3Section(capacity=ByteSize(SLOTS * SIZE))))
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
