"""What a panel shows: its queries with the variables filled in, asked of Prometheus, named and joined as Grafana does.

Threading: one event loop.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from deploy.dashboards.panels import Kind
from deploy.dashboards.pictures.prometheus import Series
from deploy.dashboards.reading import ReadPanel, Target, UnknownPanelError

_LABEL: Final = re.compile(r"\{\{(\w+)\}\}")
_VARIABLE: Final = re.compile(r"\$\{?(\w+)\}?")
_EVERYTHING: Final = ".*"
_LEAST_SCRAPES: Final = 4
"""Grafana's rate interval is never shorter than this many scrapes."""


class QueryPort(Protocol):
    """What is asked."""

    async def query(self, expr: str, time: float) -> list[Series]:
        """Value of an expression at a time."""
        ...

    async def query_range(self, expr: str, start: float, end: float, step: float) -> list[Series]:
        """Course of an expression."""
        ...


@dataclass(frozen=True, slots=True)
class Window:
    """The time that is shown."""

    start: float
    end: float
    scrape_seconds: float
    step_seconds: float

    def filled_in(self, expr: str) -> str:
        """An expression with every variable replaced.

        Raises:
            UnknownPanelError: it has one that is not known.
        """
        rate = max(self.step_seconds + self.scrape_seconds, _LEAST_SCRAPES * self.scrape_seconds)
        values = {
            "namespace": _EVERYTHING,
            "node": _EVERYTHING,
            "__rate_interval": f"{max(1, round(rate))}s",
            "__range": f"{max(1, round(self.end - self.start))}s",
        }

        def value(found: re.Match[str]) -> str:
            if found.group(1) not in values:
                raise UnknownPanelError(f"variable {found.group()} in {expr}")
            return values[found.group(1)]

        return _VARIABLE.sub(value, expr)


@dataclass(frozen=True, slots=True)
class Line:
    """One named series."""

    name: str
    times: tuple[float, ...]
    values: tuple[float, ...]

    @property
    def last(self) -> float:
        """Newest value."""
        return self.values[-1]


@dataclass(frozen=True, slots=True)
class Frame:
    """Content of a panel: lines, or rows of a table by the titles of their columns."""

    lines: tuple[Line, ...] = ()
    rows: tuple[Mapping[str, float | str], ...] = ()

    @property
    def empty(self) -> bool:
        """Whether there is nothing to show."""
        return not self.lines and not self.rows

    def titles(self, panel: ReadPanel) -> list[str]:
        """Columns of a table: those for which some row has something, such as no namespace where there is none."""
        return [title for title in panel.columns.values() if any(title in row for row in self.rows)]


async def evaluate(panel: ReadPanel, port: QueryPort, window: Window) -> Frame:
    """Ask the queries of a panel."""
    if panel.kind is Kind.TABLE:
        results = [await port.query(window.filled_in(target.expr), window.end) for target in panel.targets]
        return Frame(rows=_table(panel, results))
    lines: list[Line] = []
    for target in panel.targets:
        lines += [_line(target, series) for series in await _course(target, port, window) if series.values]
    return Frame(lines=tuple(lines))


async def _course(target: Target, port: QueryPort, window: Window) -> list[Series]:
    expr = window.filled_in(target.expr)
    if target.instant:
        return await port.query(expr, window.end)
    return await port.query_range(expr, window.start, window.end, window.step_seconds)


def _line(target: Target, series: Series) -> Line:
    name = _LABEL.sub(lambda found: series.labels.get(found.group(1), ""), target.legend)
    return Line(name.strip(), series.times, series.values)


def _table(panel: ReadPanel, results: Sequence[Sequence[Series]]) -> tuple[Mapping[str, float | str], ...]:
    """Merge: rows of all queries that agree on the labels they share become one; then only named columns, in order."""
    shared = set.intersection(*({*series.labels} for result in results for series in result)) if any(results) else set()
    rows: dict[tuple[str, ...], dict[str, float | str]] = {}
    for target, result in zip(panel.targets, results, strict=True):
        for series in result:
            row = rows.setdefault(tuple(series.labels[name] for name in sorted(shared)), {})
            row.update(series.labels)
            row["Value" if len(results) == 1 else f"Value #{target.ref}"] = series.values[-1]
    return tuple(
        {title: row[name] for name, title in panel.columns.items() if name in row} for _, row in sorted(rows.items())
    )
