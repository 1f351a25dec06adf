"""What caused a job that serves several requests: the first of them is its parent, the others are linked.

A span has one parent. The first request is the one that would have caused the job alone; who came later only joined.
Pure functions. Threading: no state.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from blockyard.runtime.spans import MOST_LINKS
from blockyard.wire.trace_parent import NO_TRACE, TraceParent, is_sampled


@dataclass(frozen=True, slots=True)
class Cause:
    """Trace contexts of what an order serves."""

    trace: TraceParent = NO_TRACE
    also: tuple[TraceParent, ...] = ()
    """Further ones that are recorded, at most as many as a span may link to."""


NO_CAUSE: Final = Cause()


def cause_of(traces: Iterable[TraceParent]) -> Cause:
    """The first trace, and the others that differ from it."""
    found = dict.fromkeys(trace for trace in traces if trace)
    if not found:
        return NO_CAUSE
    first, *others = found
    return Cause(first, tuple(other for other in others if is_sampled(other))[:MOST_LINKS])
