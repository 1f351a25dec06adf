"""The latest requests and what engines decided for them: the answer to "why was this a miss?".

Engines report after admission; a request that is admitted again is reported again and its latest report counts. The log
is a ring by request: the one that was reported longest ago is forgotten first. Two engines may use one name for a
request, so a name stands for a report per engine. Engines add endings to the names that their clients know, each after
a hyphen: the name without them stands for the request that was reported last.
Invariants: at most ``CAPACITY`` requests and ``ENGINES_PER_REQUEST`` reports of each; a message that is refused has
changed nothing; nothing here steers anything.
Threading: one event loop.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from blockyard.core.clock import Clock
from blockyard.core.errors import RequestError, RequestNotSeenError
from blockyard.core.miss_reason import MissReason, reason_of
from blockyard.core.vocabulary import EngineId, RequestId, Tier
from blockyard.wire.codec import MAX_DECISIONS_PER_CALL
from blockyard.wire.connector_channel import RequestDecision

CAPACITY: Final = 4_096
"""Requests that are remembered."""
ENGINES_PER_REQUEST: Final = 16
_MAX_REQUEST_NAME: Final = 256
_MAX_REASON: Final = 64
"""Of newer engines, too, reasons are words; the log keeps what it is told."""
_MAX_TOKENS: Final = 1 << 40
_MAX_LOOKUP_MS: Final = 1e9
_SOURCES: Final = tuple(tier.label for tier in (Tier.G2, Tier.G3, Tier.G4))


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedDecision:
    """What one engine decided for one request."""

    request: RequestId
    engine: EngineId
    dp_rank: int
    age_seconds: float
    """Since the report came in."""
    prompt_tokens: int
    local_tokens: int
    found_tokens: Mapping[str, int]
    """Per tier label, of the tiers that held some."""
    loaded_tokens: int
    reason: MissReason
    lookup_ms: float


@dataclass(frozen=True, slots=True)
class _Entry:
    decision: RequestDecision
    reported_at: float


class DecisionLog:
    """The latest decisions of all engines of this node."""

    def __init__(
        self, clock: Clock, on_decided: Callable[[MissReason, int], None] = lambda reason, count: None
    ) -> None:
        """Start empty; ``on_decided`` is told how many decisions ended for which reason."""
        self._clock = clock
        self._on_decided = on_decided
        self._requests: dict[str, dict[tuple[EngineId, int], _Entry]] = {}

    def __len__(self) -> int:
        """Requests that are remembered."""
        return len(self._requests)

    def report(self, engine: EngineId, dp_rank: int, decisions: Sequence[RequestDecision]) -> None:
        """An engine reports; a request that it reported before is overwritten.

        Raises:
            RequestError: a decision says what cannot be; nothing of the message is kept.
        """
        if len(decisions) > MAX_DECISIONS_PER_CALL:
            raise RequestError("too many decisions in one message", given=len(decisions), limit=MAX_DECISIONS_PER_CALL)
        for decision in decisions:
            _check(decision)
        now = self._clock.monotonic()
        for decision in decisions:
            # Last in the order of a dict is what was reported last.
            reports = self._requests.pop(decision.request, {})
            reports.pop((engine, dp_rank), None)
            if len(reports) >= ENGINES_PER_REQUEST:
                del reports[next(iter(reports))]
            reports[engine, dp_rank] = _Entry(decision, now)
            self._requests[decision.request] = reports
            if len(self._requests) > CAPACITY:
                del self._requests[next(iter(self._requests))]
        for reason, count in Counter(reason_of(decision.reason) for decision in decisions).items():
            self._on_decided(reason, count)

    def of(self, request: str) -> tuple[LoggedDecision, ...]:
        """What is remembered of a request, by engine, the latest report last.

        Raises:
            RequestNotSeenError: nothing is.
        """
        request = self._named(request)
        reports = self._requests.get(request)
        if not reports:
            raise RequestNotSeenError("not seen here", request=request[:_MAX_REQUEST_NAME], remembered=len(self))
        now = self._clock.monotonic()
        return tuple(
            LoggedDecision(
                request=RequestId(request),
                engine=engine,
                dp_rank=dp_rank,
                age_seconds=max(0.0, now - entry.reported_at),
                prompt_tokens=entry.decision.prompt_tokens,
                local_tokens=entry.decision.local_tokens,
                found_tokens=dict(entry.decision.found_tokens),
                loaded_tokens=entry.decision.loaded_tokens,
                reason=reason_of(entry.decision.reason),
                lookup_ms=entry.decision.lookup_ms,
            )
            for (engine, dp_rank), entry in reports.items()
        )

    def _named(self, request: str) -> str:
        """Name under which a request was reported."""
        if request in self._requests or not request:
            return request
        return next((name for name in reversed(self._requests) if name.startswith(f"{request}-")), request)


def _check(decision: RequestDecision) -> None:
    if not decision.request or len(decision.request) > _MAX_REQUEST_NAME:
        raise RequestError("a request has a name", field="request", limit=_MAX_REQUEST_NAME)
    if len(decision.reason) > _MAX_REASON:
        raise RequestError("a reason is a word", field="reason", limit=_MAX_REASON)
    if not set(decision.found_tokens) <= set(_SOURCES):
        raise RequestError("tokens are found in lower tiers", field="found_tokens", known=", ".join(_SOURCES))
    counts = (decision.prompt_tokens, decision.local_tokens, decision.loaded_tokens, *decision.found_tokens.values())
    if not all(0 <= count <= _MAX_TOKENS for count in counts):
        raise RequestError("a number of tokens is not negative and bounded", field="tokens", limit=_MAX_TOKENS)
    if not (math.isfinite(decision.lookup_ms) and 0 <= decision.lookup_ms <= _MAX_LOOKUP_MS):
        raise RequestError("the time of a lookup is a number of milliseconds", field="lookup_ms")
