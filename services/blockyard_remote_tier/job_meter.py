"""Counts what the jobs of this worker moved, and how long it took.

Damage is counted where the bytes are compared, in ``pack_reader`` and ``pack_writer``.
Threading: event loop only.
"""

from collections.abc import Sequence
from typing import Final

from blockyard.core.vocabulary import ItemStatus, JobKind, Tier
from blockyard.runtime.telemetry import Edge, Metrics
from blockyard.wire.worker_channel import Job

_EDGES: Final = {JobKind.G4_PUT: Edge.G2_G4, JobKind.G4_GET: Edge.G4_G2}


class JobMeter:
    """``WorkerMeter`` of the remote tier."""

    def __init__(self, metrics: Metrics) -> None:
        """Count in ``metrics``."""
        self._metrics = metrics
        for edge in _EDGES.values():
            metrics.moved_blocks.labels(edge)
            metrics.moved_bytes.labels(edge)
        for tier in (Tier.G2, Tier.G4):
            metrics.checksum_checks.labels(tier.label)
            metrics.checksum_failures.labels(tier.label)

    def job_ended(self, job: Job, status: Sequence[ItemStatus], seconds: float) -> None:
        """A job ended after ``seconds`` of execution."""
        edge = _EDGES.get(job.kind)
        if edge is None:
            return
        moved = status.count(ItemStatus.OK)
        self._metrics.moved_blocks.labels(edge).inc(moved)
        self._metrics.moved_bytes.labels(edge).inc(moved * job.payload_bytes)
        self._metrics.transfer_seconds.labels(edge).observe(seconds)
