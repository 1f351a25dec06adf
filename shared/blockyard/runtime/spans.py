"""Port of tracing: spans of requests, jobs and transfers, and the tracer of a service that makes none.

A span says how long one piece of work took, what it was about and what caused it. Spans are made per request, job or
object, never per block; what is counted per block goes into attributes. What caused a piece of work is named by its
trace context (``wire.trace_parent``), which travels with calls, orders and events.
Invariants: whoever starts a span ends it, on every path; ending again changes nothing. Attributes hold numbers and
words from small fixed sets, never content, names of tenants or keys. Tracing decides nothing.
Threading: a span belongs to one thread at a time.
"""

from collections.abc import Mapping, Sequence
from enum import IntEnum, unique
from types import TracebackType
from typing import Final, Protocol, Self

from blockyard.core.errors import BlockyardError
from blockyard.wire.trace_parent import NO_TRACE, TraceParent

AttributeValue = str | bool | int | float
Attributes = Mapping[str, AttributeValue]

MOST_LINKS: Final = 8
"""Links that one span may have."""

ERROR_TYPE: Final = "error.type"
"""Name, by the conventions of OpenTelemetry, of what went wrong."""


@unique
class SpanKind(IntEnum):
    """On which side of a call a span lies."""

    INTERNAL = 0
    SERVER = 1
    CLIENT = 2
    PRODUCER = 3


class Span(Protocol):
    """One piece of work, from ``Tracer.start`` to ``end``; as a context manager it ends with its block."""

    @property
    def traceparent(self) -> TraceParent:
        """Context for what this work causes."""
        ...

    @property
    def recording(self) -> bool:
        """Whether anybody will see it: attributes that cost something need not be computed otherwise."""
        ...

    def set(self, attributes: Attributes) -> None:
        """Add what is known by now."""
        ...

    def link(self, other: TraceParent) -> None:
        """Point to other work that this one waited for or serves too."""
        ...

    def end(self, error: str = "") -> None:
        """The work is over; ``error`` is the code of what went wrong. Idempotent."""
        ...

    def __enter__(self) -> Self:
        """Use as a context."""
        ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End it, with the error that leaves the block."""
        ...


class Tracer(Protocol):
    """Makes spans."""

    def start(
        self,
        name: str,
        parent: TraceParent = NO_TRACE,
        kind: SpanKind = SpanKind.INTERNAL,
        attributes: Attributes | None = None,
        links: Sequence[TraceParent] = (),
    ) -> Span:
        """Begin a span; without a parent it begins a trace, which is recorded or not as the settings say."""
        ...


class PassingSpan:
    """A span that nobody sees: what it causes counts as caused by its parent."""

    __slots__ = ("traceparent",)

    recording: Final = False

    def __init__(self, traceparent: TraceParent) -> None:
        """Hand on ``traceparent``."""
        self.traceparent = traceparent

    def set(self, attributes: Attributes) -> None:
        """Nothing."""

    def link(self, other: TraceParent) -> None:
        """Nothing."""

    def end(self, error: str = "") -> None:
        """Nothing."""

    def __enter__(self) -> Self:
        """Nothing."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing."""


NO_SPAN: Final[Span] = PassingSpan(NO_TRACE)
"""Span of work that has no trace."""


class NoTracer:
    """Tracer of a process that makes no spans: contexts of others pass through it."""

    def start(
        self,
        name: str,
        parent: TraceParent = NO_TRACE,
        kind: SpanKind = SpanKind.INTERNAL,
        attributes: Attributes | None = None,
        links: Sequence[TraceParent] = (),
    ) -> Span:
        """A span that hands on its parent."""
        return PassingSpan(parent) if parent else NO_SPAN


NO_TRACER: Final[Tracer] = NoTracer()


def code_of(error: BaseException | None) -> str:
    """How a span names an error: codes only, since details may quote what was sent."""
    if error is None:
        return ""
    return error.code if isinstance(error, BlockyardError) else type(error).__name__
