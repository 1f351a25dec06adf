"""What queries of dashboards answer, by Prometheus' own tool: nodes are kept apart, and one that is gone is missed."""

import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from deploy.dashboards.reading import read_boards
from tests.operations.promql import groupings

QUERIES: Final = [(board.name, title, expr) for board in read_boards() for title, expr in board.expressions]
_VARIABLES: Final = {"$namespace": ".*", "$node": ".*", "$__rate_interval": "4m", "$__range": "10m"}
_MINUTES: Final = 10

Samples = dict[str, float]
"""Labels as the tool writes them, to value."""


def queries_of(board: str, panel: str) -> list[str]:
    """Expressions of a panel, with every variable filled in."""
    found = [expr for name, title, expr in QUERIES if (name, title) == (board, panel)]
    for variable, value in _VARIABLES.items():
        found = [expr.replace(variable, value) for expr in found]
    return found


def check(folder: Path, series: dict[str, str], expected: dict[str, Samples]) -> None:
    """Ask the expressions after ten minutes of these series."""
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed")
    test: dict[str, Any] = {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [
            {
                "expr": expr,
                "eval_time": f"{_MINUTES}m",
                "exp_samples": [{"labels": labels, "value": value} for labels, value in samples.items()],
            }
            for expr, samples in expected.items()
        ],
    }
    file = folder / "tests.yaml"
    file.write_text(yaml.safe_dump({"evaluation_interval": "1m", "tests": [test]}))
    command = [promtool, "test", "rules", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def process(metric: str, place: str, service: str, labels: str = "") -> str:
    """A series of a process; ``place`` is its namespace and node."""
    namespace, _, node = place.partition("/")
    target = f'job="blockyard-{service}", instance="{service}-{node}", namespace="{namespace}", node="{node}"'
    return f"{metric}{{{', '.join(part for part in (labels, target) if part)}}}"


@pytest.mark.parametrize(("board", "title", "expr"), QUERIES, ids=[f"{board} {title}" for board, title, _ in QUERIES])
def test_a_node_is_named_with_its_namespace(board: str, title: str, expr: str) -> None:
    for labels in groupings(expr):
        assert not labels & {"node", "instance"} or labels >= {"namespace", "node"}, labels


def test_a_node_that_does_not_answer_is_not_ready_and_not_forgotten(tmp_path: Path) -> None:
    series = {process("up", "x/a", service): "1x10" for service in ("block-manager", "offload-worker")}
    series |= {process("blockyard_ready", "x/a", service): "1x10" for service in ("block-manager", "offload-worker")}
    series |= {process("up", "x/b", service): "1 0x9" for service in ("block-manager", "offload-worker")}
    # Prometheus marks the end of a series whose target fails.
    series |= {process("blockyard_ready", "x/b", service): "1 stale" for service in ("block-manager", "offload-worker")}
    ready, known = queries_of("overview", "Nodes ready")
    check(tmp_path, series, {ready: {"{}": 1}, known: {"{}": 2}})
    services = queries_of("overview", "Nodes")[0]
    check(tmp_path, series, {services: {'{namespace="x", node="a"}': 2, '{namespace="x", node="b"}': 0}})


def test_one_service_that_does_not_answer_makes_its_node_not_ready(tmp_path: Path) -> None:
    series = {
        process("up", "x/a", "offload-worker"): "1x10",
        process("blockyard_ready", "x/a", "offload-worker"): "1x10",
        process("up", "x/a", "remote-tier"): "0x10",
    }
    ready, known = queries_of("overview", "Nodes ready")
    check(tmp_path, series, {ready: {"{}": 0}, known: {"{}": 1}})


def test_nodes_of_one_name_in_two_namespaces_have_their_own_lines(tmp_path: Path) -> None:
    g3 = 'tier="g3"'
    series = {
        process("blockyard_capacity_blocks", "x/a", "block-manager", g3): "600x10",
        process("blockyard_capacity_blocks", "y/a", "block-manager", g3): "600x10",
        process("blockyard_evicted_blocks_total", "x/a", "block-manager", g3): "0+60x10",
        process("blockyard_evicted_blocks_total", "y/a", "block-manager", g3): "0+600x10",
    }
    (replaced,) = queries_of("tiers", "Time until a tier is replaced")
    expected = {'{namespace="x", node="a", tier="g3"}': 600.0, '{namespace="y", node="a", tier="g3"}': 60.0}
    check(tmp_path, series, {replaced: expected})


def test_sizes_and_services_are_joined_within_a_namespace(tmp_path: Path) -> None:
    series = {
        process("blockyard_load_blocks_total", "x/a", "block-manager", 'tier="g2", status="ok"'): "0+60x10",
        process("blockyard_load_blocks_total", "y/a", "block-manager", 'tier="g2", status="ok"'): "0+120x10",
        process("blockyard_block_tokens", "x/a", "block-manager"): "16x10",
        process("blockyard_block_tokens", "y/a", "block-manager"): "32x10",
        process("process_cpu_seconds_total", "x/a", "block-manager"): "0+30x10",
        process("blockyard_build_info", "x/a", "block-manager", 'service="block-manager", version="1"'): "1x10",
        process("blockyard_build_info", "y/a", "block-manager", 'service="block-manager", version="1"'): "1x10",
    }
    (tokens,) = queries_of("overview", "Tokens not computed")
    (cpu,) = queries_of("tiers", "CPU")
    labels = '{namespace="x", node="a", service="block-manager"}'
    check(tmp_path, series, {tokens: {"{}": 16.0 + 64.0}, cpu: {labels: 0.5}})


def test_shares_of_nothing_are_nothing(tmp_path: Path) -> None:
    lookups = "blockyard_lookup_blocks_total"
    series = {
        process(lookups, "x/a", "block-manager", 'tier="g2", outcome="hit"'): "5x10",
        process(lookups, "x/a", "block-manager", 'tier="none", outcome="miss"'): "5x10",
    }
    (hits,) = queries_of("overview", "Hit share")
    check(tmp_path, series, {expr: {} for expr in (hits, *queries_of("overview", "Blocks asked for, by answer"))})
