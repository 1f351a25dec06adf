"""Counts of the connector among the engine's metrics: ``vllm:blockyard_*``.

Threading: the engine's threads, which hand the values from process to process.
"""

from typing import Any, final

from vllm.distributed.kv_transfer.kv_connector.v1.metrics import KVConnectorPromMetrics, KVConnectorStats

from blockyard.connectors.vllm.connector_counts import COUNTERS, DECISIONS
from blockyard.core.miss_reason import MissReason


@final
class BlockyardStats(KVConnectorStats):  # type: ignore[misc]  # the engine ships no types here
    """Counts of an interval, by the names of ``ConnectorCounts``."""

    data: dict[str, int]

    def reset(self) -> None:
        """Begin at zero."""
        self.data = {}

    def aggregate(self, other: KVConnectorStats) -> "BlockyardStats":
        """Counts of both."""
        for name, count in other.data.items():
            self.data[name] = self.data.get(name, 0) + count
        return self

    def reduce(self) -> dict[str, int | float]:
        """For the engine's log."""
        return dict(self.data)

    def is_empty(self) -> bool:
        """Whether nothing happened."""
        return not self.data


@final
class BlockyardPromMetrics(KVConnectorPromMetrics):  # type: ignore[misc]  # the engine ships no types here
    """The counts as Prometheus counters."""

    def __init__(
        self,
        vllm_config: Any,
        metric_types: Any,
        labelnames: list[str],
        per_engine_labelvalues: dict[int, list[object]],
    ) -> None:
        """Make all counters, so that they exist at zero."""
        super().__init__(vllm_config, metric_types, labelnames, per_engine_labelvalues)
        self._children: dict[tuple[str, int], Any] = {}
        for name, meaning in COUNTERS.items():
            counter = self._counter_cls(
                name=f"vllm:blockyard_{name}", documentation=f"{meaning}.", labelnames=labelnames
            )
            for engine, values in per_engine_labelvalues.items():
                self._children[name, engine] = counter.labels(*values)
        counter = self._counter_cls(
            name="vllm:blockyard_decisions",
            documentation="Requests by the reason for which their hit ended.",
            labelnames=[*labelnames, "reason"],
        )
        for reason in MissReason:
            for engine, values in per_engine_labelvalues.items():
                self._children[f"{DECISIONS}:{reason.value}", engine] = counter.labels(*values, reason.value)

    def observe(self, transfer_stats_data: dict[str, Any], engine_idx: int = 0) -> None:
        """Add the counts of an interval."""
        for name, count in transfer_stats_data.items():
            child = self._children.get((name, engine_idx))
            if child is not None and count:
                child.inc(count)
