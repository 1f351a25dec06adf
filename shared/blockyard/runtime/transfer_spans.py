"""The span of one job at its worker: what it moved from where to where, how long it waited for its turn and took.

Threading: owned by the event loop of the worker.
"""

from collections.abc import Sequence
from typing import Final

from blockyard.core.job_tickets import JobTicket
from blockyard.core.vocabulary import ItemStatus, JobKind
from blockyard.runtime import span_names as names
from blockyard.runtime.span_names import SpanName, counts
from blockyard.runtime.spans import AttributeValue, Span, SpanKind, Tracer
from blockyard.runtime.telemetry import Edge
from blockyard.wire.trace_parent import TraceParent
from blockyard.wire.worker_channel import Job

EDGES: Final = {
    JobKind.G1_G2: Edge.G1_G2,
    JobKind.G2_G1: Edge.G2_G1,
    JobKind.G2_G3: Edge.G2_G3,
    JobKind.G3_G2: Edge.G3_G2,
    JobKind.G4_PUT: Edge.G2_G4,
    JobKind.G4_GET: Edge.G4_G2,
}
"""Direction of each kind of job that moves bytes."""


def transfer_span(tracer: Tracer, ticket: JobTicket[Job], waited_seconds: float) -> Span:
    """Begin the span of a job that starts now; use as a context."""
    attributes: dict[str, AttributeValue] = {
        names.JOB_KIND: ticket.kind.name.lower(),
        names.ITEMS: ticket.items,
        names.WAIT_SECONDS: waited_seconds,
    }
    if (edge := EDGES.get(ticket.kind)) is not None:
        attributes[names.EDGE] = edge.value
    return tracer.start(SpanName.TRANSFER, TraceParent(ticket.trace), SpanKind.SERVER, attributes)


def describe_end(span: Span, job: Job, statuses: Sequence[ItemStatus]) -> None:
    """Say what became of the items of a job."""
    if not span.recording:
        return
    span.set(counts(names.STATUS, (status.name.lower() for status in statuses)))
    if job.kind in EDGES:
        span.set({names.BYTES: statuses.count(ItemStatus.OK) * job.payload_bytes})
