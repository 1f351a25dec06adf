"""What the page about Kubernetes shows is what the chart takes."""

from typing import Any

import pytest
import yaml
from tests.architecture.doc_commands import fences
from tests.architecture.doc_tables import DOCS
from tests.charts.chart_cases import EXTERNAL, MONITORED, SIDECAR, STANDALONE
from tests.charts.chart_kit import CHART, Manifest, default_values, kubernetes_validate, render

PAGE = DOCS / "how-to" / "kubernetes.md"
SHOWN: list[Any] = [yaml.safe_load(fence.text) for fence in fences(PAGE) if fence.kind == "yaml"]
WITHOUT_CLUSTER = {"monitoring": {"checkCapabilities": MONITORED["monitoring"]["checkCapabilities"]}}


@pytest.mark.parametrize("shown", [item for item in SHOWN if "apiVersion" not in item], ids=lambda item: " ".join(item))
def test_values_that_are_shown_are_taken(shown: Manifest) -> None:
    servers = {name: value for name, value in EXTERNAL.items() if name not in shown}
    assert render(servers, STANDALONE, shown, WITHOUT_CLUSTER).objects


@pytest.mark.parametrize("shown", [item for item in SHOWN if "apiVersion" in item], ids=lambda item: str(item["kind"]))
def test_objects_that_are_shown_are_ones_of_kubernetes(shown: Manifest) -> None:
    kubernetes_validate.validate(shown, "1.31", strict=True)


def test_the_values_for_machines_are_those_of_the_example() -> None:
    assert yaml.safe_load((CHART / "examples" / "daemonset.yaml").read_text()) in SHOWN


def test_the_engine_that_is_shown_fits_the_nodes_that_are_shown() -> None:
    (engine,) = [item for item in SHOWN if item.get("kind") == "Pod"]
    pod = render(yaml.safe_load((CHART / "examples" / "daemonset.yaml").read_text())).pod("node")
    (state,) = [volume["hostPath"]["path"] for volume in pod.spec["volumes"] if volume["name"] == "state"]
    assert engine["spec"]["volumes"][0]["hostPath"]["path"] == state
    (container,) = engine["spec"]["containers"]
    manager = pod.container("block-manager")
    folders = {item["name"]: item["mountPath"] for item in manager["volumeMounts"]}
    assert container["volumeMounts"][0]["mountPath"] == folders["state"]
    assert f"--socket={folders['state']}/block-manager/channel.sock" in container["args"]
    assert f"--block-bytes={2 << 20}" in container["args"]
    for field in ("runAsUser", "runAsGroup"):
        assert engine["spec"]["securityContext"][field] == pod.spec["securityContext"][field]
    values = default_values()["engine"]["image"]
    assert (
        container["image"] == f"{values['repository']}:{yaml.safe_load((CHART / 'Chart.yaml').read_text())['version']}"
    )


def test_keys_of_secrets_are_the_defaults() -> None:
    """The table names what a secret must hold."""
    values = default_values()
    for line in PAGE.read_text().splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) == 5 and cells[1].strip("`").endswith("existingSecret"):
            place: Any = values
            for key in cells[1].strip("`").split("."):
                place = place[key]
            assert cells[2].split(", ") == [value for key, value in place.items() if key != "name"]


def test_what_the_page_says_of_pod_security_holds() -> None:
    text = PAGE.read_text()
    assert "meet *restricted* completely" in text
    (init,) = render(EXTERNAL).pod("node").spec["initContainers"]
    assert init["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["CHOWN"]}
    assert "initContainers" not in render(EXTERNAL, SIDECAR).pod("node").spec
