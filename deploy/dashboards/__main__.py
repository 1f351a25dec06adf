"""``python -m deploy.dashboards`` writes the files of all dashboards into the chart, from where compose mounts them."""

import sys
from pathlib import Path
from typing import Final

from deploy.dashboards.build import to_json
from deploy.dashboards.events import EVENTS
from deploy.dashboards.overview import OVERVIEW
from deploy.dashboards.panels import Board
from deploy.dashboards.tiers import TIERS

BOARDS: Final[tuple[Board, ...]] = (OVERVIEW, TIERS, EVENTS)
FOLDER: Final = Path(__file__).parents[2] / "charts" / "blockyard" / "dashboards"


def main() -> int:
    """Write the files."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for board in BOARDS:
        (FOLDER / f"{board.name}.json").write_text(to_json(board))
    return 0


if __name__ == "__main__":
    sys.exit(main())
