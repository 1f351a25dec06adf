"""Spans over OpenTelemetry: made by its SDK, delivered to an OTLP/HTTP receiver. Nothing else imports OpenTelemetry.

::

    span ends ──► queue, bounded ──batch, at least every second──► receiver     full, not delivered: dropped and counted

A receiver that is away, refuses or hangs costs spans, never anybody's time: ending a span only enters a queue, one
thread of its own delivers, and the end of the process waits ``CLOSE_SECONDS`` for what is left. That it does not
take spans is logged once, and once when it does again.
Invariants: a trace is recorded or not by the decision of whoever began it; while the process lives, every recorded span
that ended is delivered or counted as dropped. Import this only after ``shield_environment``: the SDK reads it too.
Threading: spans are made on any thread; delivery has one.
"""

import importlib.metadata
import logging
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum, unique
from http import HTTPStatus
from types import TracebackType
from typing import Final, Self

import requests
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased

from blockyard.core.vocabulary import Epoch
from blockyard.runtime.logs import get_logger
from blockyard.runtime.node_folder import ServiceName
from blockyard.runtime.settings import NodeSettings
from blockyard.runtime.spans import ERROR_TYPE, MOST_LINKS, Attributes, PassingSpan, Span, SpanKind, Tracer, code_of
from blockyard.runtime.telemetry import Metrics
from blockyard.wire.trace_parent import (
    NO_TRACE,
    TraceParent,
    flags_of,
    is_sampled,
    make_trace_parent,
    span_id_of,
    trace_id_of,
)

QUEUE_SPANS: Final = 4_096
BATCH_SPANS: Final = 512
CLOSE_SECONDS: Final = 2.0
_DELIVERY_SECONDS: Final = 1.0
_PATH: Final = "/v1/traces"
_SCOPE: Final = "blockyard"
_SILENT: Final = logging.CRITICAL + 1
_KINDS: Final = {kind: trace.SpanKind[kind.name] for kind in SpanKind}
_log: Final = get_logger(__name__)


@unique
class SpanDrop(StrEnum):
    """Why a recorded span was not delivered, as a label."""

    QUEUE_FULL = "queue_full"
    NOT_DELIVERED = "not_delivered"
    """The receiver did not take it, or the process ended first."""


@contextmanager
def open_tracer(settings: NodeSettings, service: ServiceName, epoch: Epoch, metrics: Metrics) -> Iterator[Tracer]:
    """Tracer of one life of a service; what its spans wait for at the end is bounded."""
    # Failures are told once, below; the libraries tell each of them.
    for library in ("opentelemetry", "urllib3"):
        logging.getLogger(library).setLevel(_SILENT)
    session = requests.Session()
    session.trust_env = False
    session.stream = True
    session.hooks["response"].append(_judge)
    exporter = OTLPSpanExporter(
        endpoint=settings.tracing.endpoint_url.rstrip("/") + _PATH,
        timeout=settings.tracing.timeout_seconds,
        compression=Compression.NoCompression,
        session=session,
    )
    delivery = SpanDelivery(exporter, metrics)
    provider = TracerProvider(
        sampler=ParentBased(TraceIdRatioBased(settings.tracing.sample_ratio)),
        resource=_resource(settings, service, epoch),
        shutdown_on_exit=False,
        span_limits=SpanLimits(max_links=MOST_LINKS),
    )
    provider.add_span_processor(delivery)
    try:
        yield SdkTracer(provider.get_tracer(_SCOPE))
    finally:
        delivery.close(CLOSE_SECONDS)


def _judge(response: requests.Response, **_: object) -> None:
    # Its body is not asked for: nothing is done with it, and one that never ends would hold the thread for ever.
    response.close()
    # The exporter does not follow a redirection, and takes it for a delivery.
    if HTTPStatus.MULTIPLE_CHOICES <= response.status_code < HTTPStatus.BAD_REQUEST:
        raise requests.HTTPError(response=response)


def _resource(settings: NodeSettings, service: ServiceName, epoch: Epoch) -> Resource:
    node = settings.node
    return Resource(
        {
            "service.name": f"blockyard-{service}",
            "service.namespace": node.namespace,
            "service.version": importlib.metadata.version("blockyard"),
            "service.instance.id": f"{node.namespace}/{node.name}/{epoch}",
            "blockyard.node": node.name,
        }
    )


class SdkTracer:
    """``Tracer`` over a tracer of the SDK."""

    def __init__(self, tracer: trace.Tracer) -> None:
        """Make spans with ``tracer``."""
        self._tracer = tracer

    def start(
        self,
        name: str,
        parent: TraceParent = NO_TRACE,
        kind: SpanKind = SpanKind.INTERNAL,
        attributes: Attributes | None = None,
        links: Sequence[TraceParent] = (),
    ) -> Span:
        """Begin a span; see ``Tracer``."""
        if parent and not is_sampled(parent):
            return PassingSpan(parent)  # decided by whoever began the trace
        span = self._tracer.start_span(
            name,
            context=_context_with(parent),
            kind=_KINDS[kind],
            attributes=attributes,
            links=[trace.Link(_span_context(other)) for other in links],
        )
        return SdkSpan(span) if span.is_recording() else PassingSpan(_trace_parent(span))


