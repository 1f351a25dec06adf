"""The program that draws dashboards understands all of them, and writes numbers, names and tables as Grafana does."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from deploy.dashboards.panels import Unit
from deploy.dashboards.pictures.drawing import draw
from deploy.dashboards.pictures.frames import Frame, Window, evaluate
from deploy.dashboards.pictures.prometheus import Series
from deploy.dashboards.pictures.units import text_of
from deploy.dashboards.reading import FOLDER, ReadBoard, UnknownPanelError, read_board, read_boards

WINDOW: Final = Window(start=1_000.0, end=1_300.0, scrape_seconds=5.0, step_seconds=1.0)
PNG: Final = b"\x89PNG"


class Answers:
    """A Prometheus that has the same two nodes for every query."""

    def __init__(self, value: float = 0.5) -> None:
        self.asked: list[str] = []
        self._value = value

    async def query(self, expr: str, time: float) -> list[Series]:
        self.asked.append(expr)
        return [Series({"node": node, "state": "held"}, (time,), (self._value,)) for node in ("b", "a")]

    async def query_range(self, expr: str, start: float, end: float, step: float) -> list[Series]:
        self.asked.append(expr)
        times = (start, start + step, end)
        return [Series({"node": node, "tier": "g2"}, times, (0.0, self._value, self._value)) for node in ("a", "b")]


class Silence(Answers):
    """A Prometheus that has nothing."""

    async def query(self, expr: str, time: float) -> list[Series]:
        return []

    async def query_range(self, expr: str, start: float, end: float, step: float) -> list[Series]:
        return []


@pytest.mark.parametrize("board", read_boards(), ids=lambda board: board.name)
@pytest.mark.parametrize("answers", [Answers(), Answers(123_456_789.0), Answers(0.0), Silence()])
async def test_every_dashboard_can_be_drawn(board: ReadBoard, answers: Answers, tmp_path: Path) -> None:
    frames = [await evaluate(panel, answers, WINDOW) for panel in board.panels]
    assert [expr for expr in answers.asked if "$" in expr] == []
    draw(board, frames, WINDOW, tmp_path / "board.png", "a note")
    assert (tmp_path / "board.png").read_bytes().startswith(PNG)


def test_variables_stand_for_everything_and_for_a_window_that_has_samples() -> None:
    expr = 'rate(x{namespace=~"$namespace", node=~"$node"}[$__rate_interval]) + y[$__range]'
    assert WINDOW.filled_in(expr) == 'rate(x{namespace=~".*", node=~".*"}[20s]) + y[300s]'
    with pytest.raises(UnknownPanelError, match="vanished"):
        WINDOW.filled_in("x[$vanished]")


async def test_rows_of_a_table_are_joined_by_the_labels_that_all_queries_have() -> None:
    (panel,) = [panel for panel in read_board(FOLDER / "events.json").panels if panel.title == "Nodes"]

    class Tables(Silence):
        async def query(self, expr: str, time: float) -> list[Series]:
            if "lease_state" in expr:
                return [Series({"node": "b", "state": "held"}, (time,), (1.0,))]
            return [Series({"node": node}, (time,), (7.0,)) for node in ("b", "a")]

    frame = await evaluate(panel, Tables(), WINDOW)
    assert [row["Node"] for row in frame.rows] == ["a", "b"]
    assert "Name" not in frame.rows[0]
    assert frame.rows[1]["Name"] == "held"
    titles = ["Node", "Name", "NATS", "Appended", "Published", "Waiting", "Lost", "Last start"]
    assert list(frame.rows[1]) == titles
    assert frame.titles(panel) == titles, "nobody has a namespace here"


async def test_lines_are_named_by_their_legend() -> None:
    (panel,) = [panel for panel in read_board(FOLDER / "tiers.json").panels if panel.title == "Filled"]
    frame = await evaluate(panel, Answers(), WINDOW)
    assert [line.name for line in frame.lines] == ["a g2", "b g2"]
    assert Frame().empty
    assert not frame.empty


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.0, Unit.COUNT, "0"),
        (1.5, Unit.COUNT, "1.5"),
        (1_234.0, Unit.COUNT, "1.23 K"),
        (2_500_000.0, Unit.COUNT, "2.5 Mil"),
        (0.4567, Unit.SHARE, "45.7%"),
        (1.0, Unit.SHARE, "100%"),
        (0.0, Unit.SECONDS, "0 s"),
        (0.0123, Unit.SECONDS, "12.3 ms"),
        (90.0, Unit.SECONDS, "1.5 min"),
        (0.00002, Unit.SECONDS, "20 µs"),
        (3 * 2.0**20, Unit.BYTES, "3 MiB"),
        (33_300_000.0, Unit.BYTES_PER_SECOND, "33.3 MB/s"),
        (129.54, Unit.BLOCKS_PER_SECOND, "130 blocks/s"),
        (12_954.2, Unit.TOKENS_PER_SECOND, "12954 tok/s"),
        (1_000.0 * 1_000, Unit.AGO, "2 min ago"),
        (math.nan, Unit.COUNT, "–"),
        (math.inf, Unit.SECONDS, "∞"),
    ],
)
def test_numbers_have_three_digits_and_a_unit(value: float, unit: Unit, text: str) -> None:
    assert text_of(value, unit, now=1_120.0) == text


def changed(change: Callable[[dict[str, Any]], None], folder: Path) -> Path:
    """A dashboard with one panel changed."""
    data = json.loads((FOLDER / "events.json").read_text())
    change(next(panel for panel in data["panels"] if panel["title"] == "Nodes"))
    path = folder / "events.json"
    path.write_text(json.dumps(data))
    return path


@pytest.mark.parametrize(
    "change",
    [
        lambda panel: panel.update(type="heatmap"),
        lambda panel: panel["transformations"].append({"id": "sortBy", "options": {}}),
        lambda panel: panel["fieldConfig"]["overrides"][0]["matcher"].update(id="byRegexp"),
        lambda panel: panel["fieldConfig"]["overrides"][0]["properties"].append({"id": "custom.width", "value": 3}),
        lambda panel: panel["fieldConfig"]["defaults"].update(mappings=[{"type": "range", "options": {}}]),
    ],
)
def test_what_is_not_understood_is_not_left_out(change: Callable[[dict[str, Any]], None], tmp_path: Path) -> None:
    assert read_board(changed(lambda panel: None, tmp_path)).panels
    with pytest.raises(UnknownPanelError):
        read_board(changed(change, tmp_path))
