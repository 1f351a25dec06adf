"""Metrics: their names are a contract with dashboards."""

import importlib.metadata

from prometheus_client.parser import text_string_to_metric_families

from blockyard.core.vocabulary import Tier
from blockyard.runtime.telemetry import Edge, LookupOutcome, Metrics


def samples(metrics: Metrics) -> dict[str, float]:
    text = metrics.exposition()[0].decode()
    return {
        f"{sample.name}{sorted(sample.labels.items())}": sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def families(metrics: Metrics) -> set[str]:
    text = metrics.exposition()[0].decode()
    return {family.name for family in text_string_to_metric_families(text)}


def test_two_processes_in_one_test_do_not_share_counts() -> None:
    first, second = Metrics("a"), Metrics("b")
    first.lookups.inc()
    assert samples(first)["blockyard_lookups_total[]"] == 1
    assert samples(second)["blockyard_lookups_total[]"] == 0


def test_every_own_metric_has_the_prefix_and_every_rate_its_denominator() -> None:
    names = families(Metrics("a"))
    own = {name for name in names if not name.startswith("process_")}
    assert all(name.startswith("blockyard_") for name in own)
    assert own >= {
        "blockyard_blocks",
        "blockyard_capacity_blocks",
        "blockyard_lookup_blocks",
        "blockyard_moved_bytes",
        "blockyard_transfer_seconds",
        "blockyard_checksum_checks",
        "blockyard_checksum_failures",
        "blockyard_jobs",
        "blockyard_job_items",
        "blockyard_dropped",
        "blockyard_events_appended",
        "blockyard_events_published",
        "blockyard_events_overwritten",
        "blockyard_mover_info",
        "blockyard_dependency_up",
        "blockyard_dependency_seconds",
        "blockyard_dependency_errors",
    }


def test_counts_appear_under_their_labels() -> None:
    metrics = Metrics("block-manager")
    metrics.lookup_blocks.labels(Tier.G2.label, LookupOutcome.HIT).inc(3)
    metrics.moved_bytes.labels(Edge.G2_G3).inc(4_096)
    metrics.blocks.labels(Tier.G3.label, "free").set(7)
    found = samples(metrics)
    assert found["blockyard_lookup_blocks_total[('outcome', 'hit'), ('tier', 'g2')]"] == 3
    assert found["blockyard_moved_bytes_total[('edge', 'g2_g3')]"] == 4_096
    assert found["blockyard_blocks[('state', 'free'), ('tier', 'g3')]"] == 7


def test_the_service_and_its_version_are_named() -> None:
    found = samples(Metrics("block-manager"))
    version = importlib.metadata.version("blockyard")
    assert version
    assert found[f"blockyard_build_info[('service', 'block-manager'), ('version', '{version}')]"] == 1


def test_units_are_base_units() -> None:
    metrics = Metrics("a")
    for family in metrics.registry.collect():
        assert not family.name.endswith(("_ms", "_us", "_kib", "_mib", "_percent", "_ratio_percent")), family.name
        if family.type == "histogram":
            assert family.name.endswith("_seconds")


def test_only_metrics_without_labels_show_before_they_are_counted() -> None:
    found = samples(Metrics("a"))
    own = {name for name in found if name.startswith("blockyard_") and not name.startswith("blockyard_build_info")}
    assert "blockyard_lookups_total[]" in own
    assert all("[]" in name or "('le'," in name for name in own)


def test_the_age_of_a_count_is_no_series_of_its_own() -> None:
    metrics = Metrics("a")
    metrics.lookup_blocks.labels(Tier.G2.label, LookupOutcome.HIT).inc()
    metrics.dependency_seconds.labels("redis", "find").observe(1)
    assert [name for name in samples(metrics) if "_created[" in name] == []
