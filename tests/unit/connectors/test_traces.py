"""Traces of an engine's requests: named to the node with the calls, begun per request by the demo engine."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from blockyard.connectors.client import BlockyardClient
from blockyard.connectors.engine_memory import EngineMemory
from blockyard.connectors.mock.engine import MockEngine
from blockyard.connectors.mock.request_traces import BeginTrace, no_traces, traces_at_ratio
from blockyard.connectors.mock.trace import TRACE_BLOCK_TOKENS, TraceRequest
from blockyard.core.hashing import content_run
from blockyard.core.identity import ModelIdentity, SequenceScope
from blockyard.core.vocabulary import Availability, EngineBlockId, EngineId, ItemStatus, RequestId, Tier
from blockyard.runtime.rpc.session import RpcSession
from blockyard.testing.scripted_manager import WAIT_SECONDS, ScriptedManager, served
from blockyard.wire import connector_channel as channel
from blockyard.wire.trace_parent import NO_TRACE, is_sampled, new_trace

BLOCK_BYTES = 4_096
IDENTITY = ModelIdentity(model="m", block_bytes=BLOCK_BYTES, block_tokens=TRACE_BLOCK_TOKENS)
RUN = content_run(IDENTITY.digest(), SequenceScope(), range(2 * TRACE_BLOCK_TOKENS), TRACE_BLOCK_TOKENS)
BLOCKS = (EngineBlockId(0), EngineBlockId(1))


class Node(ScriptedManager):
    """A node that has the first block of everything and loads it with wrong bytes."""

    async def handle(self, session: RpcSession, request: channel.Request, fds: list[int]) -> channel.Reply:
        reply = await super().handle(session, request, fds)
        if isinstance(request, channel.Lookup):
            missing = len(request.run.digests) // 32 - 1
            return channel.LookupReply(availability=bytes([Availability.G2] + [Availability.MISS] * missing))
        if isinstance(request, channel.OpenLoad):
            count = len(request.run.digests) // 32
            status, sources = bytes([ItemStatus.OK] * count), bytes([Tier.G2] * count)
            self.sessions[-1].push(channel.LoadFinished(load=7, status=status, sources=sources))
        return reply


@asynccontextmanager
async def connected(path: Path) -> AsyncIterator[tuple[BlockyardClient, EngineMemory, Node]]:
    with EngineMemory(8, BLOCK_BYTES) as memory:
        description, node = memory.description(EngineId("e"), IDENTITY), Node()
        async with served(path, node), BlockyardClient(path, description, memory.guards, memory=memory.rank) as client:
            await client.wait_connected(WAIT_SECONDS)
            yield client, memory, node


async def test_calls_name_the_trace_of_the_engines_request(tmp_path: Path) -> None:
    trace = new_trace()
    async with connected(tmp_path / "s") as (client, _, node):
        await client.lookup(RUN, trace=trace)
        await client.load(RequestId("r"), RUN, BLOCKS, ttl_seconds=1.0, trace=trace)
        await client.register(RUN, BLOCKS, trace=trace)
        for kind in (channel.Lookup, channel.OpenLoad, channel.Register):
            assert node.traces_of(kind) == [trace]
        assert node.traces_of(channel.Hello) == [NO_TRACE]


@pytest.mark.parametrize("trace", ["", "no trace", "x" * 100_000, f"00-{'AB' * 16}-{'CD' * 8}-01"])
async def test_what_is_no_trace_is_not_sent(tmp_path: Path, trace: str) -> None:
    async with connected(tmp_path / "s") as (client, _, node):
        await client.lookup(RUN, trace=trace)
        assert node.traces_of(channel.Lookup) == [NO_TRACE]


# --- demo engine --------------------------------------------------------------------------------------------------
async def served_requests(path: Path, begin_trace: BeginTrace) -> Node:
    async with connected(path) as (client, memory, node):
        engine = MockEngine(client, memory, IDENTITY, begin_trace)
        for index in range(2):
            await engine.serve(TraceRequest(index, 0.0, (index * 10, index * 10 + 1)))
        return node


async def test_each_request_of_the_demo_engine_has_one_trace(tmp_path: Path) -> None:
    node = await served_requests(tmp_path / "s", traces_at_ratio(1.0))
    looked_up = node.traces_of(channel.Lookup)
    assert len(set(looked_up)) == 2
    assert node.traces_of(channel.OpenLoad) == node.traces_of(channel.Register) == looked_up
    assert all(map(is_sampled, looked_up))


async def test_by_default_the_demo_engine_leaves_the_decision_to_the_services(tmp_path: Path) -> None:
    node = await served_requests(tmp_path / "s", no_traces)
    assert set(node.traces) == {NO_TRACE}
    assert traces_at_ratio(0.0) is no_traces


def test_the_ratio_decides_once_and_for_all_who_joins() -> None:
    draws = iter((0.0, 0.29, 0.3, 0.9))
    begin = traces_at_ratio(0.3, lambda: next(draws))
    traces = [begin() for _ in range(4)]
    assert [is_sampled(trace) for trace in traces] == [True, True, False, False]
    assert NO_TRACE not in traces
