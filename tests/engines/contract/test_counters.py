"""What the connector counts arrives on the engine's metrics page."""

from typing import Any

from prometheus_client import Counter, Gauge, Histogram, generate_latest
from tests.engines.contract.engine_parts import ROW, Engine

from blockyard.connectors.vllm.connector import BlockyardConnector


def test_counts_of_the_connector_stand_on_the_metrics_page_from_the_start(engine: Engine) -> None:
    labels: dict[int, list[object]] = {0: ["tiny", "0"]}
    types: dict[Any, Any] = {Counter: Counter, Gauge: Gauge, Histogram: Histogram}
    metrics = BlockyardConnector.build_prom_metrics(engine.config, types, ["model_name", "engine"], labels)
    where = 'engine="0",model_name="tiny"'
    assert f"vllm:blockyard_blocks_registered_total{{{where}}} 0.0" in generate_latest().decode()
    update = engine.scheduler.update_from_output

    def observed(*arguments: Any) -> Any:
        """What the engine's core hands to the process that publishes it."""
        outputs = update(*arguments)
        for client in outputs.values():
            if client.scheduler_stats is not None and client.scheduler_stats.kv_connector_stats:
                metrics.observe(client.scheduler_stats.kv_connector_stats)
        return outputs

    engine.scheduler.update_from_output = observed
    engine.node.holds = (1,)
    engine.request("a", 2 * ROW + 5)
    engine.step()
    (number,) = engine.node.loads
    engine.node.end_load(number)
    engine.run()
    page = generate_latest().decode()
    assert f"vllm:blockyard_blocks_loaded_total{{{where}}} 1.0" in page
    assert f"vllm:blockyard_blocks_registered_total{{{where}}} 2.0" in page
    assert f"vllm:blockyard_lookups_hit_total{{{where}}} 1.0" in page
    assert f'vllm:blockyard_decisions_total{{{where},reason="not_stored"}} 1.0' in page
