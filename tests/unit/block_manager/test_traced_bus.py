"""Events on their way to the bus: each has a span, and says in its header what led to it."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

import pytest
from tests.unit.block_manager.test_event_publisher import Bus

from blockyard.core.errors import UnavailableError
from blockyard.core.events import ClearedEvent
from blockyard.core.outbox import Outbox
from blockyard.core.vocabulary import Epoch
from blockyard.runtime.bus_values import OutgoingMessage, PublishOutcome, StreamSpec
from blockyard.runtime.current_trace import TraceScope
from blockyard.runtime.span_names import SpanName
from blockyard.runtime.spans import NO_TRACER, SpanKind
from blockyard.runtime.telemetry import Metrics
from blockyard.testing.recording_tracer import RecordingTracer
from blockyard.wire.event_codec import encode_event
from blockyard.wire.trace_parent import NO_TRACE, TraceParent, new_trace, parse_trace_parent, trace_id_of
from blockyard_block_manager.event_publisher import EventPublisher
from blockyard_block_manager.traced_bus import TracedBus

STREAM = StreamSpec(name="S", subjects=("s.>",), max_bytes=1_000)
WAIT_SECONDS = 5.0


def message(number: int, trace: TraceParent = NO_TRACE) -> OutgoingMessage:
    return OutgoingMessage(subject="s.node", message_id=f"node:7:{number}", data=b"event", trace=trace)


async def test_each_message_has_a_span_caused_by_what_led_to_it() -> None:
    bus, tracer, trace = Bus(), RecordingTracer(), new_trace()
    assert await TracedBus(bus, tracer).publish_window([message(1, trace), message(2)]) == PublishOutcome(2)
    first, second = tracer.of(SpanName.PUBLISH)
    assert (first.parent, second.parent, first.kind) == (trace, NO_TRACE, SpanKind.PRODUCER)
    assert [sent.trace for sent in bus.stored] == [first.traceparent, second.traceparent]
    assert trace_id_of(bus.stored[0].trace) == trace_id_of(trace)
    assert first.attributes == {
        "messaging.system": "nats",
        "messaging.destination.name": "s.node",
        "messaging.operation.name": "publish",
        "messaging.operation.type": "send",
        "messaging.message.id": "node:7:1",
        "messaging.message.body.size": 5,
    }
    assert tracer.open == []


async def test_what_was_not_acknowledged_says_why() -> None:
    tracer = RecordingTracer()
    bus = Bus(outcomes=[PublishOutcome(1, UnavailableError("gone"))])
    await TracedBus(bus, tracer).publish_window([message(number) for number in range(3)])
    assert [span.error for span in tracer.spans] == ["", UnavailableError.code, "not_sent"]
    assert tracer.open == []


@dataclass
class Hanging(Bus):
    asked: asyncio.Event = field(default_factory=asyncio.Event)

    async def publish_window(self, messages: Sequence[OutgoingMessage]) -> PublishOutcome:
        self.asked.set()
        await asyncio.Event().wait()
        return PublishOutcome(0)


async def test_spans_end_where_the_publisher_does() -> None:
    bus, tracer = Hanging(), RecordingTracer()
    task = asyncio.create_task(TracedBus(bus, tracer).publish_window([message(1)]))
    await asyncio.wait_for(bus.asked.wait(), WAIT_SECONDS)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert tracer.open == []
    assert tracer.only(SpanName.PUBLISH).error == "not_sent"


async def test_without_a_tracer_messages_go_out_as_they_are() -> None:
    bus, trace = Bus(), new_trace()
    messages = [message(1, trace), message(2)]
    await TracedBus(bus, NO_TRACER).publish_window(messages)
    assert bus.stored == messages


def test_a_message_with_a_trace_has_a_header_for_it_and_counts_its_bytes() -> None:
    plain, traced = message(1), message(1, new_trace())
    assert plain.headers == {"Nats-Msg-Id": "node:7:1"}
    assert parse_trace_parent(traced.headers["traceparent"]) == traced.trace
    assert traced.sent_bytes - plain.sent_bytes == len(f"traceparent: {traced.trace}\r\n")


# --- publisher ----------------------------------------------------------------------------------------------------
@dataclass
class Publishing:
    bus: Bus
    outbox: Outbox
    publisher: EventPublisher

    def append(self, trace: TraceParent) -> None:
        with TraceScope(trace):
            self.publisher.appended(self.outbox.append(ClearedEvent()))

    async def traces(self, seq: int) -> list[TraceParent]:
        async with asyncio.timeout(WAIT_SECONDS):
            while self.outbox.published_seq < seq:
                await asyncio.sleep(0)
        return [stored.trace for stored in self.bus.stored]


@pytest.fixture
async def publishing() -> AsyncIterator[Publishing]:
    bus, outbox = Bus(), Outbox("node", Epoch(7), 1 << 20, encode_event)
    publisher = EventPublisher(outbox, bus, STREAM, "s.node", Metrics("test"), may_speak=lambda: True)
    task = asyncio.create_task(publisher.run())
    yield Publishing(bus, outbox, publisher)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_an_event_is_published_for_the_trace_in_which_it_was_appended(publishing: Publishing) -> None:
    traces = [new_trace(), NO_TRACE, new_trace()]
    for trace in traces:
        publishing.append(trace)
    assert await publishing.traces(3) == traces


async def test_a_repeated_event_is_of_the_same_trace(publishing: Publishing) -> None:
    publishing.bus.outcomes = [PublishOutcome(0, UnavailableError("gone"))]
    trace = new_trace()
    publishing.append(trace)
    assert await publishing.traces(1) == [trace]
    assert publishing.publisher._causes == {}
