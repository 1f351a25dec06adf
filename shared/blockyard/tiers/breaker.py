"""Circuit breaker: a server that does not answer costs one quick refusal per call, not one timeout per call.

::

    CLOSED --silence, or n failures in a row--> OPEN --pause over--> HALF_OPEN (one call passes) --success--> CLOSED
                                                 ^------------------------ failure, longer pause ----'

Only ``UnavailableError`` counts as a failure: an answer, even a refusing one, proves that the server is there. A call
that its caller gave up counts as a failure if it had waited for long: a server that hangs is dead, too. Silence, that
is a call without an answer while nobody else had one, opens at once: each further try would cost somebody a timeout.
Threading: one event loop; no awaits inside.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum, unique
from typing import Final

from blockyard.core.clock import Clock
from blockyard.core.errors import (
    AccessDeniedError,
    BlockyardError,
    DeadlineExceededError,
    NotAskedError,
    UnavailableError,
)

_FAILURES_TO_OPEN: Final = 3
_FIRST_PAUSE_SECONDS: Final = 0.5
_LONGEST_PAUSE_SECONDS: Final = 5.0
_PATIENCE_SECONDS: Final = 1.0
"""A call given up after less than this says nothing about the server."""


@unique
class BreakerState(Enum):
    """Whether calls pass."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half-open"


@unique
class _Outcome(Enum):
    ANSWERED = "answered"
    FAILED = "failed"
    UNANSWERED = "unanswered"
    GIVEN_UP = "given up"


class Breaker:
    """Counts failures in a row of one server and refuses calls while it is believed dead."""

    def __init__(self, server: str, clock: Clock, *, longest_pause_seconds: float = _LONGEST_PAUSE_SECONDS) -> None:
        """Guard calls to ``server`` (a name for messages)."""
        self._server = server
        self._clock = clock
        self._longest_pause = longest_pause_seconds
        self._failures = 0
        self._answers = 0
        self._pause = _FIRST_PAUSE_SECONDS
        self._retry_at = 0.0
        self._probing = False

    @property
    def state(self) -> BreakerState:
        """State at this moment."""
        if self._failures < _FAILURES_TO_OPEN:
            return BreakerState.CLOSED
        return BreakerState.OPEN if self._clock.monotonic() < self._retry_at else BreakerState.HALF_OPEN

    @contextmanager
    def attempt(self) -> Iterator[None]:
        """One call to the server stands inside this context.

        Raises:
            NotAskedError: the breaker is open; nothing was sent.
        """
        probing = self._admit()
        started, answers = self._clock.monotonic(), self._answers
        outcome = _Outcome.GIVEN_UP
        try:
            yield
            outcome = _Outcome.ANSWERED
        except AccessDeniedError:
            outcome = _Outcome.ANSWERED
            raise
        except DeadlineExceededError:
            outcome = _Outcome.UNANSWERED
            raise
        except UnavailableError:
            outcome = _Outcome.FAILED
            raise
        except BlockyardError:
            outcome = _Outcome.ANSWERED
            raise
        finally:
            if outcome is _Outcome.GIVEN_UP and self._clock.monotonic() - started >= _PATIENCE_SECONDS:
                outcome = _Outcome.UNANSWERED
            if outcome is _Outcome.UNANSWERED and self._answers == answers:
                self._failures = max(self._failures, _FAILURES_TO_OPEN - 1)
            self._settle(outcome, probing)

    def _admit(self) -> bool:
        state = self.state
        if state is BreakerState.CLOSED:
            return False
        if state is BreakerState.OPEN or self._probing:
            raise NotAskedError("not asked: it did not answer lately", server=self._server)
        self._probing = True
        return True

    def _settle(self, outcome: _Outcome, probing: bool) -> None:
        if probing:
            self._probing = False
        if outcome is _Outcome.ANSWERED:
            self._answers += 1
            self._failures = 0
            self._pause = _FIRST_PAUSE_SECONDS
        elif outcome is not _Outcome.GIVEN_UP:
            self._failures += 1
            if self._failures >= _FAILURES_TO_OPEN:
                self._retry_at = self._clock.monotonic() + self._pause
                if probing:
                    self._pause = min(2 * self._pause, self._longest_pause)
