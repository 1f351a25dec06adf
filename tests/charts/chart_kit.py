"""Renders the chart for tests, and reads what came out.

Leaves out every test that imports it where the tools for charts are not installed.
Invariants: a chart is loaded once; the same values are rendered once.
Threading: none.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from tests.architecture.doc_tables import ROOT

_REASON: Final = "the tools for charts are not installed: make deploy-tools"
helm: Final = pytest.importorskip("helm_python", reason=_REASON)
kubernetes_validate: Final = pytest.importorskip("kubernetes_validate", reason=_REASON)

CHART: Final = ROOT / "charts" / "blockyard"
RELEASE: Final = "demo"
NAMESPACE: Final = "prod"
SETTINGS_FILE: Final = "blockyard.yaml"
SERVICES: Final = ("block-manager", "offload-worker", "remote-tier")
WORKLOADS: Final = ("DaemonSet", "StatefulSet", "Deployment")

Values = dict[str, Any]
Manifest = dict[str, Any]


@dataclass(frozen=True, slots=True)
class PodTemplate:
    """Pods of one workload, or a pod of its own."""

    owner: Manifest
    labels: dict[str, str]
    annotations: dict[str, str]
    spec: Manifest
    claims: tuple[str, ...]
    """Volumes that the owner claims for each pod."""

    @property
    def name(self) -> str:
        """Kind and name of the owner."""
        return f"{self.owner['kind']}/{self.owner['metadata']['name']}"

    @property
    def component(self) -> str:
        """What the pods are part of."""
        return self.labels["app.kubernetes.io/component"]

    @property
    def containers(self) -> list[Manifest]:
        """All containers, those that run first included."""
        return [*self.spec.get("initContainers", []), *self.spec["containers"]]

    def container(self, name: str) -> Manifest:
        """The container of this name."""
        return next(container for container in self.spec["containers"] if container["name"] == name)

    @property
    def ports(self) -> dict[str, int]:
        """Named ports of all containers."""
        ports = (port for container in self.spec["containers"] for port in container.get("ports", []))
        return {port["name"]: port["containerPort"] for port in ports}


class Rendered:
    """Objects of one release."""

    def __init__(self, objects: list[Manifest]) -> None:
        """Keep ``objects``."""
        self.objects = objects

    def of_kind(self, *kinds: str) -> list[Manifest]:
        """All objects of these kinds."""
        return [item for item in self.objects if item["kind"] in kinds]

    def named(self, kind: str, ending: str) -> Manifest:
        """The object of a kind whose name is that of the release and this ending."""
        wanted = f"{RELEASE}-blockyard{ending}"
        (found,) = [item for item in self.of_kind(kind) if item["metadata"]["name"] == wanted]
        return found

    @property
    def pods(self) -> list[PodTemplate]:
        """Pods of all workloads, and those that stand by themselves."""
        return list(self._pods())

    def pod(self, component: str) -> PodTemplate:
        """The pods of a component."""
        (found,) = [pod for pod in self.pods if pod.component == component]
        return found

    def _pods(self) -> Iterator[PodTemplate]:
        for item in self.objects:
            if item["kind"] in (*WORKLOADS, "Pod"):
                template = item if item["kind"] == "Pod" else item["spec"]["template"]
                metadata = template["metadata"]
                claims = item["spec"].get("volumeClaimTemplates", [])
                yield PodTemplate(
                    owner=item,
                    labels=metadata["labels"],
                    annotations=metadata.get("annotations", {}),
                    spec=template["spec"],
                    claims=tuple(claim["metadata"]["name"] for claim in claims),
                )

    @property
    def settings_file(self) -> str:
        """Text of the settings file."""
        (text,) = [item["data"][SETTINGS_FILE] for item in self.of_kind("ConfigMap") if SETTINGS_FILE in item["data"]]
        return str(text)


def render(*layers: Values, name: str = RELEASE, namespace: str = NAMESPACE, chart: Path = CHART) -> Rendered:
    """Render the chart with these values, later layers over earlier ones."""
    return _rendered(json.dumps(merged(*layers), sort_keys=True), name, namespace, chart)


def notes(*layers: Values) -> str:
    """What Helm says after an install."""
    return str(
        _files(json.dumps(merged(*layers), sort_keys=True), RELEASE, NAMESPACE, CHART)["blockyard/templates/NOTES.txt"]
    )


def merged(*layers: Values) -> Values:
    """Maps laid over each other, key by key, as Helm does it."""
    result: Values = {}
    for layer in layers:
        for key, value in layer.items():
            both = isinstance(value, dict) and isinstance(result.get(key), dict)
            result[key] = merged(result[key], value) if both else value
    return result


@cache
def _rendered(values: str, name: str, namespace: str, chart: Path) -> Rendered:
    objects = [
        item
        for file, text in _files(values, name, namespace, chart).items()
        if file.endswith(".yaml")
        for item in yaml.load_all(text, yaml.CSafeLoader)
        if item is not None
    ]
    return Rendered(objects)


@cache
def _files(values: str, name: str, namespace: str, chart: Path) -> dict[str, str]:
    files: dict[str, str] = _chart(chart).render(json.loads(values), name=name, namespace=namespace)
    return files


@cache
def _chart(folder: Path) -> Any:
    return helm.Chart.load(str(folder))


def default_values() -> Values:
    """What stands in values.yaml."""
    values: Values = yaml.safe_load((CHART / "values.yaml").read_text())
    return values
