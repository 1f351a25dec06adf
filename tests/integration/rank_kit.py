"""Rank processes that copy by themselves, and engines that tell them where, for tests on a real node."""

import asyncio
import hashlib
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.integration.engine_kit import BLOCK_BYTES, BLOCK_TOKENS

from blockyard.connectors.client import BlockyardClient, EngineDescription
from blockyard.connectors.engine_guards import EngineGuards
from blockyard.connectors.slot_calls import StagedLoad, StoreGrant
from blockyard.core.chain_run import ChainRun
from blockyard.core.identity import ModelIdentity
from blockyard.core.kv_groups import KvGroup
from blockyard.core.vocabulary import Availability, EngineId, Executor, ItemStatus, RequestId
from blockyard.testing.running_node import WAIT_SECONDS, RunningNode, eventually

ROW_BYTES = BLOCK_BYTES - 1_024


def run_of(name: int, rows: int = 1) -> ChainRun:
    return ChainRun(b"".join(hashlib.sha256(f"{name + row}".encode()).digest() for row in range(rows)))


@dataclass
class Rank:
    """A rank process."""

    process: asyncio.subprocess.Process

    @property
    def pid(self) -> int:
        return self.process.pid

    async def tell(self, do: str, slot: int, generation: int, name: int) -> str:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        order = {"do": do, "slot": slot, "generation": generation, "name": name}
        self.process.stdin.write(json.dumps(order).encode() + b"\n")
        async with asyncio.timeout(WAIT_SECONDS):
            return (await self.process.stdout.readline()).decode().strip()

    async def kill(self) -> None:
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()


@asynccontextmanager
async def rank_process(node: RunningNode, name: str, rank: int = 0, ranks: int = 1) -> AsyncIterator[Rank]:
    script = Path(__file__).with_name("rank_process.py")
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(script),
        str(node.engine_socket),
        name,
        *map(str, (ROW_BYTES, rank, ranks)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    started = Rank(process)
    try:
        yield started
    finally:
        await started.kill()


@asynccontextmanager
async def engine(node: RunningNode, name: str, ranks: int = 1) -> AsyncIterator[BlockyardClient]:
    description = EngineDescription(
        engine=EngineId(name),
        identity=ModelIdentity(
            model="ranks", block_tokens=BLOCK_TOKENS, block_bytes=BLOCK_BYTES, parallel_shape=f"tp{ranks}"
        ),
        blocks=8,
        ranks=ranks,
        groups=(KvGroup(engine_block_tokens=BLOCK_TOKENS),),
        executor=Executor.ENGINE,
    )
    with EngineGuards(8) as guards:
        async with BlockyardClient(node.engine_socket, description, guards) as client:
            await client.wait_connected(WAIT_SECONDS)
            yield client


async def granted(client: BlockyardClient, count: int, seconds: float = WAIT_SECONDS) -> StoreGrant:
    """A grant of at least one slot, as soon as there is one."""
    found: list[StoreGrant] = []

    async def some() -> bool:
        if client.connected:
            found[:] = [await client.reserve_store(count)]
        return bool(found and found[0].slots)

    await eventually(some, "slots are granted", seconds)
    return found[0]


async def store(client: BlockyardClient, rank: Rank, name: int, rows: int = 1) -> None:
    for row in range(rows):
        grant = await granted(client, 1)
        assert await rank.tell("write", grant.slots[0], grant.generations[0], name + row) == "written"
        run = run_of(name, rows)
        one = ChainRun(run.digests[32 * row : 32 * (row + 1)]) if rows == 1 else run_of(name + row)
        await client.commit_store(grant.grant, grant.slots, one, shards=1)


async def load(client: BlockyardClient, rank: Rank, name: int) -> tuple[ItemStatus, str]:
    """Status of a row, and what the rank found in its slot."""
    staged: StagedLoad = await client.stage_load(RequestId(f"r{name}"), run_of(name), ttl_seconds=5.0)
    (status,) = staged.statuses
    found = "miss"
    if status is ItemStatus.OK:
        found = await rank.tell("read", staged.slots[0], staged.generations[0], name)
    await client.close_load(staged.load)
    return status, found


async def stored(client: BlockyardClient, name: int) -> None:
    async def there() -> bool:
        return await client.lookup(run_of(name)) == ((Availability.G2,),)

    await eventually(there, "the row is registered")
