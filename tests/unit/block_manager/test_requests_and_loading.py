"""Over the API and the engines' channel: why a request was a miss, and loads switched off while engines are there."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

import httpx
import pytest
from tests.unit.block_manager.connector_kit import RUN, Peer, Setting, fill, run_of, setting, u32, u64

from blockyard.core.errors import LoadingOffError, RequestError, UnavailableError
from blockyard.core.miss_reason import MissReason
from blockyard.core.vocabulary import Availability, ItemStatus
from blockyard.wire import connector_channel as channel
from blockyard.wire.events import InstanceRecord
from blockyard_block_manager.api.application import make_application
from blockyard_block_manager.api.ports import ApiPorts
from blockyard_block_manager.remote_index import RemoteIndex

__all__ = ["setting"]  # a fixture

DECISION = channel.RequestDecision(
    request="cmpl/1",
    prompt_tokens=100,
    local_tokens=16,
    found_tokens={"g2": 32},
    loaded_tokens=32,
    reason="too_dear",
    lookup_ms=0.5,
)
HITS, MISSES = bytes([Availability.G2] * 4), bytes([Availability.MISS] * 4)


@dataclass
class Node:
    """A served world with its API, and one engine whose blocks are in G2."""

    setting: Setting
    http: httpx.AsyncClient
    peer: Peer

    def counter(self, name: str, **labels: str) -> float:
        return self.setting.world.counter(name, **labels)

    async def switch(self, enabled: bool) -> None:
        response = await self.http.put("/v1/loading", json={"enabled": enabled})
        assert (response.status_code, response.json()) == (200, {"enabled": enabled})

    async def availability(self) -> channel.LookupReply:
        reply = await self.peer.ask(channel.Lookup(run=run_of(RUN)))
        assert isinstance(reply, channel.LookupReply)
        return reply

    def load(self, first_block: int) -> channel.OpenLoad:
        (memory,) = self.setting.mapper.mapped.values()
        pages = range(first_block, first_block + len(RUN))
        guards = u64(*(memory.guards[page] for page in pages))
        return channel.OpenLoad(request="r", run=run_of(RUN), pages=u32(*pages), guards=guards, ttl_ms=9_000)


async def nobody() -> tuple[InstanceRecord, ...]:
    raise UnavailableError("NATS is away")


@pytest.fixture
async def node(setting: Setting) -> AsyncIterator[Node]:
    index = RemoteIndex(setting.world.clock)
    application = make_application(ApiPorts(core=setting.world.core, index=index, list_instances=nobody))
    transport = httpx.ASGITransport(app=application)
    peer = await setting.peer()
    await peer.join()
    await peer.ask(fill(setting, RUN))
    setting.world.settle()
    async with httpx.AsyncClient(transport=transport, base_url="http://node") as http:
        yield Node(setting, http, peer)
    await index.close()


# --- requests -----------------------------------------------------------------------------------------------------
async def test_what_an_engine_reported_is_answered_in_words_and_counted(node: Node) -> None:
    assert node.counter("request_decisions_total", reason="too_dear") == 0
    await node.peer.ask(channel.ReportDecisions(decisions=(DECISION,)))
    node.setting.world.clock.advance(3.0)
    response = await node.http.get("/v1/requests/cmpl%2F1")
    assert response.status_code == 200
    assert response.json() == {
        "request": "cmpl/1",
        "reports": [
            {
                "engine": "e",
                "dp_rank": 0,
                "age_seconds": 3.0,
                "prompt_tokens": 100,
                "local_tokens": 16,
                "found_tokens": {"g2": 32},
                "loaded_tokens": 32,
                "reason": "too_dear",
                "explanation": MissReason.TOO_DEAR.sentence,
                "lookup_ms": 0.5,
            }
        ],
    }
    assert node.counter("request_decisions_total", reason="too_dear") == 1


async def test_a_request_that_nobody_reported_is_a_problem_that_says_so(node: Node) -> None:
    response = await node.http.get("/v1/requests/never")
    assert response.status_code == 404
    assert response.headers["content-type"] == "application/problem+json"
    body = response.json()
    assert (body["type"], body["detail"]) == ("urn:blockyard:problem:request-not-seen", "not seen here")
    assert (body["request"], body["remembered"]) == ("never", 0)


async def test_a_report_that_cannot_be_is_refused_and_the_engine_stays_connected(node: Node) -> None:
    wrong = channel.RequestDecision(request="r", prompt_tokens=-1, local_tokens=0, reason="not_stored")
    with pytest.raises(RequestError, match="tokens"):
        await node.peer.ask(channel.ReportDecisions(decisions=(DECISION, wrong)))
    assert (await node.http.get("/v1/requests/cmpl%2F1")).status_code == 404
    assert (await node.availability()).availability == HITS


# --- the switch ---------------------------------------------------------------------------------------------------
async def test_switched_off_every_block_is_a_miss_and_on_again_a_hit(node: Node) -> None:
    assert (await node.http.get("/v1/loading")).json() == {"enabled": True}
    assert node.counter("loading_enabled") == 1
    await node.switch(False)
    assert node.counter("loading_enabled") == 0
    lookups = node.counter("lookups_total")
    assert await node.availability() == channel.LookupReply(availability=MISSES, loading=False)
    assert node.counter("lookups_total") == lookups, "nothing was asked"
    await node.switch(True)
    assert await node.availability() == channel.LookupReply(availability=HITS)


async def test_connected_engines_hear_of_each_change_once_and_new_ones_at_hello(node: Node) -> None:
    await node.switch(False)
    await node.switch(False)
    await node.switch(True)
    await node.switch(False)
    heard = [await asyncio.wait_for(node.peer.pushes.get(), 5.0) for _ in range(3)]
    assert heard == [channel.LoadingSwitched(loading=loading) for loading in (False, True, False)]
    await node.availability()
    assert node.peer.pushes.empty()
    assert not (await (await node.setting.peer()).join(engine="late")).loading


async def test_a_load_that_runs_ends_as_it_would_and_a_new_one_is_refused(node: Node) -> None:
    opened = await node.peer.ask(node.load(8))
    assert isinstance(opened, channel.LoadOpened)
    await node.switch(False)
    with pytest.raises(LoadingOffError):
        await node.peer.ask(node.load(16))
    node.setting.world.settle()
    pushes = [await asyncio.wait_for(node.peer.pushes.get(), 5.0) for _ in range(2)]
    (finished,) = [push for push in pushes if isinstance(push, channel.LoadFinished)]
    assert finished.status == bytes([ItemStatus.OK] * len(RUN))
    assert len(node.setting.world.core.loads) == 0


async def test_stores_go_on_while_loads_are_off(node: Node) -> None:
    await node.switch(False)
    more = type(RUN)(bytes(reversed(RUN.digests)))
    await node.peer.ask(fill(node.setting, more, first_block=8))
    node.setting.world.settle()
    await node.switch(True)
    reply = await node.peer.ask(channel.Lookup(run=run_of(more)))
    assert reply == channel.LookupReply(availability=HITS)


@pytest.mark.parametrize("body", [{}, {"enabled": 1}, {"enabled": "off"}, {"enabled": False, "more": 1}])
async def test_the_switch_takes_true_and_false_only(node: Node, body: dict[str, object]) -> None:
    assert (await node.http.put("/v1/loading", json=body)).status_code == 422
    assert (await node.http.get("/v1/loading")).json() == {"enabled": True}
