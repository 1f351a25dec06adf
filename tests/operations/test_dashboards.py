"""Dashboards ask only for what exists, say what they show, and are what the program that makes them writes today."""

import json
from pathlib import Path
from typing import Any, Final

import pytest
from deploy.dashboards.__main__ import BOARDS, FOLDER
from deploy.dashboards.build import to_json
from deploy.dashboards.panels import Board
from deploy.dashboards.reading import ReadBoard, read_boards
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard, Panel
from tests.operations.promql import mistakes, series_of
from tests.operations.vocabulary import labels_of

READ: Final = read_boards()
QUERIES: Final = [(board.name, title, expr) for board in READ for title, expr in board.expressions]
_WIDTH: Final = 24


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.name)
def test_the_files_are_up_to_date(board: Board) -> None:
    assert (FOLDER / f"{board.name}.json").read_text() == to_json(board), "write them with: make dashboards"


def test_there_is_a_file_for_every_board_and_no_other() -> None:
    assert sorted(path.name for path in FOLDER.iterdir()) == sorted(f"{board.name}.json" for board in BOARDS)


@pytest.mark.parametrize(("board", "title", "expr"), QUERIES, ids=[f"{board} {title}" for board, title, _ in QUERIES])
def test_queries_ask_for_what_exists(board: str, title: str, expr: str) -> None:
    assert mistakes(expr) == []


@pytest.mark.parametrize(
    ("planted", "wrong"),
    [
        ("sum(blockyard_gone)", ["series blockyard_gone"]),
        (
            'rate(blockyard_lookup_blocks_total{outcome="hits"}[5m])',
            ["outcome 'hits' of blockyard_lookup_blocks_total"],
        ),
        ('blockyard_blocks{state!~"free|gone"}', ["state 'gone' of blockyard_blocks"]),
        ('blockyard_sessions{tier="g2"}', ["label tier of blockyard_sessions"]),
        ("sum by (edge) (blockyard_sessions)", ["label edge"]),
        ("rate(blockyard_lookup_blocks[5m])", ["series blockyard_lookup_blocks"]),
        ('blockyard_dependency_up{name="mysql"}', ["name 'mysql' of blockyard_dependency_up"]),
        ("sum(node_cpu_seconds_total)", ["series node_cpu_seconds_total"]),
    ],
)
def test_a_planted_mistake_is_found(planted: str, wrong: list[str]) -> None:
    assert mistakes(planted) == wrong


@pytest.mark.parametrize(
    "right",
    [
        'sum by (le, tier) (rate(blockyard_load_seconds_bucket{node=~"$node"}[$__rate_interval]) * on (job, instance) '
        "group_left (service) blockyard_build_info) or blockyard_capacity_blocks",
        'histogram_quantile(0.99, sum by (le) (rate(blockyard_dependency_seconds_bucket{name="s3"}[5m])))',
        'up{job=~".*blockyard.*"} == 0',
    ],
)
def test_a_right_query_is_accepted(right: str) -> None:
    assert mistakes(right) == []


def test_every_metric_is_on_a_dashboard_or_left_out_for_a_reason() -> None:
    asked = {name for _, _, expr in QUERIES for name in series_of(expr)}
    shown = {name.removesuffix("_bucket").removesuffix("_count").removesuffix("_sum") for name in asked}
    own = {name for name in labels_of() if name.startswith("blockyard_")}
    known = {name.removesuffix("_bucket").removesuffix("_count").removesuffix("_sum") for name in own}
    left_out = {
        "blockyard_epoch": "an alert, by its changes",
        "blockyard_unhandled_errors_total": "an alert",
        "blockyard_leaked_blocks": "an alert",
        "blockyard_relatives_left": "no fault: the group that stayed is of use by itself while it is held",
        "blockyard_lookups_total": "blocks tell more than calls",
        "blockyard_checksum_checks_total": "the denominator, for questions of its own",
        "blockyard_moved_blocks_total": "bytes tell the same",
        "blockyard_spans_total": "the denominator of dropped spans",
        "blockyard_spans_dropped_total": "an alert",
        "blockyard_memory_limit_bytes": "the limit of a container is a limit of all its memory, not of resident memory",
    }
    assert {name for name in known - shown if name not in left_out} == set()
    assert {name for name in left_out if name in shown} == set()


@pytest.mark.parametrize("board", READ, ids=lambda board: board.name)
def test_every_panel_says_what_is_good_in_which_unit(board: ReadBoard) -> None:
    assert [panel.title for panel in board.panels if not panel.look.unit] == []
    assert [panel.title for panel in board.panels if len(panel.description) < 60] == []
    hints = ("good", "Good", "should", "follows", "Compare", "normal")
    assert [panel.title for panel in board.panels if not any(hint in panel.description for hint in hints)] == []
    titles = [panel.title for panel in board.panels]
    assert len(titles) == len(set(titles))


@pytest.mark.parametrize("board", READ, ids=lambda board: board.name)
def test_panels_lie_side_by_side(board: ReadBoard) -> None:
    taken: dict[tuple[int, int], str] = {}
    for name, place in [*board.headings, *((panel.title, panel.place) for panel in board.panels)]:
        assert place.left + place.width <= _WIDTH
        for column in range(place.left, place.left + place.width):
            for row in range(place.top, place.top + place.height):
                assert taken.setdefault((column, row), name) == name


@pytest.mark.parametrize("board", READ, ids=lambda board: board.name)
def test_every_query_follows_the_variables(board: ReadBoard) -> None:
    for title, expr in board.expressions:
        for name in series_of(expr) - {"blockyard_build_info"}:
            labels = expr.partition(f"{name}{{")[2].partition("}")[0]
            assert 'namespace=~"$namespace", node=~"$node"' in labels, title


def described(path: Path) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(path.read_text())
    return data


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.json")), ids=lambda path: path.stem)
def test_files_are_whole_in_the_model_of_grafana(path: Path) -> None:
    data = described(path)
    model = Dashboard.from_json(data)
    assert model.uid == f"blockyard-{path.stem}"
    assert model.panels is not None
    assert len(model.panels) == len(data["panels"])
    ids = [panel.id_val for panel in model.panels]
    assert len(ids) == len(set(ids))
    for panel in model.panels:
        if isinstance(panel, Panel):
            assert panel.targets
            assert panel.datasource is not None
            assert panel.datasource.uid == "${datasource}"
    assert model.templating is not None
    assert [variable.name for variable in model.templating.list_val or []] == ["datasource", "namespace", "node"]
    again = json.loads(JSONEncoder(sort_keys=True, indent=2).encode(model))
    assert again == data, "nothing is lost on the way through the model"
