"""Admission of requests: what is asked, what is answered, and how much of a prompt is loaded for that.

Invariants: asking how much there is changes nothing but leases, so the engine may ask again and again; every request
that the engine admits is accounted for by one reason. Threading: the scheduler's thread.
"""

from collections.abc import Callable
from itertools import count
from typing import Final, final

from blockyard.connectors.vllm import prefix_hit as hits
from blockyard.connectors.vllm.connector_counts import ConnectorCounts
from blockyard.connectors.vllm.node_calls import LookupAnswered, NodeCalls
from blockyard.connectors.vllm.settings import ConnectorSettings
from blockyard.connectors.vllm.tracked_request import EngineFacts, TrackedRequest
from blockyard.core.cost import CostModel
from blockyard.core.engine_names import row_hashes
from blockyard.core.miss_reason import MissReason
from blockyard.wire.codec import MAX_KEYS_PER_CALL
from blockyard.wire.connector_channel import RequestDecision

_LEASE_RENEWAL_SECONDS: Final = 2.0
_WAIT_AT_NODE: Final = 0.8
"""Part of a lookup's time that the node may spend on the shared index; the rest is the way there and back."""


@final
class Admission:
    """Lookups, hits, leases and decisions."""

    def __init__(
        self,
        settings: ConnectorSettings,
        facts: EngineFacts,
        calls: NodeCalls,
        cost: CostModel,
        counts: ConnectorCounts,
        clock: Callable[[], float],
    ) -> None:
        """Ask through ``calls``."""
        self._settings = settings
        self._facts = facts
        self._calls = calls
        self._cost = cost
        self._counts = counts
        self._clock = clock
        self._decisions: list[RequestDecision] = []
        self._attempts = count(1)
        """Never used again: the answer to a request that is gone is none for a later one of its name."""
        self.loading = True
        """Whether loads are switched on at the node."""

    def ask(self, tracked: TrackedRequest) -> None:
        """Ask where the rows of the request are; an answer that is under way does not count any more."""
        tracked.attempt = next(self._attempts)
        tracked.hit, tracked.found, tracked.answered = None, None, False
        tracked.asked_at = self._clock()
        facts, request = self._facts, tracked.request
        rows = min(len(request.block_hashes) // facts.hashes_per_row, request.num_tokens // facts.block_tokens)
        rows = min(rows, MAX_KEYS_PER_CALL // len(facts.groups))
        if _is_computed_whole(tracked) or not facts.reads:
            return
        if not rows:
            tracked.answered, tracked.found = True, ((),) * len(facts.groups)
            return
        hashes = row_hashes(request.block_hashes, facts.hashes_per_row, 0, rows)
        wait_seconds = self._settings.lookup_wait_ms * _WAIT_AT_NODE / 1_000
        self._calls.lookup(request.request_id, tracked.attempt, hashes, wait_seconds)

    def answered(self, tracked: TrackedRequest | None, answer: LookupAnswered) -> None:
        """The node answered, or cannot be asked."""
        if tracked is None or tracked.attempt != answer.attempt:
            return
        tracked.answered, tracked.found = True, answer.found
        tracked.lookup_seconds, tracked.hit = answer.seconds, None
        self._counts.looked_up(answer.found)

    def hit(self, tracked: TrackedRequest) -> hits.PrefixHit | None:
        """What to load for the request; None while the answer is awaited."""
        local, tokens = tracked.local_tokens, self._facts.block_tokens
        if _is_computed_whole(tracked):
            return hits.nothing(local, tokens, MissReason.REQUEST_OPTED_OUT)
        if not self._facts.reads:
            return hits.nothing(local, tokens, MissReason.SWITCHED_OFF)
        if tracked.declined:
            return hits.nothing(local, tokens, MissReason.LOAD_FAILED)
        if not tracked.answered:
            if self._clock() < tracked.asked_at + self._settings.lookup_wait_ms / 1_000:
                return None
            return hits.nothing(local, tokens, MissReason.LOOKUP_LATE)
        if tracked.found is None:
            return hits.nothing(local, tokens, MissReason.NOT_CONNECTED)
        if not self.loading:
            return hits.nothing(local, tokens, MissReason.SWITCHED_OFF)
        if tracked.hit is not None and tracked.hit.local_tokens == local:
            return tracked.hit
        return hits.prefix_hit(
            self._facts.groups,
            tracked.found,
            local,
            tracked.request.num_tokens,
            tokens,
            self._facts.row_bytes,
            self._cost if self._settings.weigh_loads else None,
        )

    def lease(self, tracked: TrackedRequest, hit: hits.PrefixHit) -> None:
        """Keep what the hit needs from being evicted until it is loaded."""
        now = self._clock()
        if tracked.leased_at is None or now - tracked.leased_at > _LEASE_RENEWAL_SECONDS:
            tracked.leased_at = now
            hashes = row_hashes(tracked.request.block_hashes, self._facts.hashes_per_row, 0, hit.stop_row)
            self._calls.reserve(tracked.request_id, hashes)

    def release(self, tracked: TrackedRequest) -> None:
        """The request needs its lease no more, if it has one."""
        if tracked.leased_at is None:
            return
        tracked.leased_at = None
        self._calls.release(tracked.request_id)

    def decide(self, tracked: TrackedRequest, external_tokens: int) -> None:
        """The engine admitted the request."""
        hit = tracked.hit
        if hit is None:
            return
        self._counts.decided(hit.reason)
        self._decisions.append(
            RequestDecision(
                request=tracked.request_id,
                prompt_tokens=tracked.request.num_tokens,
                local_tokens=tracked.local_tokens,
                found_tokens=hit.found_tokens,
                loaded_tokens=external_tokens,
                reason=hit.reason.value,
                lookup_ms=tracked.lookup_seconds * 1_000,
            )
        )

    def report(self) -> None:
        """Tell the node what was decided."""
        if self._decisions:
            self._calls.report(self._decisions)
            self._decisions = []


def _is_computed_whole(tracked: TrackedRequest) -> bool:
    """Whether the request stays out of the lower tiers, or wants something of each token of its prompt."""
    return tracked.opted_out or bool(getattr(tracked.request, "skip_reading_prefix_cache", False))
