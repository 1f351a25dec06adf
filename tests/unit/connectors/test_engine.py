"""The demo engine: what it counts, and that it never serves bytes it did not check."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from blockyard.connectors.client import BlockyardClient
from blockyard.connectors.engine_memory import EngineMemory
from blockyard.connectors.mock.engine import MockEngine
from blockyard.connectors.mock.oracle import payload
from blockyard.connectors.mock.trace import TRACE_BLOCK_TOKENS, TraceRequest
from blockyard.core.identity import ModelIdentity
from blockyard.core.vocabulary import Availability, ContentKey, EngineBlockId, EngineId, ItemStatus, Tier
from blockyard.testing.scripted_manager import WAIT_SECONDS, ScriptedManager, served
from blockyard.wire import connector_channel as channel

BLOCK_BYTES = 4_096
IDENTITY = ModelIdentity(model="m", block_bytes=BLOCK_BYTES, block_tokens=TRACE_BLOCK_TOKENS)
REQUEST = TraceRequest(0, 0.0, (1, 2, 3))


class Node:
    """A node that claims to hold the first blocks of a request and loads what the test wants."""

    def __init__(self, memory: EngineMemory, hits: int, *, lying: bool) -> None:
        self.script = ScriptedManager()
        self._memory = memory
        self._hits = hits
        self._lying = lying
        self.script.answers[channel.Lookup] = self._lookup
        self.script.answers[channel.OpenLoad] = self._open_load

    async def _lookup(self) -> channel.Reply:
        asked = self.script.of(channel.Lookup)[-1]
        assert isinstance(asked, channel.Lookup)
        count = len(asked.run.digests) // 32
        found = [Availability.G3] * self._hits + [Availability.MISS] * (count - self._hits)
        return channel.LookupReply(availability=bytes(found))

    async def _open_load(self) -> channel.Reply:
        asked = self.script.of(channel.OpenLoad)[-1]
        assert isinstance(asked, channel.OpenLoad)
        for index in range(self._hits):
            key = ContentKey(asked.run.digests[index * 32 : index * 32 + 16])
            block = EngineBlockId(int.from_bytes(asked.pages[index * 4 : index * 4 + 4], "little"))
            self._memory.view(block)[:] = 0 if self._lying else payload(IDENTITY.digest(), key, BLOCK_BYTES)
        finished = channel.LoadFinished(
            load=1, status=bytes([ItemStatus.OK] * self._hits), sources=bytes([Tier.G3] * self._hits)
        )
        self.script.sessions[-1].push(finished)
        return channel.LoadOpened(load=1)


@asynccontextmanager
async def engine_on(path: Path, *, hits: int, lying: bool = False) -> AsyncIterator[tuple[MockEngine, Node]]:
    with EngineMemory(8, BLOCK_BYTES) as memory:
        description = memory.description(EngineId("e"), IDENTITY)
        node = Node(memory, hits, lying=lying)
        async with (
            served(path, node.script),
            BlockyardClient(path, description, memory.guards, memory=memory.rank) as client,
        ):
            await client.wait_connected(WAIT_SECONDS)
            yield MockEngine(client, memory, IDENTITY), node


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "c.sock"


async def test_hits_are_loaded_and_checked_and_the_rest_is_computed(path: Path) -> None:
    async with engine_on(path, hits=2) as (engine, node):
        outcomes = await engine.serve(REQUEST)
        assert [outcome.status for outcome in outcomes] == [ItemStatus.OK, ItemStatus.OK, None]
        assert engine.counts.verified[Tier.G3] == engine.counts.foreign[Tier.G3] == 2
        assert (engine.counts.computed, engine.counts.wrong_bytes) == (1, 0)
        registered = node.script.of(channel.Register)[0]
        assert isinstance(registered, channel.Register)
        assert registered.run.digests == engine.run_of(REQUEST).digests


async def test_the_own_cache_answers_the_second_time(path: Path) -> None:
    async with engine_on(path, hits=0) as (engine, node):
        await engine.serve(REQUEST)
        await engine.serve(REQUEST)
        assert engine.counts.g1_hits == engine.counts.computed == 3
        assert len(node.script.of(channel.Lookup)) == 1


async def test_wrong_bytes_are_counted_and_computed_again(path: Path) -> None:
    """A node that serves zeroes as a hit is found out by every single block."""
    async with engine_on(path, hits=2, lying=True) as (engine, _):
        outcomes = await engine.serve(REQUEST)
        assert engine.counts.wrong_blocks == 2
        assert engine.counts.wrong_bytes > 2 * BLOCK_BYTES * 0.9
        assert all(outcome.wrong_bytes for outcome in outcomes[:2])
        assert engine.counts.computed == 3
        assert sum(engine.counts.verified.values()) == 0


async def test_after_a_reset_the_node_is_asked_again(path: Path) -> None:
    async with engine_on(path, hits=3) as (engine, node):
        await engine.serve(REQUEST)
        await engine.reset()
        await engine.serve(REQUEST)
        assert engine.counts.verified[Tier.G3] == 6
        assert len(node.script.of(channel.Reset)) == 1
