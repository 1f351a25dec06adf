"""Figures come from the right service, and survive the restart of a service."""

import re

from blockyard.cli.node_metrics import EMPTY_STATES, ServiceSamples
from blockyard.core.states import RowState
from blockyard.runtime.telemetry import Edge, Metrics


def exposition(metrics: Metrics, started: int = 1) -> str:
    """As of a process that was started at this time."""
    text = metrics.exposition()[0].decode()
    return re.sub(r"(?m)^process_start_time_seconds .*$", f"process_start_time_seconds {started}", text)


def test_counters_are_summed_over_labels_not_asked_for() -> None:
    metrics = Metrics("test")
    metrics.lookup_blocks.labels("g2", "hit").inc(3)
    metrics.lookup_blocks.labels("g3", "hit").inc(4)
    metrics.lookup_blocks.labels("none", "miss").inc(5)
    samples = ServiceSamples()
    samples.update(exposition(metrics))
    assert samples.total("lookup_blocks", outcome="hit") == 7
    assert samples.total("lookup_blocks", outcome="hit", tier="g3") == 4
    assert samples.total("lookup_blocks") == 12


def test_counters_go_on_after_a_restart_and_gauges_do_not() -> None:
    samples = ServiceSamples()
    assert samples.restarts == 0
    for started, moved, blocks in ((1, 10, 5), (1, 12, 6), (2, 3, 2)):
        metrics = Metrics("test")
        metrics.moved_bytes.labels(Edge.G2_G3).inc(moved)
        metrics.blocks.labels("g3", "inactive").set(blocks)
        samples.update(exposition(metrics, started))
    assert samples.total("moved_bytes", edge=Edge.G2_G3) == 15
    assert samples.gauge("blocks", tier="g3") == 2
    assert samples.restarts == 1


def test_free_rows_are_no_blocks() -> None:
    metrics = Metrics("test")
    for state in RowState:
        metrics.blocks.labels("g2", state.label).set(10 ** int(state))
    samples = ServiceSamples()
    samples.update(exposition(metrics))
    blocks = sum(10 ** int(state) for state in (RowState.MUTABLE, RowState.COMPLETE, RowState.HELD, RowState.INACTIVE))
    assert samples.gauge("blocks", tier="g2", without=EMPTY_STATES) == blocks


def test_mover_is_the_label_of_the_sample_that_is_one() -> None:
    metrics = Metrics("test")
    metrics.mover_info.labels("nixl", "probed").set(0)
    metrics.mover_info.labels("plain", "no io_uring").set(1)
    samples = ServiceSamples()
    assert samples.label("mover_info", "mover") == ""
    samples.update(exposition(metrics))
    assert samples.label("mover_info", "mover") == "plain"
