"""The trace context of the work in progress: what log lines name and what calls made on its behalf pass on.

A server sets it for each request before the handler runs; tasks that a handler starts inherit it. Invariant: it only
describes, nothing is decided by it.
Threading: a context variable; every task and thread has its own.
"""

from contextvars import ContextVar, Token
from types import TracebackType
from typing import Final, final

from blockyard.wire.trace_parent import NO_TRACE, TraceParent

_current: Final[ContextVar[TraceParent]] = ContextVar("blockyard_trace", default=NO_TRACE)


def current_trace() -> TraceParent:
    """Trace context of the work in progress; ``NO_TRACE`` where there is none."""
    return _current.get()


def begin_work(trace: TraceParent) -> None:
    """The present task works for ``trace`` from now on, to its end."""
    _current.set(trace)


@final
class TraceScope:
    """``with TraceScope(trace):`` the present task works for another trace."""

    __slots__ = ("_before", "_trace")

    def __init__(self, trace: TraceParent) -> None:
        """Prepare."""
        self._trace = trace
        self._before: Token[TraceParent] | None = None

    def __enter__(self) -> None:
        """Begin."""
        self._before = _current.set(self._trace)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End."""
        if self._before is not None:
            _current.reset(self._before)
