"""The service is killed in the middle of stores: its next life brings back every block that was reported durable."""

import asyncio
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from pydantic import ByteSize

from blockyard.connectors.engine_memory import EngineMemory
from blockyard.core.vocabulary import ChainDigest, EngineBlockId, ItemStatus, JobKind, Tier
from blockyard.runtime.settings import G2Section, G3Section, MoverChoice, NodeSection, NodeSettings
from blockyard.testing.worker_driver import OffloadWorkerProcess, WorkerDriver
from blockyard.testing.worker_jobs import Move, job_payload, named_digest
from blockyard.tiers.header import HeaderState, InventoryRecord

SIZE = 65_536
BLOCKS = 64
"""Blocks of the engine, and arena slots that hold them; as many more arena slots are for loading back."""
SLOTS = 512
BATCH = 8
ENOUGH = 24
"""Jobs whose results are in when the worker is killed; several others are under way by then."""
WRITERS = 6
NAMES = [named_digest(f"block {number}") for number in range(BLOCKS)]
OK = ItemStatus.OK


@dataclass(slots=True)
class Ledger:
    """What the worker was told to store, and what it reported durable: slot to (generation, block)."""

    told: dict[tuple[int, int], ChainDigest] = field(default_factory=dict)
    durable: dict[int, tuple[int, ChainDigest]] = field(default_factory=dict)
    jobs: int = 0
    enough: asyncio.Event = field(default_factory=asyncio.Event)


@pytest.fixture
def folder() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="by-ow-"))
    yield path
    shutil.rmtree(path)


async def store(manager: WorkerDriver, ledger: Ledger, turn: int, slots: range) -> None:
    """One job: the slots get the next generation and, with it, other blocks than before."""
    sources = [(slot * 7 + turn * BATCH) % BLOCKS for slot in slots]
    moves = [Move(NAMES[source], source, 1, slot, turn) for source, slot in zip(sources, slots, strict=True)]
    ledger.told.update({(move.target, turn): move.digest for move in moves})
    assert await manager.run(JobKind.G2_G3, *moves) == [OK] * BATCH
    ledger.durable.update({move.target: (turn, move.digest) for move in moves})
    ledger.jobs += 1
    if ledger.jobs == ENOUGH:
        ledger.enough.set()


async def fill(manager: WorkerDriver, ledger: Ledger, first: int, last: int) -> None:
    """Store into slots that are used once."""
    for start in range(first, last, BATCH):
        await store(manager, ledger, 1, range(start, start + BATCH))


async def overwrite(manager: WorkerDriver, ledger: Ledger, first: int) -> None:
    """Store into the same slots again and again."""
    for turn in range(1, SLOTS):
        await store(manager, ledger, turn, range(first, first + BATCH))


async def killed_in_mid_store(worker: OffloadWorkerProcess, manager: WorkerDriver, ledger: Ledger) -> None:
    share = (SLOTS - BATCH) // WRITERS // BATCH * BATCH
    writers = [
        asyncio.create_task(fill(manager, ledger, BATCH + index * share, BATCH + (index + 1) * share))
        for index in range(WRITERS)
    ]
    writers.append(asyncio.create_task(overwrite(manager, ledger, 0)))
    async with asyncio.timeout(20.0):
        await ledger.enough.wait()
    worker.kill()
    for writer in writers:
        writer.cancel()
    # Results that had arrived before the kill count, so the writers end before anything is compared.
    await asyncio.gather(*writers, return_exceptions=True)
    manager.detach()


def compare(ledger: Ledger, records: list[InventoryRecord]) -> list[InventoryRecord]:
    """Every reported block is there, or was replaced in order by a later store; returns all blocks."""
    found: dict[int, InventoryRecord] = {record.block: record for record in records}
    for slot, (turn, digest) in ledger.durable.items():
        record = found[slot]
        if (slot, turn + 1) in ledger.told and record.generation == turn + 1:
            continue
        assert (record.state, record.generation, record.digest) == (HeaderState.READY, turn, digest)
    blocks = [record for record in records if record.state is HeaderState.READY]
    for record in blocks:
        assert ledger.told[record.block, record.generation] == record.digest
    return blocks


async def check_bytes(manager: WorkerDriver, memory: EngineMemory, blocks: list[InventoryRecord]) -> None:
    """Load every block into engine memory and look at its bytes."""
    for turn, start in enumerate(range(0, len(blocks), BLOCKS), start=1):
        batch = blocks[start : start + BLOCKS]
        loads = [
            Move(record.digest, record.block, record.generation, BLOCKS + index, turn)
            for index, record in enumerate(batch)
        ]
        assert await manager.run(JobKind.G3_G2, *loads) == [OK] * len(batch)
        lasts = [Move(load.digest, load.target, turn, index, 0) for index, load in enumerate(loads)]
        assert await manager.run(JobKind.G2_G1, *lasts) == [OK] * len(batch)
        for index, load in enumerate(loads):
            assert np.array_equal(memory.view(EngineBlockId(index)), job_payload(load.digest, SIZE))


@pytest.mark.parametrize("mover", [MoverChoice.AUTO, MoverChoice.PLAIN])
async def test_what_was_reported_durable_is_served_after_a_kill(folder: Path, mover: MoverChoice) -> None:
    settings = NodeSettings(
        node=NodeSection(folder=folder, block_bytes=ByteSize(SIZE)),
        g2=G2Section(capacity=ByteSize(2 * BLOCKS * SIZE)),
        g3=G3Section(capacity=ByteSize(SLOTS * SIZE), mover=mover, commit_interval_ms=1),
    )
    worker, manager, ledger = OffloadWorkerProcess(settings), WorkerDriver(SIZE), Ledger()
    async with AsyncExitStack() as stack:
        stack.callback(worker.kill)
        stack.callback(manager.close)
        memory = stack.enter_context(EngineMemory(BLOCKS, SIZE))
        for block, digest in enumerate(NAMES):
            memory.view(EngineBlockId(block))[:] = job_payload(digest, SIZE)
        worker.start()
        await manager.attach(worker.folder.socket)
        await manager.map(memory)
        saved = [Move(digest, block, 0, block, 1) for block, digest in enumerate(NAMES)]
        assert await manager.run(JobKind.G1_G2, *saved) == [OK] * BLOCKS

        await killed_in_mid_store(worker, manager, ledger)
        assert len(ledger.durable) < len({slot for slot, _ in ledger.told}), "nothing was under way when it was killed"

        worker.start()
        await manager.attach(worker.folder.socket)
        await manager.map(memory)
        blocks = compare(ledger, await manager.inventory(Tier.G3))
        assert len(blocks) >= len(ledger.durable) - BATCH
        await check_bytes(manager, memory, blocks)
        assert await worker.stop() == 0
