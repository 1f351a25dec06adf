"""Every object of every case is one that Kubernetes knows, in the oldest and in the newest supported version."""

import json
from functools import cache

import pytest
import yaml
from tests.architecture.doc_tables import ROOT
from tests.charts.chart_cases import (
    BUNDLED,
    CASES,
    CLAIM,
    EXTERNAL,
    KEPT,
    MONITORED,
    SIDECAR,
    STANDALONE,
    in_every_case,
)
from tests.charts.chart_kit import (
    CHART,
    NAMESPACE,
    RELEASE,
    Manifest,
    Rendered,
    Values,
    helm,
    kubernetes_validate,
    merged,
    render,
)

OLDEST, NEWEST = "1.27", "1.37"
MONITORING = "monitoring.coreos.com/v1"


@cache
def _valid(text: str, version: str) -> bool:
    """Checked once, however many cases have the same object."""
    kubernetes_validate.validate(json.loads(text), version, strict=True)
    return True


@in_every_case
def test_every_object_fits_the_oldest_and_the_newest_kubernetes(rendered: Rendered) -> None:
    assert rendered.objects
    for item in rendered.objects:
        if item["apiVersion"] != MONITORING:
            assert all(_valid(json.dumps(item, sort_keys=True), version) for version in (OLDEST, NEWEST))


@pytest.mark.parametrize("word", ["true", "123"])
def test_names_that_yaml_would_take_for_something_else_stay_text(word: str) -> None:
    secret = {"name": word, "key": word}
    odd: Values = {
        "serviceAccount": {"name": word},
        "nats": {"external": {"existingSecret": secret}},
        "redis": {"bundled": {"enabled": True, "existingSecret": {"name": word, "passwordKey": word}}},
        "s3": {"bundled": {"enabled": True}, "existingSecret": {"name": word, "accessKeyKey": word}},
        "node": {"priorityClassName": word, "sidecar": {"g3": {"storageClassName": word}}},
        **({} if word[0].isdigit() else {"fullnameOverride": word}),
    }
    odd = merged(odd, {"redis": KEPT["redis"]}, {"s3": {"bundled": {"persistence": {"storageClassName": word}}}})
    for kind in ({}, SIDECAR, merged(SIDECAR, CLAIM)):
        name = f"release-{word}" if word[0].isdigit() else word
        rendered = render(MONITORED, STANDALONE, kind, odd, name=name, namespace=word)
        for item in rendered.objects:
            assert item["metadata"]["namespace"] == word
            assert all(isinstance(value, str) for value in item["metadata"]["labels"].values())
            if item["apiVersion"] != MONITORING:
                assert _valid(json.dumps(item, sort_keys=True), NEWEST)


def test_large_numbers_stay_whole() -> None:
    """Numbers of a file of values arrive as floats, whose text is 1e+06 for a million."""
    million = 1_000_000
    large: Values = {
        "node": {"replicas": million, "terminationGracePeriodSeconds": million},
        "standalone": {"replicas": million, "terminationGracePeriodSeconds": million},
        "probes": {
            **{probe: {"periodSeconds": million, "failureThreshold": million} for probe in ("startup", "liveness")},
            "timeoutSeconds": million,
        },
        "helmTest": {"seconds": million},
    }
    budgets: Values = {name: {"podDisruptionBudget": {"maxUnavailable": million}} for name in ("node", "standalone")}
    rendered = render(BUNDLED, STANDALONE, SIDECAR, large, budgets)
    for item in rendered.objects:
        assert _valid(json.dumps(item, sort_keys=True), NEWEST)
        assert "e+0" not in json.dumps(item)


