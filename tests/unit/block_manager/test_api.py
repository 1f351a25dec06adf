"""REST API over the application in process: answers, problems, limits."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, MutableMapping
from typing import Any

import httpx
import pytest
from tests.unit.block_manager.api_kit import DIGESTS, IDENTITY, Api, Link, api, client, nobody
from tests.unit.block_manager.world import OW, RT, MakeWorld, World

from blockyard.core.errors import (
    BlockNotFoundError,
    BlockStateError,
    BlockyardError,
    DeadlineExceededError,
    FencedError,
    RevisionConflictError,
    StorageError,
    TooManyKeysError,
)
from blockyard.core.states import RowState
from blockyard.core.vocabulary import Tier
from blockyard.runtime.current_trace import current_trace
from blockyard.runtime.span_names import SpanName
from blockyard.testing.blocks import chain
from blockyard.wire.events import InstanceRecord
from blockyard.wire.trace_parent import NO_TRACE, new_trace
from blockyard_block_manager.api.application import make_application
from blockyard_block_manager.api.limits import MAX_BODY_BYTES, BodyLimit
from blockyard_block_manager.api.ports import ApiPorts
from blockyard_block_manager.decisions import DecisionError
from blockyard_block_manager.remote_index import RemoteIndex

__all__ = ["api"]  # a fixture


async def test_tiers_show_what_they_hold(api: Api) -> None:
    tiers = {tier["tier"]: tier for tier in (await api.http.get("/v1/tiers")).json()["tiers"]}
    assert {name: tier["registered_blocks"] for name, tier in tiers.items()} == {"g1": 4, "g2": 4, "g3": 4, "g4": 4}
    assert (tiers["g2"]["capacity_blocks"], tiers["g1"]["capacity_blocks"]) == (16, None)
    assert all(tier["available"] for tier in tiers.values())
    api.world.lose(OW)
    tiers = {tier["tier"]: tier for tier in (await api.http.get("/v1/tiers")).json()["tiers"]}
    assert (tiers["g2"]["available"], tiers["g3"]["available"]) == (False, False)


async def test_what_becomes_of_every_slot_adds_up_to_the_capacity(api: Api) -> None:
    pool = api.world.core.tables.pool(Tier.G2)
    with pytest.warns(ResourceWarning, match="MutableBlocks blocks=3"):
        pool.allocate(3)
    writer = pool.allocate(2).blocks
    tier = (await api.http.get("/v1/tiers")).json()["tiers"][1]
    assert (tier["tier"], tier["capacity_blocks"], tier["abandoned_blocks"]) == ("g2", 16, 3)
    assert tier["writing_blocks"] == 2
    states = ("registered", "writing", "freeing", "free", "abandoned")
    assert sum(tier[f"{state}_blocks"] for state in states) == 16
    api.world.core.update_gauges()
    rows = {state: api.world.counter("blocks", tier="g2", state=state.label) for state in RowState}
    writer.release()
    assert rows[RowState.ABANDONED] == api.world.counter("leaked_blocks", tier="g2") == 3
    assert sum(rows.values()) == api.world.counter("capacity_blocks", tier="g2") == 16


async def test_a_node_that_never_saw_its_worker_still_answers(make_world: MakeWorld) -> None:
    world: World = make_world(g4=False)
    async with client(world, RemoteIndex(world.clock), nobody) as http:
        tiers = (await http.get("/v1/tiers")).json()["tiers"]
        assert [tier["capacity_blocks"] for tier in tiers] == [None] * 4
        body = (await http.post("/v1/lookup", json={"identity": IDENTITY, "digests": DIGESTS})).json()
        assert body == {"availability": ["unknown"] * 4, "prefix_blocks": 0}


async def test_engines_are_listed_with_their_sets(api: Api) -> None:
    (engine,) = (await api.http.get("/v1/engines")).json()["engines"]
    assert (engine["engine"], engine["registered_blocks"], engine["mapped"]) == ("one", 4, True)
    assert engine["identity"] == IDENTITY


async def test_nodes_are_this_one_and_those_with_a_lease(api: Api) -> None:
    body = (await api.http.get("/v1/nodes")).json()
    assert (body["this"]["instance"], body["known"], body["nodes"]) == ("node", False, [])
    assert [worker["phase"] for worker in body["this"]["workers"]] == ["ready", "ready"]

    async def two() -> tuple[InstanceRecord, ...]:
        return tuple(
            InstanceRecord(instance=name, folder="f", epoch=1, api_url="http://x", engines=("e",)) for name in "ab"
        )

    async with client(api.world, api.index, two) as http:
        body = (await http.get("/v1/nodes")).json()
        assert (body["known"], [node["instance"] for node in body["nodes"]]) == (True, ["a", "b"])


async def test_a_lookup_answers_per_block(api: Api) -> None:
    more = [*DIGESTS, chain("b", 1).digest(0).hex()]
    body = (await api.http.post("/v1/lookup", json={"identity": IDENTITY, "digests": more})).json()
    assert body == {"availability": ["g2"] * 4 + ["miss"], "prefix_blocks": 4}
    assert api.world.counter("lookup_blocks_total", tier="g2", outcome="hit") == 4
    assert api.world.counter("lookup_blocks_total", tier="none", outcome="miss") == 1


async def test_a_lookup_with_time_asks_the_shared_index_for_the_rest(api: Api) -> None:
    link = Link()
    api.index.connect(link)
    other = chain("b", 2)
    body = {"identity": IDENTITY, "digests": [other.digest(0).hex(), other.digest(1).hex()], "remote_wait_ms": 50}
    answer = (await api.http.post("/v1/lookup", json=body)).json()
    assert answer == {"availability": ["g4", "g4"], "prefix_blocks": 2}
    link.answering = False
    answer = (await api.http.post("/v1/lookup", json=body)).json()
    assert answer == {"availability": ["unknown", "unknown"], "prefix_blocks": 0}


async def test_what_lies_in_the_store_is_no_hit_while_no_slot_may_be_granted_for_it(api: Api) -> None:
    world = api.world
    world.start_manager()
    world.attach(OW)
    world.settle()
    index = RemoteIndex(world.clock)
    index.connect(Link())
    body = {"identity": IDENTITY, "digests": [chain("b", 1).digest(0).hex()], "remote_wait_ms": 50}
    async with client(world, index, nobody) as http:
        assert (await http.post("/v1/lookup", json=body)).json()["availability"] == ["unknown"]
        world.attach(RT)
        world.settle()
        assert (await http.post("/v1/lookup", json=body)).json()["availability"] == ["g4"]
    await index.close()


async def test_a_lookup_belongs_to_the_trace_that_its_header_names(api: Api) -> None:
    link, trace = Link(), new_trace()
    index = RemoteIndex(api.world.clock, api.world.core.spans)
    index.connect(link)
    api.world.tracer.spans.clear()
    body = {"identity": IDENTITY, "digests": [chain("b", 1).digest(0).hex()], "remote_wait_ms": 50}
    async with client(api.world, index, nobody) as http:
        await http.post("/v1/lookup", json=body, headers={"traceparent": trace})
    lookup, question = api.world.tracer.only(SpanName.LOOKUP), api.world.tracer.only(SpanName.INDEX_FIND)
    assert (lookup.parent, question.parent) == (trace, lookup.traceparent)
    assert link.works == [trace], "what is logged meanwhile names it"
    assert current_trace() == NO_TRACE


@pytest.mark.parametrize(
    "headers",
    [[], [""], ["no trace"], [new_trace().upper()], [new_trace(), new_trace()], ["00-\xe9"], ["x" * 10_000]],
    ids=["none", "empty", "text", "upper case", "two", "not ascii", "long"],
)
async def test_a_lookup_whose_header_names_no_trace_begins_one(api: Api, headers: list[str]) -> None:
    api.world.tracer.spans.clear()
    sent = [(b"traceparent", value.encode("latin-1")) for value in headers]
    body = {"identity": IDENTITY, "digests": DIGESTS}
    assert (await api.http.post("/v1/lookup", json=body, headers=sent)).status_code == 200
    assert api.world.tracer.only(SpanName.LOOKUP).parent == NO_TRACE


async def test_a_lookup_of_a_trace_that_is_not_recorded_leaves_no_span(api: Api) -> None:
    api.world.tracer.spans.clear()
    headers = {"traceparent": new_trace(sampled=False)}
    await api.http.post("/v1/lookup", json={"identity": IDENTITY, "digests": DIGESTS}, headers=headers)
    assert api.world.tracer.spans == []


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"identity": "xy", "digests": []},
        {"identity": IDENTITY, "digests": ["ab"]},
        {"identity": IDENTITY, "digests": [DIGESTS[0].upper()]},
        {"identity": IDENTITY, "digests": DIGESTS, "first_position": -1},
        {"identity": IDENTITY, "digests": DIGESTS, "first_position": True},
        {"identity": IDENTITY, "digests": DIGESTS, "remote_wait_ms": "10"},
        {"identity": IDENTITY, "digests": DIGESTS, "surprise": 1},
        {"identity": IDENTITY, "digests": ["0" * 64] * 4_097},
        [],
    ],
)
async def test_a_body_that_does_not_fit_names_its_fields(api: Api, body: object) -> None:
    problem = await api.problem(api.http.post("/v1/lookup", json=body), 422, "invalid-request")
    assert problem["errors"]


@pytest.mark.parametrize(
    "changes", [{"digests": [DIGESTS[0], DIGESTS[0]]}, {"first_position": 3}, {"parent": "1" * 32}]
)
async def test_columns_that_are_no_run_are_refused(api: Api, changes: dict[str, object]) -> None:
    body = {"identity": IDENTITY, "digests": DIGESTS, **changes}
    await api.problem(api.http.post("/v1/lookup", json=body), 400, "bad-request")


async def test_of_many_wrong_digests_one_is_named(api: Api) -> None:
    body = {"identity": IDENTITY, "digests": ["z"] * 4_096}
    problem = await api.problem(api.http.post("/v1/lookup", json=body), 422, "invalid-request")
    assert [error["field"] for error in problem["errors"]] == ["body.digests.0"]  # type: ignore[attr-defined]


async def test_of_many_wrong_fields_some_are_named(api: Api) -> None:
    body = {f"surprise-{number}": 1 for number in range(1_000)}
    problem = await api.problem(api.http.post("/v1/lookup", json=body), 422, "invalid-request")
    assert len(problem["errors"]) == 16  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["text/plain", "application/xml", "application/x-www-form-urlencoded", ""])
async def test_a_body_that_is_not_said_to_be_json_is_refused_as_such(api: Api, kind: str) -> None:
    content = json.dumps({"identity": IDENTITY, "digests": DIGESTS})
    sent = api.http.post("/v1/lookup", content=content, headers={"content-type": kind})
    await api.problem(sent, 415, "unsupported-media-type")


async def test_unknown_pages_methods_and_tiers_are_problems(api: Api) -> None:
    await api.problem(api.http.get("/v1/nothing"), 404, "not-found")
    await api.problem(api.http.get("/v1/tiers/"), 404, "not-found")
    await api.problem(api.http.get("/v1/lookup"), 405, "method-not-allowed")
    assert (await api.http.get("/v1/lookup")).headers["allow"] == "POST"
    await api.problem(api.http.post("/v1/tiers/g9:clear"), 422, "invalid-request")


async def test_a_body_that_is_no_json_is_a_problem(api: Api) -> None:
    sent = api.http.post("/v1/lookup", content=b"{", headers={"content-type": "application/json"})
    await api.problem(sent, 422, "invalid-request")
    deep = api.http.post("/v1/lookup", content=b"[" * 100_000, headers={"content-type": "application/json"})
    assert (await deep).headers["content-type"] == "application/problem+json"


async def test_a_body_beyond_the_limit_is_refused_however_it_is_announced(api: Api) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(MAX_BODY_BYTES // 65_536 + 1):
            yield b" " * 65_536

    await api.problem(api.http.post("/v1/lookup", content=b" " * (MAX_BODY_BYTES + 1)), 413, "body-too-large")
    await api.problem(api.http.post("/v1/lookup", content=chunks()), 413, "body-too-large")


async def test_a_body_that_does_not_arrive_is_given_up(api: Api) -> None:
    async def stalled() -> dict[str, object]:
        await asyncio.Event().wait()
        return {}

    sent: list[MutableMapping[str, object]] = []

    async def send(message: MutableMapping[str, object]) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/v1/lookup", "headers": []}
    await BodyLimit(api.http, seconds=0.01)(scope, stalled, send)  # type: ignore[arg-type]
    assert sent[0]["status"] == 408
    assert (b"connection", b"close") in sent[0]["headers"]  # type: ignore[operator]


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (BlockNotFoundError(), 404),
        (RevisionConflictError(), 409),
        (FencedError(), 409),
        (TooManyKeysError(), 413),
        (DeadlineExceededError(), 503),
        (StorageError(), 500),
    ],
)
async def test_every_error_of_ours_has_its_status(api: Api, error: BlockyardError, status: int) -> None:
    api.world.core.clear = raising(error)  # type: ignore[method-assign]
    await api.problem(api.http.post("/v1/tiers/g2:clear"), status, error.code)


async def test_a_broken_decision_ends_the_service_and_is_answered(api: Api) -> None:
    """The server would only log it, and the node go on with tables that are not what they say."""
    failures: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, facts: failures.append(facts))
    api.world.core.clear = raising(BlockStateError("broken"))  # type: ignore[method-assign]
    transport = httpx.ASGITransport(
        app=make_application(ApiPorts(core=api.world.core, index=api.index, list_instances=nobody)),
        raise_app_exceptions=False,
    )
    async with httpx.AsyncClient(transport=transport, base_url="http://node") as http:
        body = await api.problem(http.post("/v1/tiers/g2:clear"), 500, "internal")
    assert "broken" not in str(body)
    await asyncio.sleep(0)
    (facts,) = failures
    assert isinstance(facts, dict)
    assert isinstance(facts["exception"], DecisionError)
    assert "handle" in facts, "the supervisor ends the service for these"


def raising(error: BlockyardError) -> Callable[..., Any]:
    def fail(*_: object) -> None:
        raise error

    return fail


async def test_documentation_needs_nothing_from_elsewhere(api: Api) -> None:
    page = await api.http.get("/docs")
    assert page.status_code == 200
    assert "http://" not in page.text
    assert "https://" not in page.text
    schema = (await api.http.get("/openapi.json")).json()
    assert list(schema["paths"]["/v1/lookup"]["post"]["responses"]["4XX"]["content"]) == ["application/problem+json"]
    reading = {"/v1/tiers", "/v1/engines", "/v1/nodes", "/v1/lookup", "/v1/requests/{request}"}
    hints = {"/v1/blocks:keep", "/v1/blocks:expend"}
    assert set(schema["paths"]) == reading | hints | {"/v1/tiers/{tier}:clear", "/v1/tiers:clear", "/v1/loading"}
