"""Reads dashboards back from their JSON files, as far as whoever checks or draws them has to understand them.

Invariants: what is not understood is an error, not left out, so that a new kind of panel is noticed.
Threading: values and pure functions.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from deploy.dashboards.panels import Kind, Unit

FOLDER: Final = Path(__file__).parents[2] / "charts" / "blockyard" / "dashboards"
_TRANSFORMATIONS: Final = ["merge", "organize"]
_OVERRIDES: Final = {"color", "unit", "mappings"}


class UnknownPanelError(Exception):
    """A dashboard holds something that this program does not understand."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a panel or heading stands, in units of the grid."""

    left: int
    top: int
    width: int
    height: int


@dataclass(frozen=True, slots=True)
class Target:
    """One query."""

    ref: str
    expr: str
    legend: str
    instant: bool


@dataclass(frozen=True, slots=True)
class Look:
    """How values are shown: unit, color by threshold, and texts of states."""

    unit: Unit
    thresholds: tuple[tuple[float, str], ...] = ()
    texts: Mapping[float, tuple[str, str]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPanel:
    """One panel.

    Attributes:
        colors: name of a series to its color.
        columns: of a table: field to title, in order.
        looks: of a table: title of a column to its own look.
        graph: of a number: whether its course is drawn behind it.
    """

    kind: Kind
    title: str
    description: str
    place: Place
    look: Look
    targets: tuple[Target, ...]
    colors: Mapping[str, str]
    stacked: bool
    maximum: float | None
    columns: Mapping[str, str]
    looks: Mapping[str, Look]
    graph: bool


@dataclass(frozen=True, slots=True)
class ReadBoard:
    """One dashboard: its headings and its panels."""

    name: str
    title: str
    headings: tuple[tuple[str, Place], ...]
    panels: tuple[ReadPanel, ...]

    @property
    def expressions(self) -> Iterator[tuple[str, str]]:
        """Title of the panel, and expression, of every query."""
        return ((panel.title, target.expr) for panel in self.panels for target in panel.targets)


def read_boards(folder: Path = FOLDER) -> tuple[ReadBoard, ...]:
    """All dashboards of a folder.

    Raises:
        UnknownPanelError: one holds something that is not understood.
    """
    return tuple(read_board(path) for path in sorted(folder.glob("*.json")))


def read_board(path: Path) -> ReadBoard:
    """One dashboard.

    Raises:
        UnknownPanelError: it holds something that is not understood.
    """
    data = json.loads(path.read_text())
    rows = [item for item in data["panels"] if item["type"] == "row"]
    return ReadBoard(
        path.stem,
        data["title"],
        tuple((row["title"], _place(row)) for row in rows),
        tuple(_panel(item) for item in data["panels"] if item["type"] != "row"),
    )


def _panel(item: dict[str, Any]) -> ReadPanel:
    if item["type"] not in set(Kind):
        raise UnknownPanelError(f"panel {item['title']}: type {item['type']}")
    kind = Kind(item["type"])
    config = item["fieldConfig"]
    defaults, custom = config["defaults"], config["defaults"].get("custom", {})
    columns = _columns(item)
    own: dict[str, dict[str, Any]] = {}
    for override in config["overrides"]:
        properties = {entry["id"]: entry["value"] for entry in override["properties"]}
        if override["matcher"]["id"] != "byName" or not _OVERRIDES.issuperset(properties):
            raise UnknownPanelError(f"panel {item['title']}: override {override}")
        own[override["matcher"]["options"]] = properties
    return ReadPanel(
        kind=kind,
        title=item["title"],
        description=item["description"],
        place=_place(item),
        look=_look(defaults),
        targets=tuple(_target(target) for target in item["targets"]),
        colors={name: value["color"]["fixedColor"] for name, value in own.items() if "color" in value},
        stacked=custom.get("stacking", {}).get("mode") == "normal",
        maximum=defaults.get("max"),
        columns=columns,
        looks={name: _look(value) for name, value in own.items() if "unit" in value},
        graph=kind is Kind.STAT and item["options"]["graphMode"] == "area",
    )


def _place(item: dict[str, Any]) -> Place:
    grid = item["gridPos"]
    return Place(grid["x"], grid["y"], grid["w"], grid["h"])


def _target(target: dict[str, Any]) -> Target:
    return Target(target["refId"], target["expr"], target.get("legendFormat", ""), bool(target.get("instant")))


def _look(config: dict[str, Any]) -> Look:
    steps = config.get("thresholds", {}).get("steps", [])
    texts: dict[float, tuple[str, str]] = {}
    for mapping in config.get("mappings") or []:
        if mapping["type"] != "value":
            raise UnknownPanelError(f"mapping of type {mapping['type']}")
        texts |= {float(value): (entry["text"], entry["color"]) for value, entry in mapping["options"].items()}
    return Look(
        Unit(config["unit"]),
        tuple((float("-inf") if step["value"] is None else step["value"], step["color"]) for step in steps),
        texts or None,
    )


def _columns(item: dict[str, Any]) -> dict[str, str]:
    transformations = item.get("transformations") or []
    if not transformations:
        return {}
    if [entry["id"] for entry in transformations] != _TRANSFORMATIONS:
        raise UnknownPanelError(f"panel {item['title']}: transformations {transformations}")
    options = transformations[1]["options"]
    order = sorted(options["indexByName"], key=lambda name: int(options["indexByName"][name]))
    return {name: options["renameByName"].get(name, name) for name in order}