def test_a_planted_mistake_is_found() -> None:
    service = json.loads(json.dumps(render(EXTERNAL).of_kind("Service")[0]))
    service["spec"]["selektor"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(service, NEWEST, strict=True)


def test_the_chart_names_the_versions_that_are_checked() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["kubeVersion"] == f">={OLDEST}.0-0"
    assert f"schemas of {OLDEST} to {NEWEST}" in (CHART / "README.md").read_text()


def test_nothing_is_left_to_lint() -> None:
    for values in (None, *CASES.values()):
        result = helm.lint(str(CHART), values, strict=True, kube_version=NEWEST)
        complaints = [message for message in result["messages"] if message["error"] != "icon is recommended"]
        assert (complaints, result["errors"]) == ([], [])


@in_every_case
def test_names_are_unique_and_of_this_release(rendered: Rendered) -> None:
    names = [(item["kind"], item["metadata"]["name"]) for item in rendered.objects]
    assert len(set(names)) == len(names)
    # Pod names of a StatefulSet get a number and a hash, and a label with both has 63 characters at most.
    assert all(len(name) <= 52 for _, name in names)


@in_every_case
def test_every_object_says_where_it_lies_and_what_it_belongs_to(rendered: Rendered) -> None:
    for item in rendered.objects:
        metadata = item["metadata"]
        assert metadata["namespace"] == NAMESPACE
        assert metadata["labels"]["app.kubernetes.io/instance"] == RELEASE
        assert metadata["labels"]["app.kubernetes.io/managed-by"] == "Helm"


def test_no_namespace_is_written_into_the_chart() -> None:
    elsewhere = render(CASES["DaemonSet, every key"], MONITORED, namespace="kv-staging")
    assert {item["metadata"]["namespace"] for item in elsewhere.objects} == {"kv-staging"}
    assert NAMESPACE not in json.dumps(elsewhere.objects).replace("prometheus", "")


@pytest.mark.parametrize("name", ["a", "blockyard", "a-release-with-a-name-that-is-as-long-as-helm-takes-it"])
def test_long_names_stay_within_limits(name: str) -> None:
    values = merged(BUNDLED, STANDALONE, MONITORED, {"fullnameOverride": name})
    for item in render(values).objects:
        assert len(item["metadata"]["name"]) <= 63
        assert item["kind"] != "StatefulSet" or len(item["metadata"]["name"]) <= 52


# --- kinds that only the Prometheus operator knows --------------------------------------------------------------------
def test_monitors_are_off_by_default() -> None:
    for values in (EXTERNAL, merged(EXTERNAL, STANDALONE)):
        assert [item for item in render(values).objects if item["apiVersion"] == MONITORING] == []


def endpoints(monitor: Manifest) -> list[Manifest]:
    found: list[Manifest] = monitor["spec"]["podMetricsEndpoints" if monitor["kind"] == "PodMonitor" else "endpoints"]
    return found


@pytest.mark.parametrize("case", ["DaemonSet, monitors", "DaemonSet, other ports", "Sidecar, monitors"])
def test_monitors_find_their_pods_and_ports(case: str) -> None:
    rendered = render(CASES[case])
    monitors = rendered.of_kind("PodMonitor", "ServiceMonitor")
    assert monitors
    for monitor in monitors:
        assert set(monitor["spec"]) == {
            "selector",
            "podMetricsEndpoints" if monitor["kind"] == "PodMonitor" else "endpoints",
        }
        assert monitor["metadata"]["labels"]["release"] == "prometheus"
        wanted = monitor["spec"]["selector"]["matchLabels"].items()
        (pod,) = [pod for pod in rendered.pods if wanted <= pod.labels.items()]
        ports = pod.ports
        if monitor["kind"] == "ServiceMonitor":
            (service,) = [item for item in rendered.of_kind("Service") if wanted <= item["metadata"]["labels"].items()]
            ports = {port["name"]: port["port"] for port in service["spec"]["ports"]}
        read = {endpoint["port"] for endpoint in endpoints(monitor)}
        assert read == set(ports) - {"engine"}
        assert all(endpoint["path"] == "/metrics" for endpoint in endpoints(monitor))


@pytest.mark.parametrize(
    ("case", "meta", "field"),
    [
        ("DaemonSet, monitors", "__meta_kubernetes_pod_node_name", "spec.nodeName"),
        ("Sidecar, monitors", "__meta_kubernetes_pod_name", "metadata.name"),
    ],
)
def test_metrics_carry_the_labels_that_dashboards_go_by(case: str, meta: str, field: str) -> None:
    rendered = render(CASES[case])
    names = {
        entry["valueFrom"]["fieldRef"]["fieldPath"]
        for entry in rendered.pod("node").container("block-manager")["env"]
        if entry["name"] == "BLOCKYARD_NODE__NAME"
    }
    assert names == {field}
    (monitor,) = rendered.of_kind("PodMonitor")
    for endpoint in endpoints(monitor):
        assert endpoint["relabelings"] == [
            {"targetLabel": "job", "replacement": f"blockyard-{endpoint['port']}"},
            {"sourceLabels": [meta], "targetLabel": "node"},
        ]


def test_jobs_are_those_of_compose() -> None:
    prometheus = yaml.safe_load((ROOT / "deploy" / "prometheus" / "prometheus.yml").read_text())
    jobs = {config["job_name"] for config in prometheus["scrape_configs"]} - {"prometheus"}
    (monitor,) = render(CASES["DaemonSet, monitors"]).of_kind("PodMonitor")
    assert jobs == {endpoint["relabelings"][0]["replacement"] for endpoint in endpoints(monitor)}


def test_the_rules_are_those_of_the_file() -> None:
    (rule,) = render(CASES["DaemonSet, monitors"]).of_kind("PrometheusRule")
    assert rule["spec"] == yaml.safe_load((CHART / "alerts" / "blockyard.yaml").read_text())
    assert rule["spec"]["groups"]


def test_the_dashboards_are_those_of_the_folder() -> None:
    rendered = render(CASES["DaemonSet, monitors"])
    maps = [item for item in rendered.of_kind("ConfigMap") if "grafana_dashboard" in item["metadata"]["labels"]]
    shown = {name.removeprefix("blockyard-"): json.loads(text) for item in maps for name, text in item["data"].items()}
    assert shown == {path.name: json.loads(path.read_text()) for path in (CHART / "dashboards").glob("*.json")}
    assert shown
    assert all(item["metadata"]["annotations"] == {"grafana_folder": "Blockyard"} for item in maps)


def test_dashboards_of_two_releases_are_one_file_for_grafana() -> None:
    """A second file with the same uid takes the right to write from all files of its provider."""

    def files(name: str) -> list[str]:
        rendered = render(EXTERNAL, MONITORED, name=name, namespace=name)
        maps = [item for item in rendered.of_kind("ConfigMap") if "grafana_dashboard" in item["metadata"]["labels"]]
        # And each is small enough for client-side apply, which keeps a copy in an annotation.
        assert all(len(json.dumps(item)) < 256 << 10 for item in maps)
        return sorted(file for item in maps for file in item["data"])

    assert files("one") == files("two") != []


@pytest.mark.parametrize("name", ["podMonitor", "prometheusRule"])
def test_a_cluster_without_the_operator_is_told(name: str) -> None:
    values: Values = {"monitoring": {name: {"enabled": True}}}
    with pytest.raises(helm.HelmError, match=rf"monitoring\.{name}\.enabled: the cluster does not know"):
        render(EXTERNAL, values)
