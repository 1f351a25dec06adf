"""Spans over OpenTelemetry: what arrives, who decides what is recorded, and what a dead receiver costs."""

import io
import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from tests.unit.runtime.span_receiver import ReceivedSpan, SpanReceiver

from blockyard.core.errors import UnavailableError
from blockyard.core.vocabulary import Epoch
from blockyard.runtime import tracing
from blockyard.runtime.logs import configure_logs
from blockyard.runtime.node_folder import ServiceName
from blockyard.runtime.settings import LogSection, NodeSection, NodeSettings, TracingSection
from blockyard.runtime.spans import MOST_LINKS, NO_TRACER, PassingSpan, Span, SpanKind, Tracer
from blockyard.runtime.telemetry import Metrics
from blockyard.runtime.tracing import SpanDrop, open_tracer
from blockyard.wire.trace_parent import NO_TRACE, is_sampled, new_trace, span_id_of, trace_id_of

WAIT_SECONDS = 10.0
NOBODY = "http://127.0.0.1:1"


pytestmark = pytest.mark.usefixtures("restored_logging")


@pytest.fixture(autouse=True)
def restored_levels() -> Iterator[None]:
    loggers = [logging.getLogger(name) for name in ("opentelemetry", "urllib3")]
    levels = [logger.level for logger in loggers]
    yield
    for logger, level in zip(loggers, levels, strict=True):
        logger.setLevel(level)


@pytest.fixture
def log() -> io.StringIO:
    """Everything that a service would log."""
    stream = io.StringIO()
    configure_logs(LogSection(level="debug", json_lines=True), "test", stream)
    return stream


def lines(log: io.StringIO) -> list[str]:
    return [f"{line['level']}: {line['event']}" for line in map(json.loads, log.getvalue().splitlines())]


@pytest.fixture
def receiver() -> Iterator[SpanReceiver]:
    with SpanReceiver().receiving() as made:
        yield made


@pytest.fixture
def metrics() -> Metrics:
    return Metrics("test")


def tracer_to(
    url: str, metrics: Metrics, ratio: float = 1.0, timeout_seconds: float = 1.0
) -> AbstractContextManager[Tracer]:
    settings = NodeSettings(
        node=NodeSection(name="n1", namespace="prod"),
        tracing=TracingSection(endpoint_url=url, sample_ratio=ratio, timeout_seconds=timeout_seconds),
    )
    return open_tracer(settings, ServiceName.REMOTE_TIER, Epoch(7), metrics)


def counted(metrics: Metrics) -> tuple[float, float, float]:
    """Spans that ended, those for which there was no room, those that were not delivered."""
    value = metrics.registry.get_sample_value
    return (
        value("blockyard_spans_total") or 0.0,
        value("blockyard_spans_dropped_total", {"reason": SpanDrop.QUEUE_FULL}) or 0.0,
        value("blockyard_spans_dropped_total", {"reason": SpanDrop.NOT_DELIVERED}) or 0.0,
    )


