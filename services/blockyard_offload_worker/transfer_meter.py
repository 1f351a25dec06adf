"""Counts what the jobs of this worker moved, how long it took, and which bytes were damaged.

Every failure comes with its denominator: damaged blocks with all blocks whose bytes were compared.
Threading: event loop only.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from blockyard.core.vocabulary import ItemStatus, JobKind, Tier
from blockyard.runtime.telemetry import Edge, Metrics
from blockyard.wire.worker_channel import Job


@dataclass(frozen=True, slots=True)
class _Path:
    """Label of a kind of job, and the tier whose stored bytes it compares with their header."""

    edge: Edge
    verified: Tier | None


_PATHS: Final = {
    JobKind.G1_G2: _Path(Edge.G1_G2, None),
    JobKind.G2_G1: _Path(Edge.G2_G1, Tier.G2),
    JobKind.G2_G3: _Path(Edge.G2_G3, Tier.G2),
    JobKind.G3_G2: _Path(Edge.G3_G2, Tier.G3),
}


class TransferMeter:
    """``WorkerMeter`` of the offload-worker."""

    def __init__(self, metrics: Metrics) -> None:
        """Count in ``metrics``."""
        self._metrics = metrics
        for path in _PATHS.values():
            metrics.moved_blocks.labels(path.edge)
            metrics.moved_bytes.labels(path.edge)
            if path.verified is not None:
                metrics.checksum_checks.labels(path.verified.label)
                metrics.checksum_failures.labels(path.verified.label)

    def job_ended(self, job: Job, status: Sequence[ItemStatus], seconds: float) -> None:
        """A job ended after ``seconds`` of execution."""
        path = _PATHS.get(job.kind)
        if path is None:
            return
        moved, damaged = status.count(ItemStatus.OK), status.count(ItemStatus.CORRUPT)
        self._metrics.moved_blocks.labels(path.edge).inc(moved)
        self._metrics.moved_bytes.labels(path.edge).inc(moved * job.payload_bytes)
        self._metrics.transfer_seconds.labels(path.edge).observe(seconds)
        if path.verified is not None:
            self._metrics.checksum_checks.labels(path.verified.label).inc(moved + damaged)
            self._metrics.checksum_failures.labels(path.verified.label).inc(damaged)
