"""What a panel of a dashboard says: a title, queries with their unit, and a description for whoever looks at it.

Invariants: every panel has a unit, and a description that says what is good and what to do if it is not.
Threading: values only.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum, unique
from typing import Final


@unique
class Kind(StrEnum):
    """How a panel shows its queries."""

    TIMESERIES = "timeseries"
    STAT = "stat"
    BARGAUGE = "bargauge"
    TABLE = "table"


@unique
class Unit(StrEnum):
    """Units of values, as Grafana names them."""

    COUNT = "short"
    SHARE = "percentunit"
    SECONDS = "s"
    BYTES = "bytes"
    BYTES_PER_SECOND = "Bps"
    BLOCKS_PER_SECOND = "suffix:blocks/s"
    TOKENS_PER_SECOND = "suffix:tok/s"
    PER_SECOND = "suffix:/s"
    CORES = "suffix:cores"
    AGO = "dateTimeFromNow"
    """Of a time in milliseconds."""


@unique
class Color(StrEnum):
    """Colors with a meaning of their own, as Grafana names them."""

    GOOD = "green"
    NOTICE = "yellow"
    WARNING = "orange"
    BAD = "red"
    PLAIN = "blue"
    QUIET = "#8e8e8e"


SERIES_COLORS: Final[Mapping[str, str]] = {
    "g1": "purple",
    "g2": "green",
    "g3": "blue",
    "g4": "orange",
    "free": "#d0d3d8",
    "inactive": "blue",
    "held": "green",
    "mutable": "yellow",
    "complete": "purple",
    "await_free": "orange",
    "abandoned": "red",
    "miss": Color.QUIET,
    "unknown": Color.BAD,
    "p50": "green",
    "p90": "yellow",
    "p99": "red",
}
"""The same thing has the same color everywhere."""


@dataclass(frozen=True, slots=True)
class Query:
    """A PromQL expression; ``legend`` is a template over the labels of its series."""

    expr: str
    legend: str = ""


@dataclass(frozen=True, slots=True)
class Step:
    """From ``value`` on a number has this color."""

    color: str
    value: float | None = None


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table, in order: a label, or the value of the query with this index."""

    title: str
    source: str | int
    unit: Unit = Unit.COUNT
    texts: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Value to text and color."""


NEUTRAL: Final = (Step(Color.PLAIN),)
NONE_IS_GOOD: Final = (Step(Color.GOOD), Step(Color.WARNING, 1))
UP_OR_DOWN: Final[Mapping[str, tuple[str, str]]] = {"0": ("down", Color.BAD), "1": ("up", Color.GOOD)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One panel.

    Attributes:
        width: of 24.
        height: in units of the grid.
        stacked: areas on top of each other, for parts of a whole.
        maximum: upper end of the scale, where it has one.
        texts: value to text and color, for values that are states.
        columns: of a table.
    """

    kind: Kind
    title: str
    description: str
    unit: Unit
    queries: tuple[Query, ...]
    width: int = 12
    height: int = 8
    steps: tuple[Step, ...] = NEUTRAL
    stacked: bool = False
    maximum: float | None = None
    texts: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    columns: tuple[Column, ...] = ()


@dataclass(frozen=True, slots=True)
class Row:
    """Panels under one heading."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """A dashboard; ``name`` is its file, and part of its address."""

    name: str
    title: str
    description: str
    rows: tuple[Row, ...]


def stat(title: str, description: str, unit: Unit, *queries: Query, steps: tuple[Step, ...] = NEUTRAL) -> Panel:
    """One or two large numbers; six stand beside each other."""
    return Panel(
        kind=Kind.STAT,
        title=title,
        description=description,
        unit=unit,
        queries=queries,
        width=4,
        height=4,
        steps=steps,
    )


def lines(
    title: str,
    description: str,
    unit: Unit,
    *queries: Query,
    width: int = 12,
    stacked: bool = False,
    maximum: float | None = None,
) -> Panel:
    """Curves over time."""
    return Panel(
        kind=Kind.TIMESERIES,
        title=title,
        description=description,
        unit=unit,
        queries=queries,
        width=width,
        stacked=stacked,
        maximum=maximum,
    )


def table(
    title: str, description: str, columns: tuple[Column, ...], *queries: Query, width: int = 24, height: int = 5
) -> Panel:
    """One line per set of labels."""
    return Panel(
        kind=Kind.TABLE,
        title=title,
        description=description,
        unit=Unit.COUNT,
        queries=queries,
        columns=columns,
        width=width,
        height=height,
    )
