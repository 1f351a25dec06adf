"""Two ranks that copy by themselves as vLLM's do, without vLLM, on a real node: what they store comes back unharmed.

The engine is scripted; its halves are the real ones, from the scheduler's orders to the bytes in the arena. Services of
the node are killed under it: rows may be misses then, but no byte is wrong.
"""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pytest
from tests.integration.engine_kit import BLOCK_BYTES, BLOCK_TOKENS, BM, OW, local_settings, node_folder

from blockyard.connectors.client_thread import ClientThread
from blockyard.connectors.engine_description import EngineDescription
from blockyard.connectors.engine_guards import EngineGuards
from blockyard.connectors.rank_copies import RankLayout
from blockyard.connectors.rank_link import RankLink
from blockyard.connectors.vllm.block_tables import BlockTable
from blockyard.connectors.vllm.engine_copies import EngineCopies
from blockyard.connectors.vllm.node_calls import LoadEnded, NodeState, ThreadedCalls
from blockyard.connectors.vllm.rows import Rows
from blockyard.connectors.vllm.slot_desk import SlotDesk
from blockyard.connectors.vllm.slot_orders import LoadStaged, SlotsGranted
from blockyard.connectors.vllm.slot_stores import SlotStores
from blockyard.connectors.vllm.staged_copies import StagedCopies
from blockyard.connectors.vllm.step_plan import StepReport
from blockyard.connectors.vllm.tracked_request import EngineFacts, TrackedRequest
from blockyard.core.identity import ModelIdentity
from blockyard.core.kv_groups import KvGroup, Region
from blockyard.core.vocabulary import EngineId, Executor, GroupId, ItemStatus, Tier
from blockyard.testing.running_node import RunningNode, running_node
from blockyard.tiers.device.host import HostDevice, HostPages, host_pages

__all__ = ["node_folder"]

