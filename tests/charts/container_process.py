"""A container of the chart as the kubelet would start it: environment, command and files, resolved for this machine.

Variables come from the image, then from the container; ``fieldRef`` and ``secretKeyRef`` are looked up in what the test
gives; ``$(NAME)`` is expanded as Kubernetes does it. Every mount becomes a folder below a root of the test, one per
volume, so containers of one pod share what they share in the cluster; paths below a mount are written anew in
variables, command, arguments and config maps.
Threading: none.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.charts.chart_kit import Manifest, PodTemplate, Rendered
from tests.charts.dockerfile import stages

_REFERENCE: Final = re.compile(r"\$\(([A-Za-z_][A-Za-z0-9_]*)\)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What the cluster would know: fields of the pod, and contents of secrets as ``(name, key)``."""

    fields: Mapping[str, str]
    secrets: Mapping[tuple[str, str], str]
    root: Path


@dataclass(frozen=True, slots=True)
class ContainerProcess:
    """How to start a container here."""

    command: tuple[str, ...]
    environment: dict[str, str]
    probes: dict[str, str]
    """Path and port of each HTTP probe, by its name, as ``port/path``."""


def container_process(
    rendered: Rendered, pod: PodTemplate, name: str, machine: Machine, *, image: str = ""
) -> ContainerProcess:
    """The process of a container; its config maps are written below the root of ``machine``.

    Args:
        rendered: all objects of the release.
        pod: pods of the workload.
        name: which container.
        machine: what is known here.
        image: stage of the Dockerfile that its image is made from; empty: an image that is not ours.
    """
    container = pod.container(name)
    mounts = _mounts(rendered, pod, container, machine.root)
    stage = stages().get(image)
    environment = dict(stage.environment) if stage is not None else {}
    for entry in container.get("env", []):
        environment[entry["name"]] = _value(entry, environment, machine)
    entry_point = stage.entry_point if stage is not None else ()
    words = (*container.get("command", entry_point), *container.get("args", ()))
    return ContainerProcess(
        command=tuple(_moved(_expanded(word, environment), mounts) for word in words),
        environment={key: _moved(value, mounts) for key, value in environment.items()},
        probes=_probes(pod, container),
    )


def _value(entry: Manifest, known: Mapping[str, str], machine: Machine) -> str:
    if "value" in entry:
        return _expanded(str(entry["value"]), known)
    source = entry["valueFrom"]
    if "fieldRef" in source:
        return machine.fields[source["fieldRef"]["fieldPath"]]
    reference = source["secretKeyRef"]
    return machine.secrets[reference["name"], reference["key"]]


def _expanded(text: str, known: Mapping[str, str]) -> str:
    """Kubernetes leaves names alone that it does not know."""
    return _REFERENCE.sub(lambda found: known.get(found.group(1), found.group()), text)


def _mounts(rendered: Rendered, pod: PodTemplate, container: Manifest, root: Path) -> dict[str, Path]:
    volumes = {volume["name"]: volume for volume in pod.spec.get("volumes", [])}
    mounts = {mount["mountPath"]: root / mount["name"] for mount in container.get("volumeMounts", [])}
    for folder in mounts.values():
        folder.mkdir(parents=True, exist_ok=True)
        config = volumes.get(folder.name, {}).get("configMap")
        if config is not None:
            _write(rendered, config["name"], folder, mounts)
    return mounts


def _write(rendered: Rendered, name: str, folder: Path, mounts: Mapping[str, Path]) -> None:
    for item in rendered.of_kind("ConfigMap"):
        if item["metadata"]["name"] == name:
            for file, text in item["data"].items():
                (folder / file).write_text(_moved(text, mounts))


def _moved(text: str, mounts: Mapping[str, Path]) -> str:
    if not mounts:
        return text
    # All at once, because the new folders may look like mounts themselves.
    paths = "|".join(re.escape(path) for path in mounts)
    return re.sub(rf"(?<![\w./-])({paths})(?=$|/|\s)", lambda found: str(mounts[found.group(1)]), text)


def _probes(pod: PodTemplate, container: Manifest) -> dict[str, str]:
    found: dict[str, str] = {}
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        action: dict[str, Any] = container.get(probe, {}).get("httpGet", {})
        if action:
            port = action["port"]
            found[probe] = f"{pod.ports[port] if isinstance(port, str) else port}{action['path']}"
    return found
