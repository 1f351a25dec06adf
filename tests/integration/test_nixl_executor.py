"""The executor ``nixl`` in a real offload-worker process: NIXL's UCX copies rows, and where it cannot, it says so."""

import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import numpy as np
import pytest
from pydantic import ByteSize
from tests.integration.engine_kit import BLOCK_BYTES, BLOCK_TOKENS, BM, IDENTITY, OW, local_settings
from tests.integration.test_engine_rows import node, node_folder, rows_come_back

from blockyard.connectors.client import BlockyardClient, EngineDescription
from blockyard.connectors.engine_memory import EngineMemory
from blockyard.core.errors import UnsupportedOperationError
from blockyard.core.kv_groups import KvGroup
from blockyard.core.vocabulary import EngineBlockId, EngineId, Executor, ItemStatus, JobKind
from blockyard.runtime.settings import G2Section, G3Section, NodeSection, NodeSettings
from blockyard.testing.running_node import WAIT_SECONDS, RunningNode, running_node
from blockyard.testing.worker_driver import OffloadWorkerProcess, WorkerDriver
from blockyard.testing.worker_jobs import Move, job_payload, named_digest

__all__ = ["node", "node_folder"]

SIZE = 1 << 20
SLOTS = 8
BLOCKS = 16
NAMES = [named_digest(name) for name in "abcd"]
OK = [ItemStatus.OK] * len(NAMES)


@pytest.fixture
def folder() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="by-nx-"))
    yield path
    shutil.rmtree(path)


@pytest.fixture
def worker(folder: Path) -> Iterator[OffloadWorkerProcess]:
    settings = NodeSettings(
        node=NodeSection(folder=folder, block_bytes=ByteSize(SIZE)),
        g2=G2Section(capacity=ByteSize(SLOTS * SIZE)),
        g3=G3Section(enabled=False),
    )
    worker = OffloadWorkerProcess(settings)
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


def stores(first_slot: int) -> list[Move]:
    return [Move(digest, index, 0, first_slot + index, 1) for index, digest in enumerate(NAMES)]


def loads(first_slot: int, first_block: int) -> list[Move]:
    return [Move(digest, first_slot + index, 1, first_block + index, 0) for index, digest in enumerate(NAMES)]


def assert_blocks(memory: EngineMemory, first: int) -> None:
    for index, digest in enumerate(NAMES):
        assert np.array_equal(memory.view(EngineBlockId(first + index)), job_payload(digest, SIZE))


async def test_what_one_executor_stores_the_other_loads_and_the_worker_ends_in_order(
    worker: OffloadWorkerProcess, manager: WorkerDriver, memory: EngineMemory
) -> None:
    worker.start()
    await manager.attach(worker.folder.socket)
    await manager.map(memory, executor=Executor.NIXL)
    assert await manager.run(JobKind.G1_G2, *stores(0)) == OK
    assert await manager.run(JobKind.G2_G1, *loads(0, 4)) == OK
    assert_blocks(memory, 4)
    await manager.map(memory, executor=Executor.MAPPED)
    assert await manager.run(JobKind.G2_G1, *loads(0, 8)) == OK
    assert_blocks(memory, 8)
    assert await manager.run(JobKind.G1_G2, *stores(4)) == OK
    await manager.map(memory, executor=Executor.NIXL)
    assert await manager.run(JobKind.G2_G1, *loads(4, 12)) == OK
    assert_blocks(memory, 12)
    assert await worker.stop() == 0


async def test_a_row_whose_block_was_reused_is_not_stored(
    worker: OffloadWorkerProcess, manager: WorkerDriver, memory: EngineMemory
) -> None:
    worker.start()
    await manager.attach(worker.folder.socket)
    await manager.map(memory, executor=Executor.NIXL)
    memory.raise_guards([EngineBlockId(2)])
    changed = [ItemStatus.OK, ItemStatus.OK, ItemStatus.SOURCE_CHANGED, ItemStatus.OK]
    assert await manager.run(JobKind.G1_G2, *stores(0)) == changed


async def test_where_ucx_is_missing_the_engine_is_refused_by_name_and_the_worker_goes_on(
    worker: OffloadWorkerProcess,
    manager: WorkerDriver,
    memory: EngineMemory,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # An engine that asks for NIXL while no transport of UCX may be used is told what is wrong.
    monkeypatch.setenv("UCX_TLS", "no_such_transport")
    worker.start()
    await manager.attach(worker.folder.socket)
    with pytest.raises(UnsupportedOperationError, match="NIXL does not work here") as refused:
        await manager.map(memory, executor=Executor.NIXL)
    assert refused.value.fields["executor"] == "nixl"
    assert "UCX" in str(refused.value.fields["reason"])
    await manager.map(memory, executor=Executor.MAPPED)
    assert await manager.run(JobKind.G1_G2, *stores(0)) == OK


async def test_an_executor_that_nobody_knows_is_refused_with_those_that_are_known(
    worker: OffloadWorkerProcess, manager: WorkerDriver, memory: EngineMemory
) -> None:
    worker.start()
    await manager.attach(worker.folder.socket)
    with pytest.raises(UnsupportedOperationError, match="mapped, nixl"):
        await manager.map(memory, executor="telepathy")


async def test_an_engine_of_several_groups_and_ranks_gets_its_rows_back_through_nixl(node: RunningNode) -> None:
    await rows_come_back(node, Executor.NIXL)


async def test_an_engine_hears_over_its_connection_that_nixl_does_not_work(
    node_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UCX_TLS", "no_such_transport")
    async with running_node(local_settings(node_folder), OW, BM) as node:
        await node.ready("nats", "node-lease")
        with EngineMemory(BLOCKS, BLOCK_BYTES) as memory:
            description = EngineDescription(
                engine=EngineId("asks"),
                identity=IDENTITY,
                blocks=BLOCKS,
                groups=(KvGroup(engine_block_tokens=BLOCK_TOKENS),),
                executor=Executor.NIXL,
            )
            client = BlockyardClient(node.engine_socket, description, memory.guards, memory=memory.rank)
            async with client:
                with pytest.raises(UnsupportedOperationError, match="NIXL does not work here"):
                    await client.wait_connected(WAIT_SECONDS)
