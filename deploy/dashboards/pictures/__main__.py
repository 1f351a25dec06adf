"""``python -m deploy.dashboards.pictures`` runs the scene and draws every dashboard into the documentation.

Takes about six minutes; needs the Prometheus server.
"""

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path
from typing import Final

from deploy.dashboards.pictures.drawing import draw
from deploy.dashboards.pictures.frames import evaluate
from deploy.dashboards.pictures.scene import LONG, open_scene
from deploy.dashboards.reading import read_boards

_FOLDER: Final = Path(__file__).parents[3] / "docs" / "images"
_ALERTS: Final = Path(__file__).parents[3] / "charts" / "blockyard" / "alerts" / "blockyard.yaml"
_NOTE: Final = (
    "Drawn by deploy/dashboards/pictures, not by Grafana: the panels' own queries, asked of a Prometheus that scraped "
    "two nodes of blockyard up."
)


def main() -> int:
    """Run, ask, draw."""
    parser = argparse.ArgumentParser(prog="deploy.dashboards.pictures", description=__doc__)
    parser.add_argument("--folder", type=Path, default=_FOLDER, help="where the pictures go")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="blockyard-") as folder:
        asyncio.run(_make(Path(folder), options.folder))
    return 0


async def _make(folder: Path, target: Path) -> None:
    async with open_scene(LONG, folder, (_ALERTS,)) as scene:
        await scene.play(_say)
        window = scene.window
        for board in read_boards():
            frames = [await evaluate(panel, scene.prometheus, window) for panel in board.panels]
            draw(board, frames, window, target / f"dashboard-{board.name}.png", _NOTE)
            _say(f"{board.name}: {sum(not frame.empty for frame in frames)} of {len(frames)} panels show something")
        _say(f"alerts: {', '.join(await scene.prometheus.alerts()) or 'none'}")


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
