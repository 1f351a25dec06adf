"""``helm`` and ``kubectl`` in the documentation: checked against what the chart makes, without a cluster.

Values are rendered with the chart by Helm's own library, and the result is held to the schemas of Kubernetes. Objects,
labels and containers that ``kubectl`` names must be among what the page has installed.
"""

import importlib.util
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from tests.architecture.doc_commands import Command, Runner, commands_of, fences
from tests.architecture.doc_tables import ROOT

_TOOLS: Final = ("helm_python", "kubernetes_validate")
KUBERNETES: Final = "1.31"
_VALUED: Final = {
    "-n": "namespace", "--namespace": "namespace", "-f": "file", "--values": "file", "--filename": "file",
    "--set": "set", "--set-string": "set-string", "--timeout": "timeout", "-l": "selector", "--selector": "selector",
    "-c": "container", "--container": "container", "-o": "output", "--output": "output", "--tail": "tail",
    "--from-literal": "literal", "--for": "for",
}  # fmt: skip
_PLAIN: Final = ("--create-namespace", "--wait", "--install", "--logs", "--follow", "--watch", "--all", "--previous")
_CHART_VERBS: Final = {"install": 2, "upgrade": 2, "template": 2, "lint": 1}
_RELEASE_VERBS: Final = ("test", "uninstall", "status", "history", "rollback")
_KUBECTL_VERBS: Final = ("get", "describe", "logs", "exec", "port-forward", "rollout", "wait", "delete", "apply",
                         "create", "label", "top")  # fmt: skip
_OTHERS: Final = ("pod", "pods", "namespace", "namespaces", "node", "nodes", "secret", "pvc", "events")
"""Kinds whose objects the chart does not name."""
_SHORT: Final = {"svc": "service", "ds": "daemonset", "sts": "statefulset", "deploy": "deployment", "cm": "configmap"}

pytestmark = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in _TOOLS), reason="the tools come with make deploy-tools"
)
COMMANDS = [command for command in commands_of(Runner.CLUSTER) if not command.prepares]


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a tool: words that are no options, values of options, and what follows ``--``."""

    program: str
    words: list[str]
    options: dict[str, list[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, words: list[str]) -> "Call":
        """Take a command line apart.

        Raises:
            LookupError: an option that is not known here.
        """
        call, rest = cls(words[0], []), words[1:]
        while rest and rest[0] != "--":
            word = rest.pop(0)
            name, equals, value = word.partition("=")
            if not word.startswith("-") or word == "-":
                call.words.append(word)
            elif name in _VALUED:
                call.options.setdefault(_VALUED[name], []).append(value if equals else rest.pop(0))
            elif word not in _PLAIN:
                raise LookupError(f"unknown option {word} of {words[0]}")
        return call


def file_shown(page: str, name: str) -> str | None:
    """A file that a page shows right before the first commands that read it."""
    for before, fence in pairwise(fences(ROOT / page)):
        if fence.kind == "sh" and name in fence.text.split():
            return before.text if before.kind == "yaml" else None
    return None


def rendered(call: Call, page: str) -> list[dict[str, Any]]:
    """Objects that a call of helm would make."""
    import helm_python

    *_, chart = call.words
    release = call.words[1] if len(call.words) == 3 else "release-name"
    values: dict[str, Any] = {}
    for name in call.options.get("file", ()):
        text = (ROOT / name).read_text() if (ROOT / name).exists() else file_shown(page, name)
        assert text is not None, f"{name}: neither a file nor shown above"
        values = merged(values, yaml.safe_load(text))
    for expression in call.options.get("set", ()):
        values = merged(values, helm_python.parse_set_string(expression))
    for expression in call.options.get("set-string", ()):
        values = merged(values, helm_python.parse_set_string_values(expression))
    (namespace,) = call.options.get("namespace", ["default"])
    with helm_python.Chart.load(str(ROOT / chart)) as loaded:
        texts = loaded.render(values, name=release, namespace=namespace)
    return [
        found
        for path, text in texts.items()
        if not path.endswith("NOTES.txt")
        for found in yaml.safe_load_all(text)
        if found
    ]


def merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Two maps of values; the second one wins."""
    both = {
        key: merged(below[key], value) if isinstance(value, dict) and isinstance(below.get(key), dict) else value
        for key, value in above.items()
    }
    return {**below, **both}


