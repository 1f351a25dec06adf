"""The settings file: YAML of two levels, read as plain text so that a value means the same in file and environment.

YAML would turn ``12:30:00`` into a number of seconds and ``017`` into 15; here every value is the text that was
written, and the settings say what it may be. Only a regular file of a bounded size is read, because another kind may
never end; deeply nested text is refused before anything is built from it.
Invariants: errors name line and column, never the text of a line, which may hold a secret.
Threading: one short blocking read, at start.
"""

import os
import stat
from typing import Any, Final

import yaml
from yaml.events import CollectionEndEvent, CollectionStartEvent
from yaml.nodes import MappingNode, Node, ScalarNode

from blockyard.core.errors import ConfigurationError

MAX_FILE_BYTES: Final = 256 << 10
_MAX_DEPTH: Final = 8
_TAG: Final = "tag:yaml.org,2002:"
_NULL: Final = f"{_TAG}null"
_PLAIN_TAGS: Final = frozenset(
    _TAG + name for name in ("str", "int", "float", "bool", "null", "timestamp", "value", "merge")
)

Section = dict[str, str | None]


def read_file(path: str) -> dict[str, Section]:
    """Sections of the file at ``path``; a value is None where nothing is written.

    Raises:
        ConfigurationError: it cannot be read, or holds anything but sections of keys with one value each.
    """
    text = _text(path)
    try:
        _check_depth(text, path)
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        raise ConfigurationError("the settings file is not YAML in UTF-8", file=path, **_place(mark)) from None
    if root is None or root.tag == _NULL:
        return {}
    sections: dict[str, Section] = {}
    for name, node in _entries(root, path, "the settings file must hold a map").items():
        if node.tag == _NULL:
            # A section whose lines are all commented out.
            sections[name] = {}
            continue
        entries = _entries(node, path, "a section must hold a map", key=name)
        sections[name] = {key: _value(value, path, f"{name}.{key}") for key, value in entries.items()}
    return sections


def _text(path: str) -> str:
    try:
        # Without waiting: opening a pipe that nobody writes would never return.
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(fd, "rb") as file:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise ConfigurationError("the settings file must be a regular file", file=path)
            data = file.read(MAX_FILE_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not a path"
        raise ConfigurationError("cannot read the settings file", file=path, reason=reason) from error
    if len(data) > MAX_FILE_BYTES:
        raise ConfigurationError("the settings file is too large", file=path, limit_bytes=MAX_FILE_BYTES)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ConfigurationError("the settings file is not YAML in UTF-8", file=path) from None


def _check_depth(text: str, path: str) -> None:
    # From the events, which come without recursion; building the tree recurses once per level.
    depth = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        depth += isinstance(event, CollectionStartEvent) - isinstance(event, CollectionEndEvent)
        if depth > _MAX_DEPTH:
            raise ConfigurationError("the settings file nests too deep", file=path, **_place(event.start_mark))


def _entries(node: Node, path: str, otherwise: str, **where: str) -> dict[str, Node]:
    if not isinstance(node, MappingNode) or node.tag != f"{_TAG}map":
        raise ConfigurationError(otherwise, **where, file=path, **_place(node.start_mark))
    entries: dict[str, Node] = {}
    for key, value in node.value:
        place = _place(key.start_mark)
        if not isinstance(key, ScalarNode) or key.tag not in _PLAIN_TAGS:
            raise ConfigurationError("a key must be a word", file=path, **place)
        name = str(key.value)
        if name in entries:
            stem = f"{where['key']}." if "key" in where else ""
            raise ConfigurationError("set twice", key=f"{stem}{name}", file=path, **place)
        entries[name] = value
    return entries


def _value(node: Node, path: str, key: str) -> str | None:
    if not isinstance(node, ScalarNode) or node.tag not in _PLAIN_TAGS:
        raise ConfigurationError("a setting holds one plain value", key=key, file=path, **_place(node.start_mark))
    return None if node.tag == _NULL else str(node.value)


def _place(mark: Any) -> dict[str, int]:
    return {} if mark is None else {"line": mark.line + 1, "column": mark.column + 1}
