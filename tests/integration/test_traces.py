"""Traces of a real node: one trace over all its services, and receivers that are away or frozen."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import uuid4

import nats
import pytest
from tests.integration.engine_kit import (
    ALL,
    BM,
    OW,
    RT,
    Engine,
    engine,
    local_settings,
    node_folder,
    run_of,
    settings,
)
from tests.unit.runtime.span_receiver import ReceivedSpan, SpanReceiver

from blockyard.cli.embedded.nats import NatsServer
from blockyard.core.chain_run import ChainRun
from blockyard.core.vocabulary import EngineBlockId, ItemStatus, RequestId, Tier
from blockyard.runtime.settings import NodeSettings, TracingSection
from blockyard.testing.running_node import RunningNode, eventually, running_node
from blockyard.wire.event_codec import decode_event
from blockyard.wire.subjects import events_of
from blockyard.wire.trace_parent import TraceParent, new_trace, parse_trace_parent, span_id_of, trace_id_of

__all__ = ["node_folder", "settings"]

NOBODY = "http://127.0.0.1:1"
SERVICE = {BM: "blockyard-block-manager", OW: "blockyard-offload-worker", RT: "blockyard-remote-tier"}
END_SECONDS = 8.0
"""Below the grace time of a service: one that needs longer is ended by force."""


@pytest.fixture
def receiver() -> Iterator[SpanReceiver]:
    with SpanReceiver().receiving() as made:
        yield made


def traced(settings: NodeSettings, url: str, ratio: float = 0.0) -> NodeSettings:
    return settings.model_copy(update={"tracing": TracingSection(endpoint_url=url, sample_ratio=ratio)})


async def load(engine: Engine, run: ChainRun, trace: TraceParent) -> tuple[list[ItemStatus], set[Tier | None]]:
    blocks = [EngineBlockId(index) for index in range(len(run))]
    result = await engine.client.load(RequestId(uuid4().hex), run, blocks, ttl_seconds=5.0, trace=trace)
    return list(result.statuses), set(result.sources)


class Trace:
    """All spans of one trace that have arrived, by what they are about."""

    def __init__(self, receiver: SpanReceiver, root: TraceParent) -> None:
        self.root = root
        self._receiver = receiver

    @property
    def spans(self) -> list[ReceivedSpan]:
        return [span for span in self._receiver.spans if span.trace == trace_id_of(self.root)]

    def of(self, name: str, **attributes: object) -> list[ReceivedSpan]:
        wanted = {f"blockyard.{key.replace('__', '.')}": value for key, value in attributes.items()}
        return [span for span in self.spans if span.name == name and wanted.items() <= span.attributes.items()]

    def only(self, name: str, **attributes: object) -> ReceivedSpan:
        (span,) = self.of(name, **attributes)
        return span

    async def has(self, count: int, name: str, **attributes: object) -> None:
        async def arrived() -> bool:
            return len(self.of(name, **attributes)) >= count

        await eventually(arrived, f"{count} spans {name} {attributes}")


@asynccontextmanager
async def two_engines(settings: NodeSettings) -> AsyncIterator[tuple[RunningNode, Engine, Engine]]:
    async with running_node(settings, *ALL) as node:
        await node.ready()
        async with engine(node, "one") as one, engine(node, "two") as two:
            yield node, one, two


async def test_one_trace_holds_a_load_its_jobs_and_their_transfers_over_all_services(
    settings: NodeSettings, receiver: SpanReceiver
) -> None:
    async with two_engines(traced(settings, receiver.url)) as (node, one, two):
        run = run_of(4)
        await one.compute(run)
        await node.holds("g4", 4)
        for tier in ("g2", "g3"):
            assert (await node.post(f"/v1/tiers/{tier}:clear")).json()["done"]
        trace = Trace(receiver, new_trace())
        await two.client.lookup(run, remote_wait_seconds=2.0, trace=trace.root)
        assert await load(two, run, trace.root) == ([ItemStatus.OK] * 4, {Tier.G4})
        await trace.has(1, "load")
        await trace.has(1, "transfer", job__kind="g2_g1")
        await trace.has(1, "transfer", job__kind="g4_get")
        await trace.has(4, "index.find")

        lookup, loaded = trace.only("lookup"), trace.only("load")
        assert (lookup.parent, loaded.parent) == (span_id_of(trace.root),) * 2
        assert lookup.attributes["blockyard.hits.g4"] == loaded.attributes["blockyard.loaded.g4"] == 4
        for kind, service in (("g4_get", RT), ("g2_g1", OW)):
            job, transfer = trace.only("job", job__kind=kind), trace.only("transfer", job__kind=kind)
            assert (job.parent, transfer.parent) == (loaded.span, job.span)
            assert (job.service, transfer.service) == (SERVICE[BM], SERVICE[service])
            assert transfer.attributes["blockyard.bytes"] == 4 * settings.node.block_bytes
        get = trace.only("pack.get")
        assert (get.parent, get.service) == (trace.only("transfer", job__kind="g4_get").span, SERVICE[RT])
        questions = {span.parent: span for span in trace.of("index.find")}
        for asker in (lookup, loaded):
            question = questions[asker.span]
            assert (question.service, questions[question.span].service) == (SERVICE[BM], SERVICE[RT])
        assert not any(span.failed for span in trace.spans)


async def test_what_a_store_leads_to_is_in_its_trace_down_to_the_events(
    settings: NodeSettings, receiver: SpanReceiver, nats_server: NatsServer
) -> None:
    async with two_engines(traced(settings, receiver.url)) as (node, one, _):
        run, trace = run_of(4), Trace(receiver, new_trace())
        blocks = [EngineBlockId(index) for index in range(4)]
        one.memory.raise_guards(blocks)
        await one.client.register(run, blocks, trace=trace.root)
        await node.holds("g4", 4)
        for kind in ("g1_g2", "g2_g3", "g4_put"):
            await trace.has(1, "transfer", job__kind=kind)
        await trace.has(1, "pack.put")
        await trace.has(4, "publish")
        stored = trace.only("store")
        assert stored.parent == span_id_of(trace.root)
        for kind in ("g1_g2", "g2_g3", "g4_put"):
            job = trace.only("job", job__kind=kind)
            assert job.parent == stored.span
            assert trace.only("transfer", job__kind=kind).parent == job.span
        assert trace.only("pack.put").parent == trace.only("transfer", job__kind="g4_put").span

        published = {span.span: span for span in trace.of("publish")}
        contexts = await headers_of_events(node, nats_server.url, len(published))
        assert {span_id_of(context) for context in contexts} >= set(published)
        causes = {span.parent for span in published.values()}
        assert causes <= {stored.span, *(job.span for job in trace.of("job"))}


async def headers_of_events(node: RunningNode, url: str, events: int) -> list[TraceParent]:
    connection = await nats.connect(url)
    try:
        subject = events_of(node.settings.node.namespace, node.settings.node.name)
        subscription = await connection.jetstream().subscribe(subject, ordered_consumer=True)
        contexts = []
        for _ in range(events):
            message = await subscription.next_msg(timeout=5.0)
            decode_event(message.data)
            context = parse_trace_parent((message.headers or {}).get("traceparent"))
            assert context != ""
            contexts.append(context)
        return contexts
    finally:
        await connection.close()


async def test_what_the_engine_does_not_decide_the_ratio_does(node_folder: Path, receiver: SpanReceiver) -> None:
    async with running_node(traced(local_settings(node_folder), receiver.url, ratio=1.0), OW, BM) as node:
        await node.ready("nats", "node-lease")
        async with engine(node, "one") as one:
            await one.client.lookup(run_of(1))
            unrecorded = new_trace(sampled=False)
            await one.client.lookup(run_of(1), trace=unrecorded)
            decided = new_trace()
            await one.client.lookup(run_of(1), trace=decided)
            await Trace(receiver, decided).has(1, "lookup")
        lookups = [span for span in receiver.spans if span.name == "lookup"]
        assert sorted(span.parent for span in lookups) == ["", span_id_of(decided)]
        assert trace_id_of(unrecorded) not in {span.trace for span in lookups}


async def test_a_lookup_over_rest_belongs_to_the_trace_of_its_header_and_the_next_one_does_not(
    node_folder: Path, receiver: SpanReceiver
) -> None:
    """Both go over one connection, which must keep nothing of the first."""
    async with running_node(traced(local_settings(node_folder), receiver.url, ratio=1.0), OW, BM) as node:
        await node.ready("nats", "node-lease")
        trace = new_trace()
        url = f"{node.folder.service(BM).read_http()}/v1/lookup"
        for headers in ({"traceparent": trace}, {}):
            body = {"identity": "00" * 32, "digests": ["00" * 32]}
            (await node.http.post(url, json=body, headers=headers)).raise_for_status()
        await node.stop()
        parents = [span.parent for span in receiver.spans if span.name == "lookup"]
        assert parents == [span_id_of(trace), ""]


@pytest.mark.parametrize("frozen", [False, True], ids=["absent", "frozen"])
async def test_without_a_receiver_everything_goes_on_and_ends_in_time(
    settings: NodeSettings, receiver: SpanReceiver, frozen: bool
) -> None:
    receiver.hang()
    async with running_node(traced(settings, receiver.url if frozen else NOBODY, ratio=1.0), *ALL) as node:
        await node.ready()
        async with engine(node, "one") as one, engine(node, "two") as two:
            run = run_of(8)
            await one.compute(run)
            await node.holds("g4", 8)
            began = time.monotonic()
            assert await load(two, run, new_trace()) == ([ItemStatus.OK] * 8, {Tier.G2})
            assert time.monotonic() - began < 1.0
            await asyncio.to_thread(receiver.wait_for_deliveries, 3 if frozen else 0, 10.0)
        began = time.monotonic()
        await node.stop()
        assert time.monotonic() - began < END_SECONDS
        complaints = [line for line in node.logs().splitlines() if "receiver of spans" in line]
        assert len(complaints) <= len(ALL), "told once per service"
        assert "Traceback" not in node.logs()