RANKS, BLOCKS, PER_ROW = 2, 48, 2
PAGE = BLOCK_BYTES // RANKS // PER_ROW
GROUP = KvGroup(engine_block_tokens=BLOCK_TOKENS // PER_ROW)
IDENTITY = ModelIdentity(
    model="engine",
    block_bytes=BLOCK_BYTES,
    block_tokens=BLOCK_TOKENS,
    engine_block_tokens=BLOCK_TOKENS // PER_ROW,
    parallel_shape=f"tp{RANKS}",
)
REGIONS = ((Region(0, PAGE, PAGE),),)
WAIT_SECONDS = 30.0


class Prompt:
    """A request of the engine: rows of its own for each name."""

    num_preemptions = 0
    kv_transfer_params: Mapping[str, Any] | None = None
    num_tokens = 1_000

    def __init__(self, name: int, rows: int) -> None:
        self.request_id = str(name)
        self.rows = rows
        self.block_hashes = [hashlib.sha256(f"{name}/{block}".encode()).digest() for block in range(rows * PER_ROW)]

    def page(self, block: int, rank: int) -> bytes:
        return (self.block_hashes[block] + bytes([rank]) * 32) * (PAGE // 64)


class Rank:
    """One rank, its link in a thread as in an engine."""

    def __init__(self, number: int, socket: Path, engine: EngineId) -> None:
        self.number = number
        self.pages = host_pages(np.zeros(BLOCKS * PAGE, np.uint8), REGIONS[0][0], BLOCKS)
        layout = RankLayout(number, RANKS, BLOCK_TOKENS, (GROUP,), ((self.pages,),))
        copies: EngineCopies[HostPages] = EngineCopies(layout, HostDevice)
        self.copies = copies
        self.link: ClientThread[RankLink] = ClientThread(
            lambda: RankLink(
                socket,
                engine,
                0,
                number,
                None,
                REGIONS,
                on_state=copies.attached,
                on_arena=copies.take_arena,
                drained=copies.drained,
            ),
            f"rank-{number}",
        )
        self.link.start()

    def close(self) -> None:
        assert self.link.stop()
        self.copies.close()


class Engine:
    """Scheduler and ranks; one step after the other."""

    def __init__(self, node: RunningNode) -> None:
        name = EngineId(uuid4().hex)
        description = EngineDescription(
            engine=name, identity=IDENTITY, blocks=BLOCKS, groups=(GROUP,), ranks=RANKS, executor=Executor.ENGINE
        )
        facts = EngineFacts(
            groups=(GROUP,),
            block_tokens=BLOCK_TOKENS,
            hash_tokens=BLOCK_TOKENS // PER_ROW,
            row_bytes=BLOCK_BYTES,
            ranks=RANKS,
        )
        self.guards = EngineGuards(BLOCKS)
        self.calls = ThreadedCalls(node.engine_socket, description, self.guards)
        self.ranks = [Rank(number, node.engine_socket, name) for number in range(RANKS)]
        self.skipped = self.stored = 0
        self.stores = SlotStores(facts, self.guards, self.calls.slots, self._stored, self._skipped, 1.0)
        self.ended: list[LoadEnded] = []
        self.desk = SlotDesk(RANKS, self.stores, StagedCopies(self.calls.slots), self.ended.append)
        self.loads = 0

    def _stored(self, rows: int) -> None:
        self.stored += rows

    def _skipped(self, rows: int) -> None:
        self.skipped += rows

    def step(self, kernels: Callable[[], None] = lambda: None) -> None:
        while self.calls.news:
            item = self.calls.news.popleft()
            if isinstance(item, NodeState):
                self.desk.connected(connected=item.connected)
            elif isinstance(item, SlotsGranted | LoadStaged):
                self.desk.heard(item)
        plan = self.desk.plan(idle=True)
        self.calls.flush()
        for rank in self.ranks:
            rank.copies.step_begins(plan)
            rank.copies.loads_begin(plan)
        kernels()
        report = StepReport()
        for rank in self.ranks:
            rank.copies.step_ended(plan)
            told = StepReport()
            rank.copies.report(told)
            report = report.joined(told)
        self.desk.reported(report)
        self.calls.flush()

    async def until(self, holds: Callable[[], Any]) -> None:
        async with asyncio.timeout(WAIT_SECONDS):
            while not (done := holds()) or (asyncio.iscoroutine(done) and not await done):
                self.step()
                await asyncio.sleep(0.002)

    def compute(self, prompt: Prompt, first_block: int) -> None:
        """One step that computes a whole prompt."""
        blocks = np.arange(first_block, first_block + prompt.rows * PER_ROW)
        table = BlockTable(PER_ROW)
        table.append(blocks, self.guards.raise_guards(blocks))
        self.desk.reused(blocks, by_others=False)
        self.stores.complete(TrackedRequest(prompt, opted_out=False), table, 0, 0, prompt.rows)

        def kernels() -> None:
            for rank in self.ranks:
                for place, block in enumerate(blocks):
                    rank.pages[block] = np.frombuffer(prompt.page(place, rank.number), np.uint8)

        self.step(kernels)

    async def load(self, prompt: Prompt, first_block: int) -> tuple[list[ItemStatus], list[Tier | None]]:
        """Load a prompt, and compare every byte of what is said to be there."""
        blocks = np.arange(first_block, first_block + prompt.rows * PER_ROW)
        guards = self.guards.raise_guards(blocks)
        self.desk.reused(blocks, by_others=False)
        hashes = prompt.block_hashes[PER_ROW - 1 :: PER_ROW]
        self.loads += 1
        self.ended.clear()
        rows = Rows(GroupId(0), 0, hashes, blocks, guards)
        self.desk.load(self.loads, prompt.request_id, [rows], 5.0)
        await self.until(lambda: self.ended)
        ((result,),) = [ended.results for ended in self.ended]
        for rank in self.ranks:
            for place in range(result.usable * PER_ROW):
                assert rank.pages[blocks[place]].tobytes() == prompt.page(place, rank.number), "wrong bytes"
        return list(result.statuses), list(result.sources)

    def close(self) -> None:
        self.calls.close()
        for rank in self.ranks:
            rank.close()
        self.guards.close()


@asynccontextmanager
async def engine_on(folder: Path) -> AsyncIterator[tuple[RunningNode, Engine]]:
    async with running_node(local_settings(folder), BM, OW) as node:
        await node.ready("nats", "node-lease")
        engine = Engine(node)
        try:
            yield node, engine
        finally:
            await asyncio.to_thread(engine.close)


@pytest.fixture
async def place(node_folder: Path) -> AsyncIterator[tuple[RunningNode, Engine]]:
    async with engine_on(node_folder) as both:
        yield both


async def test_rows_of_two_ranks_come_back_from_memory_and_from_disk(place: tuple[RunningNode, Engine]) -> None:
    node, engine = place
    prompt = Prompt(1, 3)
    engine.compute(prompt, 2)
    await engine.until(lambda: engine.stored == 3)
    await node.holds("g2", 3)
    await node.holds("g3", 3)
    assert await engine.load(prompt, 20) == ([ItemStatus.OK] * 3, [Tier.G2] * 3)
    assert (await node.post("/v1/tiers/g2:clear")).status_code == 200
    assert await engine.load(prompt, 30) == ([ItemStatus.OK] * 3, [Tier.G3] * 3)
    assert await engine.load(Prompt(2, 2), 30) == ([ItemStatus.NOT_FOUND] * 2, [None] * 2)


@pytest.mark.parametrize("services", [(BM,), (OW,), (BM, OW)], ids=lambda services: "+".join(services))
async def test_no_byte_is_wrong_when_services_die_under_stores_and_loads(
    place: tuple[RunningNode, Engine], services: tuple[Any, ...]
) -> None:
    node, engine = place
    kept = Prompt(1, 3)
    engine.compute(kept, 2)
    await engine.until(lambda: engine.stored == 3)
    await node.holds("g3", 3)
    for life in range(2):
        engine.compute(Prompt(10 + life, 4), 10)
        loading = asyncio.create_task(engine.load(kept, 20))
        await asyncio.sleep(0)
        node.kill(*services)
        node.start(*services)
        statuses, _ = await loading
        assert len(statuses) == 3
        await node.ready("nats", "node-lease")

        async def is_back() -> bool:
            page = await node.get("/v1/engines")
            return page is not None and [entry["complete"] for entry in page["engines"]] == [True]

        await engine.until(is_back)
        # What ranks copied for their last attachment is a miss; they hear of the new one within a few steps.
        async with asyncio.timeout(WAIT_SECONDS):
            new = Prompt(20, 2)
            while (await engine.load(new, 30))[0] != [ItemStatus.OK] * 2:
                new = Prompt(int(new.request_id) + 1, 2)
                engine.compute(new, 40)
                await engine.until(lambda: not engine.desk.busy)
                await asyncio.sleep(0.01)
        assert (await engine.load(kept, 20))[0] == [ItemStatus.OK] * 3
