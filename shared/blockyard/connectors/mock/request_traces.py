"""Traces of the demo engine's requests: each request begins one, as the front end of a real engine would.

The engine records no spans itself; what the services record joins under the trace that it named.
Threading: none.
"""

import random
from collections.abc import Callable

from blockyard.wire.trace_parent import NO_TRACE, TraceParent, new_trace

BeginTrace = Callable[[], TraceParent]


def no_traces() -> TraceParent:
    """Leave it to the services which of their calls they record."""
    return NO_TRACE


def traces_at_ratio(ratio: float, chance: Callable[[], float] = random.random) -> BeginTrace:
    """Begin a trace per request and decide that this share of them is recorded; with 0 nothing is decided."""
    if ratio == 0.0:
        return no_traces
    return lambda: new_trace(sampled=chance() < ratio)