def until_dropped(metrics: Metrics) -> None:
    """Wait until a span was not delivered."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not counted(metrics)[2]:
        assert time.monotonic() < deadline
        time.sleep(0.001)


def only(receiver: SpanReceiver) -> ReceivedSpan:
    (span,) = receiver.spans
    return span


# --- what arrives -------------------------------------------------------------------------------------------------
def test_a_span_arrives_with_its_parent_kind_attributes_and_links(receiver: SpanReceiver, metrics: Metrics) -> None:
    parent, other, later = new_trace(), new_trace(), new_trace()
    with tracer_to(receiver.url, metrics) as tracer:
        span = tracer.start("job", parent, SpanKind.CLIENT, {"items": 3, "kind": "g1_g2"}, [other])
        span.set({"seconds": 0.5, "cut": True})
        span.link(later)
        context = span.traceparent
        span.end()
    found = only(receiver)
    assert (found.trace, found.parent, found.span) == (trace_id_of(parent), span_id_of(parent), span_id_of(context))
    assert (found.name, found.kind, found.failed) == ("job", 3, False)
    assert found.attributes == {"items": 3, "kind": "g1_g2", "seconds": 0.5, "cut": True}
    assert found.links == (span_id_of(other), span_id_of(later))
    assert counted(metrics) == (1, 0, 0)


def test_spans_say_which_life_of_which_service_made_them(receiver: SpanReceiver, metrics: Metrics) -> None:
    with tracer_to(receiver.url, metrics) as tracer:
        tracer.start("x").end()
    resource = only(receiver).resource
    assert {name: resource[name] for name in ("service.name", "service.namespace", "service.instance.id")} == {
        "service.name": "blockyard-remote-tier",
        "service.namespace": "prod",
        "service.instance.id": "prod/n1/7",
    }
    assert resource["service.version"]


def test_children_name_their_parents(receiver: SpanReceiver, metrics: Metrics) -> None:
    with tracer_to(receiver.url, metrics) as tracer:
        with tracer.start("outer", kind=SpanKind.SERVER) as outer:
            tracer.start("inner", outer.traceparent).end()
    spans = {span.name: span for span in receiver.spans}
    assert spans["inner"].trace == spans["outer"].trace
    assert (spans["outer"].parent, spans["inner"].parent) == ("", spans["outer"].span)


def test_an_error_is_named_by_its_code_and_never_quoted(receiver: SpanReceiver, metrics: Metrics) -> None:
    with tracer_to(receiver.url, metrics) as tracer:
        with pytest.raises(UnavailableError), tracer.start("a"):
            raise UnavailableError("secret detail", url="nats://user:secret@host")
        with pytest.raises(ValueError, match="secret"), tracer.start("b"):
            raise ValueError("secret")
    assert [(span.failed, span.attributes["error.type"]) for span in receiver.spans] == [
        (True, UnavailableError.code),
        (True, "ValueError"),
    ]
    assert b"secret" not in b"".join(receiver.bodies)


def test_ending_again_and_speaking_after_the_end_change_nothing(receiver: SpanReceiver, metrics: Metrics) -> None:
    with tracer_to(receiver.url, metrics) as tracer:
        span = tracer.start("x")
        span.end("first")
        span.end("second")
        span.set({"late": 1})
        span.link(new_trace())
    assert only(receiver).attributes == {"error.type": "first"}
    assert counted(metrics)[0] == 1


def test_links_are_bounded(receiver: SpanReceiver, metrics: Metrics) -> None:
    with tracer_to(receiver.url, metrics) as tracer:
        tracer.start("x", links=[new_trace() for _ in range(3 * MOST_LINKS)]).end()
    assert len(only(receiver).links) == MOST_LINKS


# --- who decides --------------------------------------------------------------------------------------------------
def test_whoever_began_the_trace_decides(receiver: SpanReceiver, metrics: Metrics) -> None:
    for ratio in (0.0, 1.0):
        with tracer_to(receiver.url, metrics, ratio) as tracer:
            tracer.start(f"yes {ratio}", new_trace(sampled=True)).end()
            left_out = tracer.start("no", new_trace(sampled=False))
            assert not left_out.recording
            left_out.end()
    assert [span.name for span in receiver.spans] == ["yes 0.0", "yes 1.0"]


def test_a_trace_that_nobody_began_is_recorded_at_the_ratio(receiver: SpanReceiver, metrics: Metrics) -> None:
    with tracer_to(receiver.url, metrics, 0.25) as tracer:
        spans = [tracer.start("x") for _ in range(2_000)]
        for span in spans:
            # Who joins must decide alike.
            assert is_sampled(span.traceparent) is span.recording
            assert span.traceparent != NO_TRACE
            span.end()
    assert 350 < len(receiver.spans) < 650


def test_without_a_tracer_contexts_pass_and_nothing_is_made() -> None:
    trace = new_trace()
    assert NO_TRACER.start("x") is NO_TRACER.start("y")
    with NO_TRACER.start("x", trace) as span:
        span.set({"a": 1})
        span.link(trace)
        assert (span.traceparent, span.recording) == (trace, False)
    assert isinstance(span, PassingSpan)


def test_the_environment_of_the_library_is_not_asked(receiver: SpanReceiver, tmp_path: Path) -> None:
    """In a process of its own: the library reads its variables when it is imported, which a service does later."""
    program = """
import asyncio, os, signal, sys
from blockyard.runtime.supervisor import run_service
from blockyard.runtime.node_folder import ServiceName
assert "opentelemetry" not in sys.modules
async def main(context):
    context.tracer.start("x").end()
    os.kill(os.getpid(), signal.SIGTERM)
    await context.stop.wait()