def calls(command: Command) -> Iterator[Call]:
    """Calls of helm and kubectl on a line."""
    return (Call.of(words) for words in command.parts if words and words[0] in ("helm", "kubectl"))


def installed(page: str) -> list[dict[str, Any]]:
    """Objects of everything that a page installs."""
    return [
        found
        for command in COMMANDS
        if command.block.page == page
        for call in calls(command)
        if call.program == "helm" and call.words[0] in _CHART_VERBS
        for found in rendered(call, page)
    ]


def pod_templates(objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [found["spec"]["template"] for found in objects if "template" in found.get("spec", {})]


def check_helm(call: Call, page: str) -> None:
    import kubernetes_validate

    verb = call.words[0]
    if verb in _RELEASE_VERBS:
        assert len(call.words) == 2
        return
    assert len(call.words) - 1 == _CHART_VERBS[verb]
    for found in rendered(call, page):
        if found["apiVersion"].partition("/")[0] != "monitoring.coreos.com":
            kubernetes_validate.validate(found, KUBERNETES, strict=True)


def check_kubectl(call: Call, page: str) -> None:
    verb, *words = call.words
    assert verb in _KUBECTL_VERBS
    objects = installed(page)
    templates = pod_templates(objects)
    for selector in call.options.get("selector", ()):
        wanted = dict(pair.split("=") for pair in selector.split(","))
        templates = [found for found in templates if wanted.items() <= found["metadata"]["labels"].items()]
        assert templates, f"no pod has the labels {selector}"
    for name in call.options.get("container", ()):
        assert name in {one["name"] for found in templates for one in found["spec"]["containers"]}
    known = {(found["kind"].lower(), found["metadata"]["name"]) for found in objects}
    for word in words:
        kind, slash, name = word.partition("/")
        if slash and kind not in _OTHERS:
            assert (_SHORT.get(kind, kind), name) in known
    if verb == "apply":
        assert all(file == "-" or Path(ROOT / file).exists() for file in call.options["file"])


@pytest.mark.parametrize("command", COMMANDS, ids=str)
def test_the_chart_makes_what_the_command_wants(command: Command) -> None:
    for call in calls(command):
        if call.program == "helm":
            check_helm(call, command.block.page)
        else:
            check_kubectl(call, command.block.page)


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
@pytest.mark.parametrize("command", COMMANDS, ids=str)
def test_kubectl_knows_its_options(command: Command) -> None:
    for program, *words in command.parts:
        if program == "kubectl":
            # Options are read before the help is shown: an unknown one is an error.
            end = words.index("--") if "--" in words else len(words)
            asked = ["kubectl", *words[:end], "--help"]
            done = subprocess.run(asked, capture_output=True, text=True, check=False, timeout=30)
            assert (done.returncode, "Usage:" in done.stdout) == (0, True), done.stderr


def test_options_are_told_from_words() -> None:
    call = Call.of("helm upgrade --install kv charts/blockyard -n kv --set a.b=1,c=2 --wait -- --x".split())
    assert call == Call("helm", ["upgrade", "kv", "charts/blockyard"], {"namespace": ["kv"], "set": ["a.b=1,c=2"]})
    with pytest.raises(LookupError):
        Call.of(["helm", "install", "--no-such-option"])


def test_values_are_laid_over_each_other() -> None:
    assert merged({"a": {"b": 1, "c": 2}, "d": 3}, {"a": {"b": 4}, "e": 5}) == {"a": {"b": 4, "c": 2}, "d": 3, "e": 5}
