"""Counts the jobs of this worker: items by status, and how long jobs took.

Threading: event loop only.
"""

from collections.abc import Sequence
from typing import Final

from blockyard.core.vocabulary import ItemStatus, JobKind
from blockyard.runtime.telemetry import Edge, Metrics
from blockyard.wire.worker_channel import Job

_EDGES: Final = {JobKind.G4_PUT: Edge.G2_G4, JobKind.G4_GET: Edge.G4_G2}


class JobMeter:
    """``WorkerMeter`` of the remote tier."""

    def __init__(self, metrics: Metrics) -> None:
        """Count in ``metrics``."""
        self._metrics = metrics

    def job_ended(self, job: Job, status: Sequence[ItemStatus], seconds: float) -> None:
        """A job ended after ``seconds`` of execution."""
        for kind in set(status):
            self._metrics.job_items.labels(job.kind.name.lower(), kind.name.lower()).inc(status.count(kind))
        edge = _EDGES.get(job.kind)
        if edge is None:
            return
        moved = status.count(ItemStatus.OK)
        self._metrics.moved_blocks.labels(edge).inc(moved)
        self._metrics.moved_bytes.labels(edge).inc(moved * job.payload_bytes)
        self._metrics.transfer_seconds.labels(edge).observe(seconds)
