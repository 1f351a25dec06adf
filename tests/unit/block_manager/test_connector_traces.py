"""Spans of what engines ask over their channel: in the trace that they name, and ended whatever they do."""

import asyncio

import pytest
from tests.unit.block_manager.connector_kit import RUN, WAIT_SECONDS, Setting, fill, run_of, setting, u32, u64

from blockyard.core.errors import RequestError
from blockyard.runtime.span_names import SpanName
from blockyard.wire import connector_channel as channel
from blockyard.wire.trace_parent import new_trace

__all__ = ["setting"]


async def test_requests_have_spans_in_the_trace_of_the_engine(setting: Setting) -> None:
    world, peer = setting.world, await setting.peer()
    await peer.join()
    storing, looking, loading = new_trace(), new_trace(), new_trace()
    await peer.ask(fill(setting, RUN), trace=storing)
    world.settle()
    await peer.ask(channel.Lookup(run=run_of(RUN)), trace=looking)
    await peer.ask(channel.Deregister(blocks=u32(*range(len(RUN)))))
    guards = u64(*(setting.mapper.memory.guards[block] for block in range(len(RUN))))
    await peer.ask(
        channel.OpenLoad(request="r", run=run_of(RUN), pages=u32(*range(len(RUN))), guards=guards, ttl_ms=5_000),
        trace=loading,
    )
    world.settle()
    await peer.finished()
    store, lookup, load = (world.tracer.only(name) for name in (SpanName.STORE, SpanName.LOOKUP, SpanName.LOAD))
    assert (store.parent, lookup.parent, load.parent) == (storing, looking, loading)
    assert store.attributes["blockyard.new_blocks"] == store.attributes["blockyard.planned_stores"] == len(RUN)
    assert lookup.attributes["blockyard.hits.g2"] == len(RUN)
    assert (lookup.attributes["blockyard.misses"], lookup.attributes["blockyard.unknown"]) == (0, 0)
    kinds = {job.attributes["blockyard.job.kind"]: job.parent for job in world.tracer.of(SpanName.JOB)}
    assert (kinds["g1_g2"], kinds["g2_g1"]) == (store.traceparent, load.traceparent)
    assert world.tracer.open == []


async def test_a_refused_registration_says_so_in_its_span(setting: Setting) -> None:
    peer = await setting.peer()
    await peer.join()
    await peer.ask(fill(setting, RUN))
    setting.world.settle()
    await peer.ask(channel.Deregister(blocks=u32(*range(len(RUN)))))
    opened = channel.OpenLoad(
        request="r", run=run_of(RUN), pages=u32(*range(len(RUN))), guards=u64(*range(len(RUN))), ttl_ms=5_000
    )
    await peer.ask(opened)
    with pytest.raises(RequestError):
        await peer.ask(fill(setting, RUN))  # its memory is the target of an open load
    assert setting.world.tracer.of(SpanName.STORE)[-1].error == RequestError.code
    setting.world.settle()
    assert setting.world.tracer.open == []


async def test_loads_of_an_engine_that_hangs_up_leave_no_span_open(setting: Setting) -> None:
    peer = await setting.peer()
    await peer.join()
    await peer.ask(fill(setting, RUN))
    setting.world.settle()
    await peer.ask(channel.Deregister(blocks=u32(*range(len(RUN)))))
    pages, guards = u32(*range(len(RUN))), u64(*range(len(RUN)))
    await peer.ask(channel.OpenLoad(request="r", run=run_of(RUN), pages=pages, guards=guards, ttl_ms=5_000))
    assert len(setting.world.tracer.open) == 2
    peer.rpc.close()
    async with asyncio.timeout(WAIT_SECONDS):
        while len(setting.world.core.sessions):
            await asyncio.sleep(0)
    setting.world.settle()
    assert setting.world.tracer.open == []
