"""Times the calls to one server, and counts those that failed.

An answer is no failure, whatever it says: an object that is not there was looked for in vain, and the server is well.
Calls that were refused on this side, before anything was sent, are not calls.
Threading: one event loop; no awaits inside.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from blockyard.core.clock import Clock
from blockyard.core.errors import (
    AccessDeniedError,
    BlockyardError,
    DeadlineExceededError,
    ObjectNotFoundError,
    UnavailableError,
)
from blockyard.runtime.telemetry import Metrics, Operation, Server

GIVEN_UP: Final = "given-up"
"""Reason of a call whose caller had no more time, beside the codes of errors."""


class ServerMeter:
    """Calls to one server."""

    def __init__(self, server: Server, metrics: Metrics, clock: Clock) -> None:
        """Count in ``metrics``, where the usual failures show from the start."""
        self._server = server
        self._metrics = metrics
        self._clock = clock
        for failure in (UnavailableError.code, AccessDeniedError.code, DeadlineExceededError.code, GIVEN_UP):
            metrics.dependency_errors.labels(server, failure)

    @contextmanager
    def call(self, operation: Operation) -> Iterator[None]:
        """One call stands inside this context."""
        started, failure = self._clock.monotonic(), GIVEN_UP
        try:
            yield
            failure = ""
        except ObjectNotFoundError:
            failure = ""
            raise
        except BlockyardError as error:
            failure = error.code
            raise
        finally:
            seconds = self._clock.monotonic() - started
            self._metrics.dependency_seconds.labels(self._server, operation).observe(seconds)
            if failure:
                self._metrics.dependency_errors.labels(self._server, failure).inc()
