"""The chart agrees with the code, the images and itself: versions, names, made files, examples."""

import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.architecture.doc_tables import ROOT, setting_keys
from tests.charts import made_files
from tests.charts.chart_cases import BUNDLED, CASES, EXTERNAL, MONITORED, SIDECAR, STANDALONE
from tests.charts.chart_kit import CHART, NAMESPACE, Values, default_values, helm, merged, notes, render
from tests.charts.dockerfile import stages
from tests.charts.values_schema import OWNED, settings_schema, values_schema

from blockyard.runtime.settings import NodeSettings

REMAKE = "write it with: python -m tests.charts.made_files"


def test_the_schema_is_up_to_date() -> None:
    assert made_files.SCHEMA.read_text() == made_files.schema_text(), REMAKE


def test_the_table_of_values_is_up_to_date() -> None:
    assert made_files.README.read_text() == made_files.readme_text(), REMAKE


def test_the_table_holds_every_value() -> None:
    def leaves(values: Any, path: str) -> list[str]:
        if isinstance(values, dict) and values:
            return [leaf for key, value in values.items() for leaf in leaves(value, f"{path}.{key}")]
        return [path.removeprefix(".")]

    shown = [key for key, _, _ in made_files.values()]
    missing = [
        leaf for leaf in leaves(default_values(), "") if not any(f"{leaf}.".startswith(f"{key}.") for key in shown)
    ]
    assert missing == []


def test_the_schema_knows_exactly_the_values_that_exist() -> None:
    """A value that the schema has and values.yaml has not would be documented nowhere."""

    def compare(schema: dict[str, Any], values: Any, path: str) -> list[str]:
        if path == ".settings" or schema.get("additionalProperties") is not False or not isinstance(values, dict):
            return []
        keys = set(schema["properties"]) - (set() if path else {"global", "enabled"})
        odd = [f"{path}.{key}" for key in keys ^ set(values)]
        # Requests, limits and claims are known to everybody.
        odd = [] if path.endswith(".resources") else odd
        return odd + [
            item
            for key in keys & set(values)
            for item in compare(schema["properties"][key], values[key], f"{path}.{key}")
        ]

    assert compare(values_schema(), default_values(), "") == []


def test_every_setting_is_a_value_or_made_by_the_chart() -> None:
    offered = {
        f"{section}.{key}" for section, keys in settings_schema()["properties"].items() for key in keys["properties"]
    }
    assert offered | OWNED == set(setting_keys())
    assert not offered & OWNED


def test_defaults_that_the_chart_repeats_are_those_of_the_settings() -> None:
    """Else an image would behave otherwise in the chart than anywhere else; logs are for machines here."""
    ours = NodeSettings.model_validate(default_values()["settings"] | {"log": {}})
    assert ours == NodeSettings()


def test_versions_are_those_of_the_distribution() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (version, version)


def test_images_are_targets_of_the_dockerfile() -> None:
    values = default_values()
    names = {values[key]["image"]["repository"] for key in ("blockManager", "offloadWorker", "remoteTier", "engine")}
    assert names == {
        f"blockyard/{target}" for target in ("block-manager", "offload-worker", "remote-tier", "demo-engine")
    }
    assert {name.removeprefix("blockyard/") for name in names} <= set(stages())


def test_bundled_servers_are_the_versions_that_compose_runs() -> None:
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    for component, service in (("nats", "nats"), ("redis", "valkey"), ("s3", "s3")):
        image = default_values()[component]["bundled"]["image"]
        assert compose[service]["image"].removeprefix("docker.io/").removeprefix("library/") == (
            f"{image['repository']}:{image['tag']}"
        )


@pytest.mark.parametrize("path", sorted((CHART / "examples").glob("*.yaml")), ids=lambda path: path.stem)
def test_examples_say_what_they_are_and_render(path: Any) -> None:
    assert path.read_text().startswith("# ")
    assert render(yaml.safe_load(path.read_text())).objects
    assert helm.lint(str(CHART), yaml.safe_load(path.read_text()), strict=True)["errors"] == []


def test_no_template_reads_a_value_that_does_not_exist() -> None:
    """Templates take a missing value for an empty one."""
    values = default_values()
    text = "\n".join(path.read_text() for path in (CHART / "templates").iterdir())
    for path in set(re.findall(r"\.Values\.([A-Za-z0-9_.]+)", text)):
        place: Any = values
        for key in path.rstrip(".").split("."):
            assert key in place, path
            place = place[key]


