"""Parts of the documentation that are made from the code: settings, problem types, metrics, example programs.

``python -m tests.architecture.doc_tables`` writes them into ``docs/``, between the marks ``<!-- made: name -->`` and
``<!-- end: name -->``; ``test_docs.py`` fails while a page holds an older table.
"""

import ast
import asyncio
import inspect
import json
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import MISSING, Field, fields
from enum import EnumType
from functools import cache, partial
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Final, TypeGuard, get_args

import httpx
from fastapi import FastAPI
from prometheus_client import Counter, Gauge, Histogram
from pydantic import BaseModel, ByteSize, SecretStr
from pydantic.fields import FieldInfo

from blockyard.connectors.vllm.settings import PREFIX as CONNECTOR_PREFIX
from blockyard.connectors.vllm.settings import ConnectorSettings
from blockyard.core.errors import BlockyardError
from blockyard.core.miss_reason import MissReason
from blockyard.runtime.setting_variables import ENV_PREFIX, ENV_SEPARATOR
from blockyard.runtime.settings import NodeSettings
from blockyard.runtime.span_names import SpanName
from blockyard.runtime.telemetry import Metrics
from blockyard_block_manager import recovery
from blockyard_block_manager.api import problems

ROOT: Final = Path(__file__).parents[2]
DOCS: Final = ROOT / "docs"
SERVICES: Final = ("block-manager", "offload-worker", "remote-tier")
_UNITS: Final = (("_seconds", "seconds"), ("_ms", "milliseconds"), ("_tokens", "tokens"), ("_port", "port"))
_SIZES: Final = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def table(heads: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> str:
    """A Markdown table."""
    lines = [heads, tuple("---" for _ in heads), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


# --- settings ---------------------------------------------------------------------------------------------------------
def settings_tables() -> str:
    """One table per section of the settings."""
    parts = []
    for name, info in NodeSettings.model_fields.items():
        section = info.annotation
        if not (isinstance(section, type) and issubclass(section, BaseModel)):
            raise TypeError(f"{name} is no section")
        heads = ("key", "default", "unit, range", "what")
        parts.append(f"### {name}\n\n{section.__doc__}\n\n{table(heads, _setting_rows(name, section))}")
    return "\n\n".join(parts)


@cache
def setting_keys() -> list[str]:
    """All settings as ``section.name``."""
    return [f"{name}.{key}" for name, info in NodeSettings.model_fields.items() for key in _fields(info.annotation)]


def environment_name(key: str) -> str:
    """Environment variable of a setting."""
    return (ENV_PREFIX + key.replace(".", ENV_SEPARATOR)).upper()


def _fields(section: Any) -> dict[str, FieldInfo]:
    fields: dict[str, FieldInfo] = section.model_fields
    return fields


def _setting_rows(name: str, section: type[BaseModel]) -> Iterator[tuple[str, ...]]:
    texts = _attribute_texts(section)
    for key, field in section.model_fields.items():
        yield f"`{name}.{key}`", _default(field), "; ".join(_limits(key, field)), texts.get(key, "")


def _attribute_texts(section: type) -> dict[str, str]:
    """Strings that stand right below the fields of a class."""
    (tree,) = ast.parse(inspect.getsource(section)).body
    body = tree.body if isinstance(tree, ast.ClassDef) else []
    return {
        target.id: text.value.value
        for field, text in zip(body, body[1:], strict=False)
        if isinstance(field, ast.AnnAssign | ast.Assign)
        and isinstance(target := field.target if isinstance(field, ast.AnnAssign) else field.targets[0], ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
        and isinstance(text.value.value, str)
    }


def _default(field: FieldInfo) -> str:
    value = field.default
    if value is None:
        return "not set"
    if value == "":
        return "empty"
    if isinstance(value, SecretStr):
        text = value.get_secret_value()
        return f"`{text}` (secret)" if text else "empty (secret)"
    if isinstance(value, ByteSize):
        return f"`{_size(value)}`"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _size(value: int) -> str:
    for unit, name in _SIZES:
        if value and value % unit == 0:
            return f"{value // unit}{name}"
    return str(value)


def _limits(key: str, field: FieldInfo) -> Iterator[str]:
    kinds = [kind for kind in get_args(field.annotation) if kind is not NoneType]
    kind = kinds[0] if isinstance(field.annotation, UnionType) and kinds else field.annotation
    if kind is ByteSize:
        yield "bytes"
    elif isinstance(kind, EnumType):
        yield ", ".join(f"`{member.value}`" for member in kind)
    elif kind is bool:
        yield "`true`, `false`"
    elif kind is Path:
        yield "path"
    yield from (unit for ending, unit in _UNITS if key.endswith(ending))
    for rule in field.metadata:
        for name, sign in (("gt", "above"), ("ge", "from"), ("le", "to")):
            if (limit := getattr(rule, name, None)) is not None:
                yield f"{sign} {_size(limit) if kind is ByteSize else f'{limit:g}'}"
        if (pattern := getattr(rule, "pattern", None)) is not None:
            yield f"`{pattern}`"


# --- problems ---------------------------------------------------------------------------------------------------------
def problem_table() -> str:
    """Every typed error with its status as the API answers it."""
    kinds = {kind.code: kind for kind in _subclasses(BlockyardError)}
    statuses = asyncio.run(_statuses(kinds))
    heads = ("type `urn:blockyard:problem:…`", "status", "title", "remedy")
    return table(heads, ((f"`{code}`", str(statuses[code]), kind.title, kind.remedy) for code, kind in kinds.items()))


def _subclasses(kind: type[BlockyardError]) -> Iterator[type[BlockyardError]]:
    # Only what ships: tests derive errors of their own.
    if kind.__module__ in ("blockyard.core.errors", recovery.__name__):
        yield kind
        for child in kind.__subclasses__():
            yield from _subclasses(child)


async def _statuses(kinds: dict[str, type[BlockyardError]]) -> dict[str, int]:
    app = FastAPI()
    problems.install(app)

    @app.get("/{code}")
    async def fail(code: str) -> None:
        raise kinds[code]

    # The framework raises errors of status 500 again after it has answered them.
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://node") as client:
        return {code: (await client.get(f"/{code}")).status_code for code in kinds}


# --- metrics ----------------------------------------------------------------------------------------------------------
def metric_table() -> str:
    """Every metric with its labels and the services whose code counts it.

    Raises:
        KeyError: nobody counts it.
    """
    heads = ("metric", "kind", "labels", "what", "counted by")
    return table(heads, (row for _, row in _metric_rows()))


@cache
def metric_names() -> set[str]:
    """Names as ``/metrics`` shows them, without the endings of histograms."""
    return {name for name, _ in _metric_rows()}


def _metric_rows() -> Iterator[tuple[str, tuple[str, ...]]]:
    metrics, users = Metrics("docs"), _metric_users()
    counted = {
        family.name: attribute
        for attribute, metric in vars(metrics).items()
        if _is_metric(metric)
        for family in metric.describe()
    }
    for family in metrics.registry.collect():
        if family.name.startswith("process_"):
            continue  # the client library's own
        attribute = counted.get(family.name)
        # A metric that is set once and for all is kept nowhere, but shows its labels.
        names = family.samples[0].labels if attribute is None else getattr(metrics, attribute)._labelnames
        labels = ", ".join(f"`{name}`" for name in names) or "none"
        by = ["all"] if attribute is None else users[attribute]
        name = family.name + ("_total" if family.type == "counter" else "")
        yield name, (f"`{name}`", family.type, labels, family.documentation, ", ".join(by))


def _is_metric(value: object) -> TypeGuard[Counter | Gauge | Histogram]:
    return isinstance(value, Counter | Gauge | Histogram)


@cache
def _metric_users() -> dict[str, list[str]]:
    users: dict[str, list[str]] = {}
    for service in SERVICES:
        for path in sorted((ROOT / "services" / f"blockyard_{service.replace('-', '_')}").rglob("*.py")):
            for attribute in _metrics_in(path):
                if service not in users.setdefault(attribute, []):
                    users[attribute].append(service)
    for file in ("http.py", "supervisor.py", "tracing.py"):
        users.update((attribute, ["all"]) for attribute in _metrics_in(ROOT / "shared/blockyard/runtime" / file))
    return users


def _metrics_in(path: Path) -> Iterator[str]:
    """Attributes of objects that are named ``metrics``."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute) and re.search(r"\b_?metrics$", ast.unparse(node.value)):
            yield node.attr


# --- spans ------------------------------------------------------------------------------------------------------------
def span_table() -> str:
    """Every span with what it is about."""
    texts = _attribute_texts(SpanName)
    return table(("span", "what"), ((f"`{name.value}`", texts[name.name]) for name in SpanName))


def reason_table() -> str:
    """Every reason for the end of a hit, in plain words."""
    return table(("reason", "the hit ended because"), ((f"`{item.value}`", item.sentence) for item in MissReason))


def connector_table() -> str:
    """Settings of the connector for vLLM."""
    texts = _attribute_texts(ConnectorSettings)
    rows = (
        (f"`{CONNECTOR_PREFIX}{item.name}`", _connector_default(item), texts[item.name])
        for item in fields(ConnectorSettings)
    )
    return table(("key", "default", "what"), rows)


def connector_keys() -> list[str]:
    """All settings of the connector for vLLM."""
    return [f"{CONNECTOR_PREFIX}{item.name}" for item in fields(ConnectorSettings)]


def _connector_default(item: Field[Any]) -> str:
    if item.default is MISSING:
        return "needed"
    return f"`{json.dumps(item.default)}`" if item.default not in ("", None) else ""


# --- programs ---------------------------------------------------------------------------------------------------------
def program(path: str) -> str:
    """An example program as a page shows it."""
    return f"```python\n{(ROOT / path).read_text()}```"


# --- pages ------------------------------------------------------------------------------------------------------------
MADE: Final[dict[str, tuple[str, Callable[[], str]]]] = {
    "settings": ("reference/settings.md", settings_tables),
    "miss reasons": ("reference/api.md", reason_table),
    "problems": ("reference/api.md", problem_table),
    "metrics": ("reference/metrics.md", metric_table),
    "spans": ("reference/traces.md", span_table),
    "vLLM connector": ("how-to/vllm.md", connector_table),
    "examples/events.py": ("reference/api.md", partial(program, "examples/events.py")),
    "examples/engine.py": ("reference/api.md", partial(program, "examples/engine.py")),
}


def with_table(page: str, name: str) -> str:
    """The text of a page with today's table ``name``.

    Raises:
        ValueError: the page has no place for it.
    """
    before, found, rest = page.partition(f"<!-- made: {name} -->\n")
    _, end, after = rest.partition(f"<!-- end: {name} -->\n")
    if not (found and end):
        raise ValueError(f"no place for the table {name}")
    return f"{before}{found}\n{MADE[name][1]()}\n\n{end}{after}"


def main() -> int:
    """Write all tables."""
    for name, (file, _) in MADE.items():
        page = DOCS / file
        page.write_text(with_table(page.read_text(), name))
    return 0


if __name__ == "__main__":
    sys.exit(main())
