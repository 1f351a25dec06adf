"""What the metrics say about ended jobs."""

from blockyard.core.vocabulary import ItemStatus, JobKind
from blockyard.runtime.telemetry import Metrics
from blockyard.testing.worker_jobs import Move, named_digest, transfer_job
from blockyard_offload_worker.transfer_meter import TransferMeter

SIZE = 4_096


def exposed(kind: JobKind, *status: ItemStatus) -> list[str]:
    metrics = Metrics("offload-worker")
    job = transfer_job(kind, [Move(named_digest("a"))] * len(status), payload_bytes=SIZE)
    TransferMeter(metrics).job_ended(job, list(status), 0.25)
    return metrics.exposition()[0].decode().splitlines()


def test_damage_is_counted_with_everything_that_was_compared() -> None:
    lines = exposed(JobKind.G3_G2, ItemStatus.OK, ItemStatus.CORRUPT, ItemStatus.OK, ItemStatus.STALE)
    assert 'blockyard_checksum_failures_total{tier="g3"} 1.0' in lines
    assert 'blockyard_checksum_checks_total{tier="g3"} 3.0' in lines
    assert f'blockyard_moved_bytes_total{{edge="g3_g2"}} {2.0 * SIZE}' in lines
    assert 'blockyard_moved_blocks_total{edge="g3_g2"} 2.0' in lines
    assert 'blockyard_transfer_seconds_sum{edge="g3_g2"} 0.25' in lines
    assert 'blockyard_job_items_total{kind="g3_g2",status="stale"} 1.0' in lines


def test_stores_from_an_engine_compare_nothing() -> None:
    assert not [line for line in exposed(JobKind.G1_G2, ItemStatus.OK) if line.startswith("blockyard_checksum_checks")]


def test_freeing_moves_nothing() -> None:
    lines = exposed(JobKind.FREE, ItemStatus.OK)
    assert 'blockyard_job_items_total{kind="free",status="ok"} 1.0' in lines
    assert not [line for line in lines if line.startswith("blockyard_moved_bytes_total")]
