"""What caused a job that serves several requests: the first that is recorded is its parent, the others are linked.

A span has one parent. Below a request that nobody records the job would be recorded by nobody, and be missing in the
traces of the others; where none is recorded, the first hands its context on.
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
    """The first recorded trace, and the other recorded ones."""
    found = dict.fromkeys(trace for trace in traces if trace)
    if not found:
        return NO_CAUSE
    recorded = list(filter(is_sampled, found))
    return Cause(recorded[0], tuple(recorded[1 : MOST_LINKS + 1])) if recorded else Cause(next(iter(found)))
