"""Counts what the jobs of this worker moved, and how long it took.

Damage is counted where the bytes are compared, in ``pack_reader`` and ``pack_writer``.
Threading: event loop only.
"""

from collections.abc import Sequence
from typing import Final

from blockyard.core.vocabulary import ItemStatus, JobKind, Tier
from blockyard.runtime.telemetry import Metrics
from blockyard.runtime.transfer_spans import EDGES
from blockyard.wire.worker_channel import Job

_KINDS: Final = (JobKind.G4_PUT, JobKind.G4_GET)


class JobMeter:
    """``WorkerMeter`` of the remote tier."""

    def __init__(self, metrics: Metrics) -> None:
        """Count in ``metrics``."""
        self._metrics = metrics
        for edge in (EDGES[kind] for kind in _KINDS):
            metrics.moved_blocks.labels(edge)
            metrics.moved_bytes.labels(edge)
        for tier in (Tier.G2, Tier.G4):
            metrics.checksum_checks.labels(tier.label)
            metrics.checksum_failures.labels(tier.label)

    def job_ended(self, job: Job, status: Sequence[ItemStatus], seconds: float) -> None:
        """A job ended after ``seconds`` of execution."""
        if job.kind not in _KINDS:
            return
        edge = EDGES[job.kind]
        moved = status.count(ItemStatus.OK)
        self._metrics.moved_blocks.labels(edge).inc(moved)
        self._metrics.moved_bytes.labels(edge).inc(moved * job.payload_bytes)
        self._metrics.transfer_seconds.labels(edge).observe(seconds)
