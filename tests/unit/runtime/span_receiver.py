"""An OTLP/HTTP receiver of spans for tests, with the faults of real ones: it refuses, hangs, babbles, or is away.

Threading: requests are answered on threads of the server; spans may be read from any thread.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span as WireSpan

PATH: Final = "/v1/traces"
"""The only place where spans are taken."""


@dataclass(frozen=True, slots=True)
class ReceivedSpan:
    """One span as it arrived; ids in hex digits, empty where there is none."""

    service: str
    resource: dict[str, object]
    name: str
    trace: str
    span: str
    parent: str
    kind: int
    attributes: dict[str, object]
    links: tuple[str, ...]
    """Spans that it points to."""
    failed: bool
    seconds: float


class SpanReceiver:
    """Takes spans at ``url`` until ``receiving`` ends."""

    def __init__(self) -> None:
        """Bind to a free port of loopback; nothing is answered yet."""
        self.status = 200
        """What every delivery is answered with."""
        self.babbles = False
        """Whether every answer has a line among its headers that is none, and a body that does not end."""
        self.deliveries = 0
        self.bodies: list[bytes] = []
        self._going = threading.Event()
        self._going.set()
        self._over = threading.Event()
        self._changed = threading.Condition()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def hang(self) -> None:
        """Accept deliveries and leave them without an answer."""
        self._going.clear()

    def go_on(self) -> None:
        """Answer again, also what waits."""
        self._going.set()

    @property
    def spans(self) -> list[ReceivedSpan]:
        """All spans that were taken."""
        with self._changed:
            bodies = list(self.bodies)
        return [span for body in bodies for span in _spans_in(body)]

    def wait_for_deliveries(self, count: int, timeout_seconds: float) -> bool:
        """Wait until so many deliveries have arrived; False where they did not in time."""
        with self._changed:
            return self._changed.wait_for(lambda: self.deliveries >= count, timeout_seconds)

    @contextmanager
    def receiving(self) -> Iterator["SpanReceiver"]:
        """Answer while the context lasts."""
        thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), name="span-receiver", daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self.go_on()
            self._over.set()
            self._server.shutdown()
            self._server.server_close()
            thread.join()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                status = receiver._take(self.path, body)
                if receiver.babbles:
                    self.wfile.write(
                        b"HTTP/1.1 %d \r\nTransfer-Encoding: chunked\r\nno header\r\n\r\n1\r\nx\r\n" % status
                    )
                    receiver._over.wait()
                    return
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                """Say nothing."""

        return Handler

    def _take(self, path: str, body: bytes) -> int:
        with self._changed:
            self.deliveries += 1
            self._changed.notify_all()
        self._going.wait()
        if path != PATH:
            return 404
        with self._changed:
            if self.status == 200:
                self.bodies.append(body)
            return self.status


def _spans_in(body: bytes) -> Iterator[ReceivedSpan]:
    for group in ExportTraceServiceRequest.FromString(body).resource_spans:
        resource = _attributes(group.resource.attributes)
        for scope in group.scope_spans:
            for span in scope.spans:
                yield _received(span, resource)


def _received(span: WireSpan, resource: dict[str, object]) -> ReceivedSpan:
    return ReceivedSpan(
        service=str(resource["service.name"]),
        resource=resource,
        name=span.name,
        trace=span.trace_id.hex(),
        span=span.span_id.hex(),
        parent=span.parent_span_id.hex(),
        kind=span.kind,
        attributes=_attributes(span.attributes),
        links=tuple(link.span_id.hex() for link in span.links),
        failed=bool(span.status.code),
        seconds=(span.end_time_unix_nano - span.start_time_unix_nano) / 1e9,
    )


def _attributes(found: "Iterator[KeyValue] | list[KeyValue]") -> dict[str, object]:
    return {entry.key: _value(entry.value) for entry in found}


def _value(value: AnyValue) -> object:
    kind = value.WhichOneof("value")
    return None if kind is None else getattr(value, kind)