sys.exit(run_service(main, ServiceName.REMOTE_TIER, "test", []))
"""
    environ = {
        **os.environ,
        "BLOCKYARD_NODE__FOLDER": str(tmp_path),
        "BLOCKYARD_TRACING__ENDPOINT_URL": receiver.url,
        "BLOCKYARD_TRACING__SAMPLE_RATIO": "1.0",
        "OTEL_SDK_DISABLED": "true",
        "OTEL_TRACES_SAMPLER": "always_off",
        "OTEL_SERVICE_NAME": "another",
        "OTEL_RESOURCE_ATTRIBUTES": "planted=yes",
        "OTEL_EXPORTER_OTLP_ENDPOINT": NOBODY,
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": NOBODY,
        "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT": "0",
    }
    subprocess.run([sys.executable, "-c", program], env=environ, check=True, timeout=30)
    found = only(receiver)
    assert found.service == "blockyard-remote-tier"
    assert "planted" not in found.resource


def test_a_service_without_a_receiver_does_not_even_load_the_library(tmp_path: Path) -> None:
    program = """
import os, signal, sys
from blockyard.runtime.supervisor import run_service
from blockyard.runtime.node_folder import ServiceName
from blockyard.runtime.spans import NO_TRACER
async def main(context):
    assert context.tracer is NO_TRACER
    os.kill(os.getpid(), signal.SIGTERM)
    await context.stop.wait()
status = run_service(main, ServiceName.REMOTE_TIER, "test", [])
sys.exit(status or "opentelemetry" in sys.modules)
"""
    environ = {**os.environ, "BLOCKYARD_NODE__FOLDER": str(tmp_path)}
    subprocess.run([sys.executable, "-c", program], env=environ, check=True, timeout=30)


# --- a receiver that does not do its part -------------------------------------------------------------------------
def test_nobody_waits_for_a_receiver_that_hangs(
    receiver: SpanReceiver, metrics: Metrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracing, "CLOSE_SECONDS", 0.3)
    monkeypatch.setattr(tracing, "QUEUE_SPANS", 600)
    receiver.hang()
    with tracer_to(receiver.url, metrics, timeout_seconds=60.0) as tracer:
        for _ in range(tracing.BATCH_SPANS):
            tracer.start("taken").end()
        assert receiver.wait_for_deliveries(1, WAIT_SECONDS)
        started = time.monotonic()
        for _ in range(2_000):
            tracer.start("more").end()
        assert time.monotonic() - started < 2.0
        assert counted(metrics) == (512 + 2_000, 2_000 - 600, 0)
        closing = time.monotonic()
    assert time.monotonic() - closing < 2.0
    assert counted(metrics) == (512 + 2_000, 2_000 - 600, 600)


@pytest.mark.parametrize("status", [0, 308, 400, 503], ids=["nobody there", "elsewhere", "refused", "busy"])
def test_what_is_not_taken_is_counted_and_told_once(
    receiver: SpanReceiver, metrics: Metrics, log: io.StringIO, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    monkeypatch.setattr(tracing, "BATCH_SPANS", 1)
    monkeypatch.setattr(tracing, "CLOSE_SECONDS", WAIT_SECONDS)
    receiver.status = status
    with tracer_to(receiver.url if status else NOBODY, metrics, timeout_seconds=0.05) as tracer:
        for _ in range(3):
            tracer.start("lost").end()
    assert counted(metrics) == (3, 0, 3)
    assert lines(log) == ["warning: the receiver of spans does not take them: they are dropped"]


def test_a_receiver_that_comes_back_is_told_of(
    receiver: SpanReceiver, metrics: Metrics, log: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracing, "BATCH_SPANS", 1)
    receiver.status = 400
    with tracer_to(receiver.url, metrics) as tracer:
        tracer.start("lost").end()
        assert receiver.wait_for_deliveries(1, WAIT_SECONDS)
        until_dropped(metrics)
        receiver.status = 200
        tracer.start("found").end()
        tracer.start("found").end()
    assert lines(log) == [
        "warning: the receiver of spans does not take them: they are dropped",
        "info: the receiver of spans takes them again",
    ]
    assert [span.name for span in receiver.spans] == ["found", "found"]


def test_only_the_status_of_an_answer_is_looked_at(
    receiver: SpanReceiver, metrics: Metrics, log: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracing, "BATCH_SPANS", 1)
    receiver.babbles = True
    with tracer_to(receiver.url, metrics, timeout_seconds=60.0) as tracer:
        for number in range(3):
            tracer.start("x").end()
            assert receiver.wait_for_deliveries(number + 1, WAIT_SECONDS)
    assert counted(metrics) == (3, 0, 0)
    assert lines(log) == []


def test_what_ends_after_the_tracer_is_closed_is_dropped_and_counted(receiver: SpanReceiver, metrics: Metrics) -> None:
    with tracer_to(receiver.url, metrics) as tracer:
        span: Span = tracer.start("late")
    span.end()
    assert counted(metrics) == (1, 0, 1)
    assert receiver.spans == []