def test_every_value_is_read_by_some_template() -> None:
    text = "\n".join(path.read_text() for path in (CHART / "templates").iterdir())

    def names(values: Values, free: set[str]) -> set[str]:
        inner = [value for key, value in values.items() if isinstance(value, dict) and key not in free]
        return set(values) | {name for value in inner for name in names(value, free)}

    # What stands in maps of Kubernetes, and below the settings, is taken as it is.
    free = {"podSecurityContext", "securityContext", "settings", "resources", "updateStrategy", "nodeSelector"}
    assert [name for name in sorted(names(default_values(), free)) if not re.search(rf"\b{name}\b", text)] == []


def test_the_chart_may_be_a_part_of_another(tmp_path: Path) -> None:
    outer = tmp_path / "outer"
    shutil.copytree(CHART, outer / "charts" / "blockyard")
    dependency = {"name": "blockyard", "version": "*", "condition": "blockyard.enabled"}
    chart = {"apiVersion": "v2", "name": "outer", "version": "1.0.0", "dependencies": [dependency]}
    (outer / "Chart.yaml").write_text(yaml.safe_dump(chart))
    inner = merged(EXTERNAL, MONITORED)
    found = render({"blockyard": inner | {"enabled": True}, "global": {"team": "kv"}}, chart=outer).objects
    assert sorted(found, key=str) == sorted(render(inner).objects, key=str)
    # Last, because the part is gone from the loaded chart then.
    assert render({"blockyard": inner | {"enabled": False}}, chart=outer).objects == []


# --- what Helm says ---------------------------------------------------------------------------------------------------
def test_notes_name_the_next_commands() -> None:
    text = notes(EXTERNAL)
    assert f"kubectl --namespace {NAMESPACE} port-forward service/demo-blockyard-api 8801" in text
    assert f"helm test demo --namespace {NAMESPACE} --logs" in text
    services = {item["metadata"]["name"] for item in render(EXTERNAL).of_kind("Service")}
    assert set(re.findall(r"service/([\w-]+)", text)) <= services


def test_notes_say_who_may_use_folders_of_the_machine() -> None:
    assert "hostPath" in notes(EXTERNAL)
    assert "hostPath" not in notes(EXTERNAL, SIDECAR)


def test_notes_warn_of_open_servers() -> None:
    open_policy: Values = {"networkPolicy": {"enabled": False}}
    assert "WARNING" in notes(BUNDLED, open_policy)
    assert "WARNING" not in notes(BUNDLED)
    assert "WARNING" not in notes(EXTERNAL, open_policy)


def test_the_test_pod_asks_the_nodes() -> None:
    rendered = render(EXTERNAL)
    (pod,) = rendered.of_kind("Pod")
    (container,) = pod["spec"]["containers"]
    *_, nodes, port, seconds = container["command"]
    service = rendered.named("Service", "-nodes")
    assert nodes == service["metadata"]["name"]
    assert int(port) in [entry["port"] for entry in service["spec"]["ports"]]
    assert float(seconds) == default_values()["helmTest"]["seconds"]
    assert pod["metadata"]["annotations"]["helm.sh/hook"] == "test"


def test_the_test_pod_says_that_there_is_no_node() -> None:
    """No machine has the labels of the selector: there are no pods, and a headless service without them has no name."""
    (pod,) = render(EXTERNAL).of_kind("Pod")
    _, flag, program, *_ = pod["spec"]["containers"][0]["command"]
    # A space: no resolver is asked.
    ended = subprocess.run(
        [sys.executable, flag, program, "no node", "8801", "0"], capture_output=True, text=True, timeout=30, check=False
    )
    assert (ended.returncode, ended.stderr) == (1, "")
    assert ended.stdout.startswith("no node\n  no node has an address: ")


def test_the_test_pod_runs_where_nodes_do() -> None:
    """It has an image of theirs: on another kind of machine, or behind a taint of all machines, it would never end."""
    rendered = render(CASES["DaemonSet, every key"])
    (pod,) = rendered.of_kind("Pod")
    for key in ("nodeSelector", "tolerations", "securityContext"):
        assert pod["spec"][key] == rendered.pod("node").spec[key]


def test_labels_of_all_objects_are_short_enough() -> None:
    for item in render(merged(BUNDLED, STANDALONE, {"fullnameOverride": "x" * 60})).objects:
        assert all(len(str(value)) <= 63 for value in item["metadata"]["labels"].values())
        assert json.dumps(item)
