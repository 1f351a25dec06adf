"""Counts what the jobs of this worker moved, how long it took, and which bytes were damaged.

Every failure comes with its denominator: damaged blocks with all blocks whose bytes were compared. Rows that ranks of
engines store themselves count when they are sealed; what the copies of ranks take is theirs to count.
Threading: event loop only.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from blockyard.core.vocabulary import ItemStatus, JobKind, Tier
from blockyard.runtime.telemetry import Edge, Metrics
from blockyard.wire.worker_channel import Job


@dataclass(frozen=True, slots=True, kw_only=True)
class _Path:
    """What a kind of job means.

    Attributes:
        edge: from which tier to which its blocks went; None where none did.
        copied_here: whether the copy is a part of the job.
        verified: the tier whose stored bytes it compares with their header.
    """

    edge: Edge | None = None
    copied_here: bool = True
    verified: Tier | None = None


_PATHS: Final = {
    JobKind.G1_G2: _Path(edge=Edge.G1_G2),
    JobKind.G2_G1: _Path(edge=Edge.G2_G1, verified=Tier.G2),
    JobKind.G2_G3: _Path(edge=Edge.G2_G3, verified=Tier.G2),
    JobKind.G3_G2: _Path(edge=Edge.G3_G2, verified=Tier.G3),
    JobKind.SEAL: _Path(edge=Edge.G1_G2, copied_here=False),
    JobKind.CHECK: _Path(verified=Tier.G2),
}


class TransferMeter:
    """``WorkerMeter`` of the offload-worker."""

    def __init__(self, metrics: Metrics) -> None:
        """Count in ``metrics``."""
        self._metrics = metrics
        for path in _PATHS.values():
            if path.edge is not None:
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
        good, damaged = status.count(ItemStatus.OK), status.count(ItemStatus.CORRUPT)
        if path.edge is not None:
            self._metrics.moved_blocks.labels(path.edge).inc(good)
            self._metrics.moved_bytes.labels(path.edge).inc(good * job.payload_bytes)
            if path.copied_here:
                self._metrics.transfer_seconds.labels(path.edge).observe(seconds)
        if path.verified is not None:
            self._metrics.checksum_checks.labels(path.verified.label).inc(good + damaged)
            self._metrics.checksum_failures.labels(path.verified.label).inc(damaged)
