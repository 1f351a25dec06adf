"""All metrics of the three services: the only place where their names, labels and buckets are written.

Every rate comes with its denominator: hits with all looked-up blocks, failed items with all items, dropped events with
published ones. A metric means the same in every service that counts it, so that sums over services are right. Every
service registers all of them: one without labels stays 0 in a service that does not do the thing; one with labels shows
the samples that its service may count from the start, where an alert waits for the first of them.
Invariants: base units; label values come from small fixed sets (tiers, edges, reasons), never from requests.
Threading: the client library locks each sample; any thread may count.
"""

import importlib.metadata
from enum import StrEnum, unique
from typing import Final

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST

PREFIX: Final = "blockyard"
_LAG_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
_TRANSFER_BUCKETS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


@unique
class Edge(StrEnum):
    """Direction of a copy between tiers, as a label."""

    G1_G2 = "g1_g2"
    G2_G1 = "g2_g1"
    G2_G3 = "g2_g3"
    G3_G2 = "g3_g2"
    G2_G4 = "g2_g4"
    G4_G2 = "g4_g2"


@unique
class LookupOutcome(StrEnum):
    """What a lookup said about one block, as a label."""

    HIT = "hit"
    MISS = "miss"
    UNKNOWN = "unknown"


@unique
class Server(StrEnum):
    """A server that a node stands on, as the label ``name``; workers appear there under the names of their services."""

    NATS = "nats"
    REDIS = "redis"
    S3 = "s3"


@unique
class Operation(StrEnum):
    """What a server was asked for, as a label."""

    PUBLISH = "publish"
    """A window of events, until the last acknowledgement."""
    PUT = "put"
    REPLACE = "replace"
    GET = "get"
    HEAD = "head"
    FIND = "find"
    SET = "set"
    DROP = "drop"
    TOUCH = "touch"
    META = "meta"
    BUILD = "build"


