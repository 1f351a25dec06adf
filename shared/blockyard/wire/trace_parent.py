"""W3C trace context as it travels: ``traceparent``, a short string that names a trace and the span that caused a call.

::

    00-<trace: 32 hex digits>-<parent span: 16 hex digits>-<flags: 2 hex digits>        flag 1: the trace is recorded

Tracing never breaks what is traced, so whatever a peer sends that is no such string is *no trace*, not an error; the
same goes for values of a later version that cannot be read as one of version 00.
Invariants: a ``TraceParent`` is empty or 55 characters long and well-formed.
Threading: pure functions, but for the random ids.
"""

import re
import secrets
from typing import Final, NewType

TraceParent = NewType("TraceParent", str)
"""A well-formed ``traceparent`` of version 00, or nothing."""

NO_TRACE: Final = TraceParent("")
"""Nobody has begun a trace."""

TRACE_HEADER: Final = "traceparent"
"""Name of the header where messages have headers."""

_LENGTH: Final = 55
_LONGEST: Final = 512
"""Of a later version, which may add fields behind ours."""
_SAMPLED: Final = 0x01
_FORM: Final = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.ASCII | re.DOTALL)
_NO_TRACE_ID: Final = "0" * 32
_NO_SPAN_ID: Final = "0" * 16


def parse_trace_parent(text: object) -> TraceParent:
    """What a peer sent as a trace context; ``NO_TRACE`` where it is none."""
    if not isinstance(text, str) or not _LENGTH <= len(text) <= _LONGEST:
        return NO_TRACE
    found = _FORM.fullmatch(text)
    if found is None:
        return NO_TRACE
    version, trace, span, flags, rest = found.groups()
    if trace == _NO_TRACE_ID or span == _NO_SPAN_ID or version == "ff":
        return NO_TRACE
    if version == "00":
        return NO_TRACE if rest else TraceParent(text)
    return TraceParent(f"00-{trace}-{span}-{flags}")


def make_trace_parent(trace: int, span: int, flags: int) -> TraceParent:
    """Context with these ids, which are not zero."""
    return TraceParent(f"00-{trace:032x}-{span:016x}-{flags & 0xFF:02x}")


def new_trace(*, sampled: bool = True) -> TraceParent:
    """Begin a trace: random ids, and the decision whether it is recorded, which holds for everybody who joins."""
    return make_trace_parent(_random_id(16), _random_id(8), _SAMPLED if sampled else 0)


def child_of(parent: TraceParent) -> TraceParent:
    """Another span of the same trace; nothing of nothing."""
    return TraceParent(f"{parent[:36]}{_random_id(8):016x}{parent[52:]}") if parent else NO_TRACE


def trace_id_of(parent: TraceParent) -> str:
    """Name of the trace in hex digits; empty where there is none."""
    return parent[3:35]


def span_id_of(parent: TraceParent) -> str:
    """Name of the span in hex digits; empty where there is none."""
    return parent[36:52]


def flags_of(parent: TraceParent) -> int:
    """Flags of the trace."""
    return int(parent[53:], 16) if parent else 0


def is_sampled(parent: TraceParent) -> bool:
    """Whether the trace is recorded; false where there is none."""
    return bool(flags_of(parent) & _SAMPLED)


def _random_id(size: int) -> int:
    while True:
        if found := int.from_bytes(secrets.token_bytes(size), "big"):
            return found
