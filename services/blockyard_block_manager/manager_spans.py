"""Spans of the block-manager, as verbs of its own words over the tracer of the chassis.

Every ``…_began`` has its ``…_ended`` on every path: a lookup and a store end with their call, a load with its last
block, a job where it is settled, at the latest when this life ends.
Threading: owned by the event loop of the service.
"""

from collections.abc import Sequence

from blockyard.core.onboard_plan import LoadOutcome
from blockyard.core.vocabulary import Availability, ItemStatus, Tier
from blockyard.runtime import span_names as names
from blockyard.runtime.span_names import SpanName, counts
from blockyard.runtime.spans import NO_TRACER, AttributeValue, Span, SpanKind, Tracer
from blockyard.wire.trace_parent import TraceParent
from blockyard_block_manager.job_order import JobOrder, OrderEnd, OrderReport


class ManagerSpans:
    """Makes the spans of this service."""

    def __init__(self, tracer: Tracer = NO_TRACER) -> None:
        """Make them with ``tracer``."""
        self._tracer = tracer

    # --- requests -----------------------------------------------------------------------------------------------------
    def lookup(self, trace: TraceParent, blocks: int) -> Span:
        """An engine asks where blocks lie; use as a context."""
        return self._tracer.start(SpanName.LOOKUP, trace, SpanKind.SERVER, {names.BLOCKS: blocks})

    def looked_up(self, span: Span, availability: Sequence[Availability]) -> None:
        """What it was told."""
        if span.recording:
            hits = (Tier(answer).label for answer in availability if answer.is_hit)
            misses, unknown = availability.count(Availability.MISS), availability.count(Availability.UNKNOWN)
            span.set({names.MISSES: misses, names.UNKNOWN: unknown, **counts(names.HITS, hits)})

    def store(self, trace: TraceParent, blocks: int) -> Span:
        """An engine registers blocks; use as a context."""
        return self._tracer.start(SpanName.STORE, trace, SpanKind.SERVER, {names.BLOCKS: blocks})

    def stored(self, span: Span, registered: int, stores: int) -> None:
        """How many were new, and how many are wanted in lower tiers."""
        span.set({names.NEW_BLOCKS: registered, names.PLANNED_STORES: stores})

    def index_find(self, trace: TraceParent, keys: int) -> Span:
        """The shared index is asked; use as a context."""
        return self._tracer.start(SpanName.INDEX_FIND, trace, SpanKind.CLIENT, {names.BLOCKS: keys})

    # --- loads --------------------------------------------------------------------------------------------------------
    def load_began(self, trace: TraceParent, blocks: int) -> Span:
        """A load was opened."""
        return self._tracer.start(SpanName.LOAD, trace, SpanKind.SERVER, {names.BLOCKS: blocks})

    def load_ended(self, span: Span, outcome: LoadOutcome) -> None:
        """Every block of it has its status."""
        if span.recording:
            span.set(_statuses(outcome.status))
            loaded = zip(outcome.status, outcome.sources, strict=True)
            span.set(counts(names.LOADED, (tier.label for status, tier in loaded if tier and status is ItemStatus.OK)))
        span.end()

    # --- jobs ---------------------------------------------------------------------------------------------------------
    def job_began(self, order: JobOrder) -> Span:
        """An order was handed in."""
        attributes: dict[str, AttributeValue] = {
            names.JOB_KIND: order.kind.name.lower(),
            names.JOB_WORKER: order.role.label,
            names.ITEMS: order.count,
        }
        return self._tracer.start(SpanName.JOB, order.cause.trace, SpanKind.CLIENT, attributes, order.cause.also)

    def job_submitted(self, span: Span, seconds: float) -> None:
        """It went to its worker, after ``seconds`` of waiting."""
        span.set({names.WAIT_SECONDS: seconds})

    def job_ended(self, span: Span, report: OrderReport) -> None:
        """It is settled."""
        if span.recording:
            span.set({names.JOB_END: report.end.value, **_statuses(report.statuses)})
        span.end("" if report.end is OrderEnd.RESULT else report.end.value)


def _statuses(statuses: Sequence[ItemStatus]) -> dict[str, int]:
    return counts(names.STATUS, (status.name.lower() for status in statuses))