class SdkSpan:
    """``Span`` that is recorded."""

    __slots__ = ("_ended", "_span")

    recording: Final = True

    def __init__(self, span: trace.Span) -> None:
        """Wrap a span that was started."""
        self._span = span
        self._ended = False

    @property
    def traceparent(self) -> TraceParent:
        """Context for what this work causes."""
        return _trace_parent(self._span)

    def set(self, attributes: Attributes) -> None:
        """Add what is known by now; nothing after the end."""
        if not self._ended:
            self._span.set_attributes(attributes)

    def link(self, other: TraceParent) -> None:
        """Point to other work; nothing after the end."""
        if other and not self._ended:
            self._span.add_link(_span_context(other))

    def end(self, error: str = "") -> None:
        """The work is over; see ``Span``."""
        if self._ended:
            return
        self._ended = True
        if error:
            self._span.set_attribute(ERROR_TYPE, error)
            self._span.set_status(trace.StatusCode.ERROR)
        self._span.end()

    def __enter__(self) -> Self:
        """Use as a context."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End it, with the error that leaves the block."""
        self.end(code_of(error))


class SpanDelivery(SpanProcessor):
    """Takes ended spans and delivers them in batches, from a bounded queue, on a thread of its own."""

    def __init__(self, exporter: SpanExporter, metrics: Metrics) -> None:
        """Deliver through ``exporter``, which is closed with this."""
        self._exporter = exporter
        self._metrics = metrics
        self._queue: deque[ReadableSpan] = deque()
        self._changed = threading.Condition()
        self._closing = False
        self._failing = False
        for reason in SpanDrop:
            metrics.spans_dropped.labels(reason)
        # A daemon: a receiver that hangs must not keep the process.
        self._thread = threading.Thread(target=self._run, name="spans", daemon=True)
        self._thread.start()

    def on_end(self, span: ReadableSpan) -> None:
        """A recorded span ended; never waits for the receiver."""
        self._metrics.spans.inc()
        with self._changed:
            closing, full = self._closing, len(self._queue) >= QUEUE_SPANS
            if not (closing or full):
                self._queue.append(span)
                if len(self._queue) >= BATCH_SPANS:
                    self._changed.notify()
        if closing or full:
            self._drop(SpanDrop.NOT_DELIVERED if closing else SpanDrop.QUEUE_FULL, 1)

    def close(self, timeout_seconds: float) -> None:
        """Take no more, deliver what waits, but return after ``timeout_seconds`` in any case. Idempotent."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(timeout_seconds)
        with self._changed:
            left = len(self._queue)
            self._queue.clear()
        self._drop(SpanDrop.NOT_DELIVERED, left)
        self._exporter.shutdown()

    def shutdown(self) -> None:
        """``close``, as the SDK calls it."""
        self.close(CLOSE_SECONDS)

    # --- delivery (own thread) ----------------------------------------------------------------------------------------
    def _run(self) -> None:
        while (batch := self._next_batch()) is not None:
            if batch:
                taken = self._exporter.export(batch) is SpanExportResult.SUCCESS
                self._tell(failing=not taken)
                if not taken:
                    self._drop(SpanDrop.NOT_DELIVERED, len(batch))

    def _next_batch(self) -> list[ReadableSpan] | None:
        """What is due; None where nothing will come any more."""
        with self._changed:
            self._changed.wait_for(lambda: self._closing or len(self._queue) >= BATCH_SPANS, _DELIVERY_SECONDS)
            if self._closing and not self._queue:
                return None
            return [self._queue.popleft() for _ in range(min(len(self._queue), BATCH_SPANS))]

    def _tell(self, *, failing: bool) -> None:
        if failing is self._failing:
            return
        self._failing = failing
        if failing:
            _log.warning("the receiver of spans does not take them: they are dropped", setting="tracing.endpoint_url")
        else:
            _log.info("the receiver of spans takes them again")

    def _drop(self, reason: SpanDrop, count: int) -> None:
        if count:
            self._metrics.spans_dropped.labels(reason).inc(count)


def _trace_parent(span: trace.Span) -> TraceParent:
    context = span.get_span_context()
    return make_trace_parent(context.trace_id, context.span_id, context.trace_flags)


def _span_context(parent: TraceParent) -> trace.SpanContext:
    return trace.SpanContext(
        int(trace_id_of(parent), 16),
        int(span_id_of(parent), 16),
        is_remote=True,
        trace_flags=trace.TraceFlags(flags_of(parent)),
    )


def _context_with(parent: TraceParent) -> Context:
    # Never the ambient context of the library: what caused a span is always said.
    if not parent:
        return Context()
    return trace.set_span_in_context(trace.NonRecordingSpan(_span_context(parent)), Context())
