"""A tracer for tests: keeps every span, and knows which were not ended.

Threading: one thread.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, Self

from blockyard.runtime.spans import Attributes, AttributeValue, PassingSpan, Span, SpanKind, code_of
from blockyard.wire.trace_parent import NO_TRACE, TraceParent, child_of, is_sampled, new_trace


@dataclass(slots=True, eq=False)
class RecordedSpan:
    """One span, compared by identity."""

    name: str
    parent: TraceParent
    kind: SpanKind
    traceparent: TraceParent
    attributes: dict[str, AttributeValue]
    links: list[TraceParent]
    ended: bool = False
    error: str = ""
    recording: bool = True

    def set(self, attributes: Attributes) -> None:
        """Keep attributes; nothing after the end."""
        if not self.ended:
            self.attributes.update(attributes)

    def link(self, other: TraceParent) -> None:
        """Keep a link; nothing after the end."""
        if other and not self.ended:
            self.links.append(other)

    def end(self, error: str = "") -> None:
        """Keep the first end."""
        if not self.ended:
            self.ended, self.error = True, error

    def __enter__(self) -> Self:
        """Use as a context."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End with the block."""
        self.end(code_of(error))


@dataclass(slots=True)
class RecordingTracer:
    """Records everything but what belongs to a trace that is not recorded."""

    spans: Final[list[RecordedSpan]] = field(default_factory=list)

    def start(
        self,
        name: str,
        parent: TraceParent = NO_TRACE,
        kind: SpanKind = SpanKind.INTERNAL,
        attributes: Attributes | None = None,
        links: Sequence[TraceParent] = (),
    ) -> Span:
        """Begin and keep a span."""
        if parent and not is_sampled(parent):
            return PassingSpan(parent)
        own = child_of(parent) if parent else new_trace()
        span = RecordedSpan(name, parent, kind, own, dict(attributes or {}), list(links))
        self.spans.append(span)
        return span

    @property
    def open(self) -> list[RecordedSpan]:
        """Spans that nobody ended."""
        return [span for span in self.spans if not span.ended]

    def of(self, name: str) -> list[RecordedSpan]:
        """Spans of this name, in the order of their start."""
        return [span for span in self.spans if span.name == name]

    def only(self, name: str) -> RecordedSpan:
        """The one span of this name."""
        (span,) = self.of(name)
        return span
