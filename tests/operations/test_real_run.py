"""A real Prometheus that scrapes a real run: every panel shows something, and no label has a value nobody knows of."""

import asyncio
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import httpx
import pytest
from deploy.dashboards.pictures.frames import evaluate
from deploy.dashboards.pictures.prometheus import prometheus_program
from deploy.dashboards.pictures.scene import Scene, ScenePlan, open_scene
from deploy.dashboards.reading import read_boards
from prometheus_client.parser import text_string_to_metric_families
from tests.operations.vocabulary import labels_of, values

from blockyard.cli.demo_plan import SHORT
from blockyard.cli.together import alongside

LIMIT_SECONDS: Final = 100.0
ROUND_SECONDS: Final = 1.0
RULES: Final = Path(__file__).parents[2] / "charts" / "blockyard" / "alerts" / "blockyard.yaml"
ONLY_IN_TROUBLE: Final = {
    "Blocks that could not be loaded",
    "Given up",
    "Items that did not move",
    "Failed requests",
}
"""Panels that are empty while all is well."""
UNBOUNDED: Final = {"version", "le"}

pytestmark = [
    pytest.mark.skipif(prometheus_program() is None, reason="the Prometheus server is not installed"),
    pytest.mark.timeout(240),
]


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    plan = ScenePlan(scrape=0.5, calm=0.0, away=0.0, follow=3.0, pace=20.0, cluster=SHORT.cluster)
    # Short, because sockets lie in it.
    with tempfile.TemporaryDirectory(prefix="blockyard-") as folder:
        async with open_scene(plan, Path(folder), (RULES,)) as scene:
            yield scene


async def test_every_panel_shows_something_while_two_nodes_work(scene: Scene) -> None:
    async def until_all_show() -> None:
        missing = {(board.name, panel.title) for board in read_boards() for panel in board.panels}
        try:
            async with asyncio.timeout(LIMIT_SECONDS):
                while {title for _, title in missing} - ONLY_IN_TROUBLE:
                    await asyncio.sleep(ROUND_SECONDS)
                    missing = await empty_panels(scene)
        except TimeoutError:
            pytest.fail(f"nothing to see on {sorted(missing)}")
        assert await unknown_values(scene) == []

    await alongside(scene.work(), until_all_show())


async def empty_panels(scene: Scene) -> set[tuple[str, str]]:
    window = scene.window
    return {
        (board.name, panel.title)
        for board in read_boards()
        for panel in board.panels
        if (await evaluate(panel, scene.prometheus, window)).empty
    }


async def unknown_values(scene: Scene) -> list[str]:
    """Series, labels and values that the vocabulary of the tests does not have: dashboards could not rely on it."""
    found: list[str] = []
    known = labels_of()
    async with httpx.AsyncClient(trust_env=False) as http:
        for address in [address for node in scene.cluster.nodes for address in node.addresses()]:
            text = (await http.get(f"{address.url}/metrics")).text
            for sample in [sample for family in text_string_to_metric_families(text) for sample in family.samples]:
                if frozenset(sample.labels) != known.get(sample.name):
                    found.append(f"{sample.name} {sorted(sample.labels)}")
                for label, value in sample.labels.items():
                    possible = values(sample.name, label)
                    if label not in UNBOUNDED and (possible is None or value not in possible):
                        found.append(f"{sample.name} {label}={value}")
    return sorted(set(found))
