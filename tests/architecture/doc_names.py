"""Names that documentation uses, looked up in the sources: files, modules, classes, members, settings, metrics.

A name in code marks counts as a reference to the code by its form alone, so a page cannot keep a name that the code has
dropped. What looks like such a name and is none of ours stands in ``FOREIGN``.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Final

import yaml
from tests.architecture.doc_tables import ROOT, connector_keys, environment_name, metric_names, setting_keys

from blockyard.runtime.span_names import SpanName

SPAN: Final = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", re.DOTALL)
FENCE: Final = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_FILE: Final = re.compile(r"[\w.-]*(/[\w.-]*)+|[\w-]+\.(py|md)")
_DOTTED: Final = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")
_CLASS: Final = re.compile(r"([A-Z][a-z0-9]+){2,}")
_CONSTANT: Final = re.compile(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)+")
_METRIC: Final = re.compile(r"blockyard_\w+")
_CALL: Final = re.compile(r"([\w.]+)\(.*\)")
_VARIABLE: Final = re.compile(r"(?:\$\{|^ARG )([A-Z][A-Z0-9_]*)", re.MULTILINE)
_SOURCES: Final = ("shared", "services", "tests")
FOREIGN: Final = frozenset(
    {
        "KV_EVENTS",
        "BLOCKYARD_CONFIG",
        "BLOCKYARD_SIM_SEED",
        "http.json",
        "channel.sock",
        "nats.js",
        "blockyard.yaml",
        "blockyard.env",
    }
)
"""Names of files that are made at run time, of servers and of variables that are no settings."""
_SPANS: Final = frozenset(SpanName)
_SHORT_ROOTS: Final = ("block_manager", "offload_worker", "remote_tier")


@dataclass(frozen=True, slots=True)
class Names:
    """Every name that the sources define."""

    classes: dict[str, set[str]] = field(default_factory=dict)
    """Members per class, those of its bases not included."""
    functions: set[str] = field(default_factory=set)
    constants: set[str] = field(default_factory=set)
    modules: dict[str, set[str]] = field(default_factory=dict)
    """Top-level names per importable module."""

    @classmethod
    def of_sources(cls) -> "Names":
        """Names in the whole tree."""
        names = cls()
        for root in _SOURCES:
            for path in sorted((ROOT / root).rglob("*.py")):
                names._add(path, root)
        return names

    def _add(self, path: Path, root: str) -> None:
        tree = ast.parse(path.read_text())
        parts = path.relative_to(ROOT if root == "tests" else ROOT / root).with_suffix("").parts
        module = ".".join(parts).removesuffix(".__init__")
        self.modules[module] = set(_bound(tree.body))
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                self.classes.setdefault(node.name, set()).update(_members(node))
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                self.functions.add(node.name)
            elif isinstance(node, ast.Assign | ast.AnnAssign):
                self.constants.update(name for name in _bound([node]) if name.isupper())

    def knows_dotted(self, name: str) -> bool:
        """Whether ``a.b.c`` is a module, a name in one, a member of a class, a setting, a span, or a chart's value."""
        if name in setting_keys() or name in _SPANS or name in self.modules or f"blockyard.{name}" in self.modules:
            return True
        if name in chart_values() or name in connector_keys():
            return True
        owner, _, member = name.rpartition(".")
        if owner in self.classes:
            return member in self.classes[owner]
        return any(member in self.modules.get(module, ()) for module in (owner, f"blockyard.{owner}"))


def _bound(body: list[ast.stmt]) -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name
        elif isinstance(node, ast.Assign):
            yield from (target.id for target in node.targets if isinstance(target, ast.Name))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id
        elif isinstance(node, ast.ImportFrom):
            yield from (alias.asname or alias.name for alias in node.names)


def _members(node: ast.ClassDef) -> Iterator[str]:
    yield from _bound(node.body)
    for inner in ast.walk(node):
        if isinstance(inner, ast.Attribute) and isinstance(inner.ctx, ast.Store):
            yield inner.attr


@cache
def container_variables() -> frozenset[str]:
    """Variables that the compose files and the Dockerfile take."""
    files = [ROOT / "docker-compose.yml", ROOT / "Dockerfile", *(ROOT / "deploy").glob("compose.*.yml")]
    return frozenset(name for path in files for name in _VARIABLE.findall(path.read_text()))


@cache
def chart_values() -> frozenset[str]:
    """Values of the chart as ``a.b.c``, and the maps that hold them."""
    values = yaml.safe_load((ROOT / "charts" / "blockyard" / "values.yaml").read_text())
    return frozenset(_paths(values, ""))


def _paths(values: dict[str, object], owner: str) -> Iterator[str]:
    for key, value in values.items():
        yield f"{owner}{key}"
        if isinstance(value, dict):
            yield from _paths(value, f"{owner}{key}.")


def unknown_names(text: str, names: Names) -> list[str]:
    """Code spans of a page that look like names of ours and are none; code blocks are left out."""
    spans = (found.group(2) for found in SPAN.finditer(FENCE.sub("", text)))
    return sorted({span for span in spans if span not in FOREIGN and not _known(span, names)})


def without_code(text: str) -> str:
    """Text of a page less its code blocks and spans."""
    return SPAN.sub("", FENCE.sub("", text))


def _known(span: str, names: Names) -> bool:
    if (call := _CALL.fullmatch(span)) is not None:
        span = call.group(1)
        if "_" in span and "." not in span:
            return span in names.functions
    if _FILE.fullmatch(span) and not span.startswith("/"):
        return file_of(span) is not None
    if _METRIC.fullmatch(span):
        return span in metric_names() or span in names.modules
    if span.startswith("BLOCKYARD_") and "<" not in span:
        return span in {environment_name(key) for key in setting_keys()}
    if _DOTTED.fullmatch(span):
        return names.knows_dotted(span) or file_of(span) is not None
    if _CLASS.fullmatch(span):
        return span in names.classes
    return not _CONSTANT.fullmatch(span) or span in names.constants or span in container_variables()


def file_of(span: str) -> Path | None:
    """File or folder that a page names, from the root or from the folder of its package."""
    first, _, rest = span.partition("/")
    candidates = [ROOT / span, ROOT / "shared" / "blockyard" / span]
    if first in _SHORT_ROOTS:
        candidates.append(ROOT / "services" / f"blockyard_{first}" / rest)
    return next((path for path in candidates if path.exists()), None)
