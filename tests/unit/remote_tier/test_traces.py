"""Spans of requests to the object store and of lookups; that they end is looked at after every test of this folder."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from blockyard.core.errors import ObjectNotFoundError, UnavailableError
from blockyard.runtime.current_trace import TraceScope
from blockyard.runtime.span_names import SpanName
from blockyard.runtime.spans import SpanKind
from blockyard.testing.blocks import chain
from blockyard.wire.trace_parent import NO_TRACE, new_trace

if TYPE_CHECKING:
    from tests.unit.remote_tier.conftest import MakeNode, Node

RUN = chain("prompt", 8)
"""Two full packs."""


async def test_each_object_that_is_written_or_read_has_a_span_of_the_transfer(node: Node) -> None:
    storing, loading = new_trace(), new_trace()
    with TraceScope(storing):
        await node.bench.put(RUN)
    with TraceScope(loading):
        assert (await node.bench.load(RUN, first_slot=10)).all_ok
    puts, gets = node.tracer.of(SpanName.PACK_PUT), node.tracer.of(SpanName.PACK_GET)
    assert [(span.parent, span.kind, span.error) for span in puts] == [(storing, SpanKind.CLIENT, "")] * 2
    assert [span.parent for span in gets] == [loading] * 2
    stored = [len(node.store.objects[node.bench.key(RUN.key(last))]) for last in (3, 7)]
    assert [span.attributes["blockyard.bytes"] for span in puts] == stored


async def test_a_lookup_says_what_the_index_knew(node: Node) -> None:
    await node.bench.put(RUN.slice(0, 4))
    trace = new_trace()
    with TraceScope(trace):
        await node.bench.find(RUN)
    span = node.tracer.only(SpanName.INDEX_FIND)
    assert (span.parent, span.kind) == (trace, SpanKind.SERVER)
    assert span.attributes == {
        "blockyard.blocks": 8,
        "blockyard.hits.g4": 4,
        "blockyard.misses": 4,
        "blockyard.unknown": 0,
    }


async def test_a_lookup_without_an_answer_says_unknown(node: Node) -> None:
    node.index.down = True
    await node.bench.find(RUN)
    assert node.tracer.only(SpanName.INDEX_FIND).attributes["blockyard.unknown"] == 8


async def test_a_request_that_failed_says_why_and_counts_its_repeats_as_one(node: Node) -> None:
    await node.bench.put(RUN.slice(0, 4))
    found = await node.bench.find(RUN.slice(0, 4))
    job = node.bench.get_job(RUN.slice(0, 4), found.locators, first_slot=10)
    node.store.fail_next(UnavailableError("no answer"))
    assert (await node.bench.run(job)).all_ok
    assert node.tracer.only(SpanName.PACK_GET).error == ""
    node.store.objects.clear()
    await node.bench.run(node.bench.get_job(RUN.slice(0, 4), found.locators, first_slot=20))
    assert node.tracer.of(SpanName.PACK_GET)[1].error == ObjectNotFoundError.code


async def test_a_request_that_is_given_up_ends_its_span(node: Node) -> None:
    await node.bench.put(RUN.slice(0, 4))
    found = await node.bench.find(RUN.slice(0, 4))
    node.store.gate.clear()
    work = asyncio.create_task(node.bench.run(node.bench.get_job(RUN.slice(0, 4), found.locators, first_slot=10)))
    async with asyncio.timeout(5.0):
        while not node.tracer.of(SpanName.PACK_GET):
            await asyncio.sleep(0)
    work.cancel()
    await asyncio.gather(work, return_exceptions=True)
    assert node.tracer.only(SpanName.PACK_GET).error == asyncio.CancelledError.__name__


async def test_upkeep_and_repair_make_no_spans(node: Node, make_node: MakeNode) -> None:
    await node.bench.put(RUN)
    other = make_node(node.store)  # an index of its own, which is built from the objects
    await other.until_ready()
    assert other.tracer.spans == []
    assert {span.parent for span in node.tracer.spans} == {NO_TRACE}
