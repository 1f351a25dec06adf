"""A node of real processes with engines that compute and load, for tests of the whole path."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from uuid import uuid4

import nats
import pytest
from pydantic import ByteSize, SecretStr

from blockyard.cli.embedded.nats import NatsServer
from blockyard.cli.embedded.seaweedfs import SeaweedfsServer
from blockyard.cli.embedded.valkey import ValkeyServer
from blockyard.cli.run_folder import RunFolder
from blockyard.connectors.client import BlockyardClient
from blockyard.connectors.engine_memory import EngineMemory
from blockyard.connectors.mock.oracle import payload, wrong_bytes
from blockyard.core.chain_run import ChainRun
from blockyard.core.hashing import content_run
from blockyard.core.identity import ModelIdentity, SequenceScope
from blockyard.core.vocabulary import Availability, EngineBlockId, EngineId, ItemStatus, RequestId, Tier
from blockyard.runtime.node_folder import ServiceName
from blockyard.runtime.settings import (
    G2Section,
    G3Section,
    G4Section,
    NatsSection,
    NodeSection,
    NodeSettings,
    RedisSection,
)
from blockyard.testing.event_fold import EventFold
from blockyard.testing.running_node import RunningNode
from blockyard.wire.event_codec import decode_event
from blockyard.wire.subjects import events_of

BLOCK_BYTES = 16_384
BLOCK_TOKENS = 16
BLOCKS = 64
IDENTITY = ModelIdentity(model="test", block_bytes=BLOCK_BYTES, block_tokens=BLOCK_TOKENS)
ALL = tuple(ServiceName)
BM, OW, RT = ServiceName.BLOCK_MANAGER, ServiceName.OFFLOAD_WORKER, ServiceName.REMOTE_TIER
_databases = count(1)


def run_of(blocks: int, first: int = 0) -> ChainRun:
    return content_run(IDENTITY.digest(), SequenceScope(), range(first, first + blocks * BLOCK_TOKENS), BLOCK_TOKENS)


@dataclass
class Engine:
    client: BlockyardClient
    memory: EngineMemory

    async def compute(self, run: ChainRun, first_block: int = 0) -> None:
        """Fill memory blocks as a forward pass would, then register them."""
        blocks = [EngineBlockId(first_block + index) for index in range(len(run))]
        self.memory.raise_guards(blocks)
        for block, key in zip(blocks, run, strict=True):
            self.memory.view(block)[:] = payload(IDENTITY.digest(), key, BLOCK_BYTES)
        await self.client.register(run, blocks)

    async def lookup(self, run: ChainRun, *, remote_wait_seconds: float = 0.0) -> tuple[Availability, ...]:
        """Where the blocks of the only KV group lie."""
        (found,) = await self.client.lookup(run, remote_wait_seconds=remote_wait_seconds)
        return found

    async def load(self, run: ChainRun, first_block: int = 0) -> tuple[list[ItemStatus], list[Tier | None]]:
        """Load into memory blocks and compare every byte of what is reported as loaded."""
        blocks = [EngineBlockId(first_block + index) for index in range(len(run))]
        self.memory.raise_guards(blocks)
        result = await self.client.load(RequestId(uuid4().hex), run, blocks, ttl_seconds=5.0)
        for block, key, status in zip(blocks, run, result.statuses, strict=True):
            if status is ItemStatus.OK:
                assert wrong_bytes(self.memory.view(block), IDENTITY.digest(), key) == 0
        return list(result.statuses), list(result.sources)


@asynccontextmanager
async def engine(node: RunningNode, name: str) -> AsyncIterator[Engine]:
    with EngineMemory(BLOCKS, BLOCK_BYTES) as memory:
        description = memory.description(EngineId(name), IDENTITY)
        async with BlockyardClient(node.engine_socket, description, memory.guards, memory=memory.rank) as client:
            await client.wait_connected(20.0)
            yield Engine(client, memory)


@pytest.fixture
def node_folder(run_folder: RunFolder) -> Path:
    folder = run_folder.path / f"n{uuid4().hex[:6]}"
    folder.mkdir()
    return folder


def local_settings(folder: Path, nats_url: str = "nats://127.0.0.1:1") -> NodeSettings:
    return NodeSettings(
        node=NodeSection(name=folder.name, folder=folder, block_bytes=ByteSize(BLOCK_BYTES), block_tokens=BLOCK_TOKENS),
        g2=G2Section(capacity=ByteSize(32 * BLOCK_BYTES)),
        g3=G3Section(capacity=ByteSize(128 * BLOCK_BYTES)),
        g4=G4Section(enabled=False),
        nats=NatsSection(url=SecretStr(nats_url), timeout_seconds=1.0),
    )


@pytest.fixture
def settings(
    node_folder: Path, nats_server: NatsServer, valkey_server: ValkeyServer, seaweedfs_server: SeaweedfsServer
) -> NodeSettings:
    local = local_settings(node_folder, nats_server.url)
    return local.model_copy(
        update={
            "g4": G4Section(
                endpoint_url=seaweedfs_server.url,
                access_key=SecretStr(seaweedfs_server.access_key),
                secret_key=SecretStr(seaweedfs_server.secret_key),
                bucket=f"b{uuid4().hex[:12]}",
                target_bytes=ByteSize(4 * (BLOCK_BYTES + 256)),
                tail_idle_seconds=0.2,
            ),
            # An index describes one store: each bucket gets a database of its own.
            "redis": RedisSection(url=SecretStr(f"{valkey_server.url.rsplit('/', 1)[0]}/{next(_databases)}")),
        }
    )


async def published(node: RunningNode, nats_url: str) -> EventFold:
    """Fold of all events on the bus, up to the last that the node had appended when asked."""
    fold = EventFold()
    connection = await nats.connect(nats_url)
    try:
        subject = events_of(node.settings.node.namespace, node.settings.node.name)
        subscription = await connection.jetstream().subscribe(subject, ordered_consumer=True)
        last = (await node.get("/v1/nodes"))["this"]["last_event"]
        while fold.cursor < last:
            message = await subscription.next_msg(timeout=5.0)
            fold.receive(decode_event(message.data))
    finally:
        await connection.close()
    return fold