class Metrics:
    """Metrics of one process, with a registry of their own."""

    def __init__(self, service: str) -> None:
        """Register all metrics; ``service`` and the version installed show in ``blockyard_build_info``."""
        # A third of all series, for a fact that Prometheus knows from the samples themselves.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._gauge("build_info", "Service and version of this process.", "service", "version").labels(
            service, importlib.metadata.version("blockyard")
        ).set(1)
        self._tier_metrics()
        self._request_metrics()
        self._job_metrics()
        self._event_metrics()
        self._process_metrics()

    def exposition(self) -> tuple[bytes, str]:
        """Current samples in the text format, and its content type."""
        return generate_latest(self.registry), CONTENT_TYPE_LATEST

    # --- groups -------------------------------------------------------------------------------------------------
    def _tier_metrics(self) -> None:
        self.block_bytes = self._gauge("block_bytes", "Payload bytes of one block.")
        self.block_tokens = self._gauge("block_tokens", "Tokens of one block.")
        self.blocks = self._gauge("blocks", "Blocks per tier and state.", "tier", "state")
        self.capacity_blocks = self._gauge("capacity_blocks", "Blocks a tier has room for.", "tier")
        self.leaked_blocks = self._gauge(
            "leaked_blocks", "Blocks whose handle was dropped without an end, since start: a bug.", "tier"
        )
        self.rank_blocks = self._gauge(
            "rank_blocks", "Slots of G2 that ranks of engines write or read themselves, by what they are for.", "state"
        )
        self.arena_writers = self._gauge(
            "arena_writers", "Rank processes that may write the arena, by their connection.", "state"
        )
        self.arenas_given_up = self._counter(
            "arenas_given_up", "Times that G2 started empty in another arena while the block-manager lived."
        )
        self.stuck_workers = self._counter(
            "stuck_workers",
            "Times that the offload-worker left the last step of loads open for too long, by what was done.",
            "outcome",
        )
        self.evicted_blocks = self._counter("evicted_blocks", "Blocks evicted to make room.", "tier")
        self.not_written_blocks = self._counter(
            "not_written_blocks", "Blocks of G2 that a rule kept from G3, each time it did.", "reason"
        )
        self.relatives_left = self._gauge(
            "relatives_left",
            "Blocks that stayed, being held, when one of their key in another group was evicted; since start.",
            "tier",
        )
        self.checksum_checks = self._counter("checksum_checks", "Blocks whose bytes were compared.", "tier")
        self.checksum_failures = self._counter("checksum_failures", "Blocks whose bytes were damaged.", "tier")
        self.moved_bytes = self._counter("moved_bytes", "Payload bytes copied between tiers.", "edge")
        self.moved_blocks = self._counter("moved_blocks", "Blocks copied between tiers.", "edge")
        self.transfer_seconds = self._histogram(
            "transfer_seconds", "Duration of a batch of copies.", _TRANSFER_BUCKETS, "edge"
        )
        self.mover_info = self._gauge("mover_info", "1 for the mover in use between G2 and G3.", "mover", "reason")

    def _request_metrics(self) -> None:
        self.lookups = self._counter("lookups", "Lookup calls.")
        self.lookup_blocks = self._counter(
            "lookup_blocks", "Blocks asked for; tier is where a hit lies, else 'none'.", "tier", "outcome"
        )
        self.load_blocks = self._counter(
            "load_blocks", "Blocks of finished loads by source and status.", "tier", "status"
        )
        self.load_seconds = self._histogram("load_seconds", "Duration of loads.", _TRANSFER_BUCKETS)
        self.index_lookup_blocks = self._counter(
            "index_lookup_blocks", "Blocks that the shared index was asked for, by its answer.", "outcome"
        )
        self.sessions = self._gauge("sessions", "Connected engines.")
        self.request_decisions = self._counter(
            "request_decisions", "Requests that engines reported at admission, by what ended their hit.", "reason"
        )
        self.loading_enabled = self._gauge("loading_enabled", "1 while loads are switched on at this node.")

    def _job_metrics(self) -> None:
        self.jobs = self._counter("jobs", "Ended transfer jobs.", "kind", "end")
        self.job_items = self._counter("job_items", "Items of ended transfer jobs.", "kind", "status")
        self.job_wait_seconds = self._histogram(
            "job_wait_seconds", "Time until a transfer job went to its worker.", _TRANSFER_BUCKETS, "kind"
        )
        self.job_seconds = self._histogram(
            "job_seconds", "Time from the order of a transfer job to its end.", _TRANSFER_BUCKETS, "kind"
        )
        self.jobs_waiting = self._gauge("jobs_waiting", "Transfer jobs not given to their worker yet.", "role", "lane")
        self.jobs_unsettled = self._gauge("jobs_unsettled", "Transfer jobs without a result yet.", "role")
        self.dropped = self._counter(
            "dropped",
            "Blocks given up for want of room or time; jobs, results and writes where the reason is about those.",
            "reason",
        )

    def _event_metrics(self) -> None:
        self.events_appended = self._counter("events_appended", "Events given a number.")
        self.events_published = self._counter("events_published", "Events acknowledged by the bus.")
        self.events_overwritten = self._counter(
            "events_overwritten", "Events lost before publication: the outbox was full, or the bus takes none so large."
        )
        self.events_waiting = self._gauge(
            "events_waiting", "Events in the outbox that the bus did not acknowledge yet."
        )
        self.publish_failures = self._counter(
            "publish_failures", "Windows of events that the bus did not wholly acknowledge."
        )

    def _process_metrics(self) -> None:
        self.ready = self._gauge("ready", "1 while the service has started and every check of it holds.")
        self.check_ok = self._gauge("check_ok", "1 while a condition for being ready holds.", "check")
        self.lease_state = self._gauge("lease_state", "1 for the state of the lease of the node's name.", "state")
        self.dependency_up = self._gauge("dependency_up", "1 while a needed server answers.", "name")
        self.dependency_errors = self._counter(
            "dependency_errors", "Failed calls to a needed server.", "name", "reason"
        )
        self.dependency_seconds = self._histogram(
            "dependency_seconds", "Duration of calls to a needed server.", _TRANSFER_BUCKETS, "name", "operation"
        )
        self.index_writes_waiting = self._gauge(
            "index_writes_waiting", "Writes to the shared index that could not be made yet."
        )
        self.event_loop_lag_seconds = self._histogram(
            "event_loop_lag_seconds", "How late the event loop came to a timer.", _LAG_BUCKETS
        )
        self.spans = self._counter("spans", "Recorded spans of traces that ended.")
        self.spans_dropped = self._counter(
            "spans_dropped", "Recorded spans that were not delivered to the receiver of traces.", "reason"
        )
        # Those that end the process are in its log only: nobody could ask it for the count any more.
        self.unhandled_errors = self._counter(
            "unhandled_errors", "Errors in the event loop that nobody expected and that did not end the process."
        )
        self.epoch = self._gauge("epoch", "Number of this life of the process.")
        self.memory_limit = self._gauge(
            "memory_limit_bytes", "Memory that the control groups of this process allow; 0 where they do not limit it."
        )

    # --- makers -------------------------------------------------------------------------------------------------
    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"{PREFIX}_{name}", text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"{PREFIX}_{name}", text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
        return Histogram(f"{PREFIX}_{name}", text, labels, buckets=buckets, registry=self.registry)
