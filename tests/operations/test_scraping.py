"""Every way to scrape gives the labels that dashboards and alerts rely on, and the files of the stack agree."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from tests.charts.chart_cases import CASES
from tests.charts.chart_kit import render

ROOT: Final = Path(__file__).parents[2]
DEPLOY: Final = ROOT / "deploy"
PROMETHEUS: Final = DEPLOY / "prometheus" / "prometheus.yml"


def loaded(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    data: dict[str, Any] = loaded(ROOT / "docker-compose.yml")
    return data


def mounts(service: dict[str, Any]) -> dict[str, str]:
    """Folders and files of the repository in a container: target to source."""
    return {
        volume["target"]: volume["source"].removeprefix("./")
        for volume in service["volumes"]
        if isinstance(volume, dict) and volume["type"] == "bind"
    }


def reached(config: dict[str, Any]) -> dict[str, dict[str, str]]:
    """Address to labels, as Prometheus comes to them in the stack, with all its services running."""
    found: dict[str, dict[str, str]] = {}
    for job in config["scrape_configs"]:
        for group in job.get("static_configs", []):
            for address in group["targets"]:
                found[address] = {"job": job["job_name"]} | group.get("labels", {})
        for discovery in job.get("dns_sd_configs", []):
            for name in discovery["names"]:
                labels = {"job": job["job_name"]}
                for rule in job["relabel_configs"]:
                    assert rule["source_labels"] == ["__meta_dns_name"]
                    assert re.fullmatch(rule["regex"], name)
                    labels[rule["target_label"]] = rule["replacement"].replace("$1", name)
                address = f"{name}:{discovery['port']}"
                assert labels.pop("instance") == address
                found[address] = labels
    return found


def test_prometheus_of_the_stack_scrapes_every_service_of_every_node(compose: dict[str, Any]) -> None:
    ports = {"block-manager": 8801, "offload-worker": 8802, "remote-tier": 8803}
    wanted = {}
    for name in compose["services"]:
        service, _, node = name.rpartition("-")
        if service in ports:
            wanted[f"{name}:{ports[service]}"] = {"job": f"blockyard-{service}", "node": node}
    targets = reached(loaded(PROMETHEUS))
    assert targets.pop("localhost:9090") == {"job": "prometheus"}
    assert targets == wanted
    assert len(wanted) == 6


def test_the_jobs_are_those_that_alerts_watch() -> None:
    (group,) = loaded(ROOT / "charts/blockyard/alerts/blockyard.yaml")["groups"]
    conditions = {rule["alert"]: re.findall(r'job(=~|!~)"([^"]+)"', rule["expr"]) for rule in group["rules"]}
    watched = {
        alert: {
            job
            for job in {labels["job"] for labels in reached(loaded(PROMETHEUS)).values()}
            if all((re.fullmatch(pattern, job) is not None) is (operator == "=~") for operator, pattern in found)
        }
        for alert, found in conditions.items()
        if found
    }
    assert watched == {
        "BlockyardServiceDown": {"blockyard-block-manager", "blockyard-offload-worker"},
        "BlockyardRemoteTierDown": {"blockyard-remote-tier"},
        "BlockyardNotScraped": {"blockyard-block-manager", "blockyard-offload-worker", "blockyard-remote-tier"},
    }


def test_prometheus_finds_the_alerts_of_the_chart(compose: dict[str, Any]) -> None:
    inside = mounts(compose["services"]["prometheus"])
    config = loaded(PROMETHEUS)
    assert inside["/etc/prometheus/prometheus.yml"] == str(PROMETHEUS.relative_to(ROOT))
    assert [pattern.rpartition("/")[0] for pattern in config["rule_files"]] == ["/etc/prometheus/alerts"]
    assert inside["/etc/prometheus/alerts"] == "charts/blockyard/alerts"


def test_grafana_finds_its_data_and_the_dashboards_of_the_chart(compose: dict[str, Any]) -> None:
    inside = mounts(compose["services"]["grafana"])
    assert inside["/etc/grafana/provisioning"] == "deploy/grafana/provisioning"
    (provider,) = loaded(DEPLOY / "grafana/provisioning/dashboards/blockyard.yaml")["providers"]
    assert inside[provider["options"]["path"]] == "charts/blockyard/dashboards"
    sources = loaded(DEPLOY / "grafana/provisioning/datasources/blockyard.yaml")["datasources"]
    hosts = {source["type"]: re.fullmatch(r"http://([\w-]+):(\d+)", source["url"]) for source in sources}
    assert {kind: found[1] for kind, found in hosts.items() if found} == {
        "prometheus": "prometheus",
        "jaeger": "jaeger",
    }
    assert all(found[1] in compose["services"] for found in hosts.values() if found)
    step = next(source for source in sources if source["type"] == "prometheus")["jsonData"]["timeInterval"]
    assert step == loaded(PROMETHEUS)["global"]["scrape_interval"]


def test_the_collector_takes_traces_where_services_send_them_and_hands_them_on(compose: dict[str, Any]) -> None:
    service = compose["services"]["otel-collector"]
    (config,) = [path for path in service["command"] if path.startswith("--config=")]
    assert mounts(service)[config.removeprefix("--config=")] == "deploy/otel/otel-collector.yaml"
    collector = loaded(DEPLOY / "otel/otel-collector.yaml")
    assert collector["receivers"]["otlp"]["protocols"]["http"]["endpoint"].endswith(":4318")
    page = (ROOT / "docs/how-to/docker-compose.md").read_text()
    assert "BLOCKYARD_TRACING__ENDPOINT_URL=http://otel-collector:4318" in page
    pipeline = collector["service"]["pipelines"]["traces"]
    assert pipeline["processors"] == ["memory_limiter", "batch"], "the limit comes first"
    for kind in ("receivers", "processors", "exporters"):
        assert set(pipeline[kind]) <= set(collector[kind])
    assert collector["exporters"]["otlp"]["endpoint"].partition(":")[0] in compose["services"]


def test_the_collector_stays_below_the_limit_of_its_container(compose: dict[str, Any]) -> None:
    limit = re.fullmatch(r"(\d+)m", str(compose["services"]["otel-collector"]["mem_limit"]))
    assert limit is not None
    assert loaded(DEPLOY / "otel/otel-collector.yaml")["processors"]["memory_limiter"]["limit_mib"] <= 0.8 * int(
        limit[1]
    )


@pytest.mark.parametrize(
    ("case", "label"),
    [("DaemonSet, monitors", "__meta_kubernetes_pod_node_name"), ("Sidecar, monitors", "__meta_kubernetes_pod_name")],
)
def test_the_chart_names_nodes_as_they_name_themselves(case: str, label: str) -> None:
    (monitor,) = render(CASES[case]).of_kind("PodMonitor")
    rules = [endpoint["relabelings"] for endpoint in monitor["spec"]["podMetricsEndpoints"]]
    assert rules
    assert all({"sourceLabels": [label], "targetLabel": "node"} in rule for rule in rules)


def test_prometheus_accepts_its_configuration() -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed")
    command = [promtool, "check", "config", "--syntax-only", str(PROMETHEUS)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
