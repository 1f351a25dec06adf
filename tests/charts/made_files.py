"""Files of the chart that are made from others: the schema of its values, and the table of them in its README.

``python -m tests.charts.made_files`` writes them; ``test_made_files.py`` fails while one is older than its source.
Threading: none.
"""

import json
import sys
from collections.abc import Iterator
from typing import Any, Final

import yaml
from tests.architecture.doc_tables import ROOT, table
from tests.charts.values_schema import values_schema
from yaml.nodes import MappingNode, Node, ScalarNode

CHART: Final = ROOT / "charts" / "blockyard"
README: Final = CHART / "README.md"
SCHEMA: Final = CHART / "values.schema.json"
_BEGIN: Final = "<!-- made: values -->\n"
_END: Final = "<!-- end: values -->\n"


def schema_text() -> str:
    """Text of the schema file."""
    return json.dumps(values_schema(), indent=2, ensure_ascii=False) + "\n"


def readme_text() -> str:
    """The README with today's table of values.

    Raises:
        ValueError: it has no place for the table.
    """
    before, begin, rest = README.read_text().partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not (begin and end):
        raise ValueError("no place for the table of values")
    return f"{before}{begin}\n{values_table()}\n\n{end}{after}"


def values_table() -> str:
    """Every value with its default and what its comment says."""
    return table(("value", "default", "what"), ((f"`{key}`", f"`{default}`", text) for key, default, text in values()))


def values() -> list[tuple[str, str, str]]:
    """Key, default and comment of every value: of leaves, and of maps and lists that a comment explains as a whole.

    Raises:
        ValueError: a leaf has no comment, neither of its own nor over a map that it belongs to.
    """
    source = (CHART / "values.yaml").read_text()
    root = yaml.compose(source, Loader=yaml.SafeLoader)
    return list(_values(root, "", source.splitlines(), covered=False))


def _values(node: Node | None, path: str, lines: list[str], *, covered: bool) -> Iterator[tuple[str, str, str]]:
    if not isinstance(node, MappingNode):
        raise ValueError(f"{path} is no map")
    for key, value in node.value:
        name = f"{path}.{key.value}" if path else str(key.value)
        text = _comment_above(key.start_mark.line, lines)
        inner = isinstance(value, MappingNode) and bool(value.value)
        if inner and _has_comments(value, lines):
            yield from _values(value, name, lines, covered=covered or bool(text))
        elif text:
            yield name, _shown(value), text
        else:
            raise ValueError(f"no comment over {name}")


def _has_comments(node: MappingNode, lines: list[str]) -> bool:
    return any(
        _comment_above(key.start_mark.line, lines) or (isinstance(value, MappingNode) and _has_comments(value, lines))
        for key, value in node.value
    )


def _comment_above(line: int, lines: list[str]) -> str:
    found: list[str] = []
    for text in reversed(lines[:line]):
        if not text.strip().startswith("#"):
            break
        found.insert(0, text.strip().lstrip("# "))
    return " ".join(found)


def _shown(node: Node) -> str:
    if isinstance(node, ScalarNode):
        return node.value or '""'
    return json.dumps(_plain(node), separators=(", ", ": "))


def _plain(node: Node) -> Any:
    if isinstance(node, ScalarNode):
        return yaml.safe_load(node.value) if node.style is None else node.value
    if isinstance(node, MappingNode):
        return {key.value: _plain(value) for key, value in node.value}
    return [_plain(item) for item in node.value]


def main() -> int:
    """Write both files."""
    SCHEMA.write_text(schema_text())
    README.write_text(readme_text())
    return 0


if __name__ == "__main__":
    sys.exit(main())
