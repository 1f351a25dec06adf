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


def test_stores_from_an_engine_compare_nothing() -> None:
    lines = exposed(JobKind.G1_G2, ItemStatus.OK)
    assert {line.split()[-1] for line in lines if line.startswith("blockyard_checksum_checks_total")} == {"0.0"}


def test_rows_that_ranks_store_count_when_they_are_sealed_and_their_copies_take_no_time_here() -> None:
    lines = exposed(JobKind.SEAL, ItemStatus.OK, ItemStatus.STALE)
    assert 'blockyard_moved_blocks_total{edge="g1_g2"} 1.0' in lines
    assert f'blockyard_moved_bytes_total{{edge="g1_g2"}} {1.0 * SIZE}' in lines
    assert not [line for line in lines if line.startswith("blockyard_transfer_seconds_count")]


def test_rows_that_are_checked_for_ranks_are_compared_and_not_moved() -> None:
    lines = exposed(JobKind.CHECK, ItemStatus.OK, ItemStatus.CORRUPT, ItemStatus.STALE)
    assert 'blockyard_checksum_failures_total{tier="g2"} 1.0' in lines
    assert 'blockyard_checksum_checks_total{tier="g2"} 2.0' in lines
    assert {line.split()[-1] for line in lines if line.startswith("blockyard_moved_bytes_total")} == {"0.0"}


def test_freeing_moves_nothing() -> None:
    lines = exposed(JobKind.FREE, ItemStatus.OK)
    assert {line.split()[-1] for line in lines if line.startswith("blockyard_moved_bytes_total")} == {"0.0"}


def test_the_first_damaged_block_is_an_increase() -> None:
    metrics = Metrics("offload-worker")
    TransferMeter(metrics)
    lines = metrics.exposition()[0].decode().splitlines()
    assert 'blockyard_checksum_failures_total{tier="g2"} 0.0' in lines
    assert 'blockyard_checksum_failures_total{tier="g3"} 0.0' in lines
