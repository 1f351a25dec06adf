"""What the metadata of blocks costs in memory, and how long the garbage collector stops for it.

Each figure is taken in a process of its own that holds one full pool and nothing else (``bench.filled_pool``).
"""

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from bench.child import ROOT, Child
from bench.measure import Measure, bounded

ROWS: Final = 1 << 20
TIDE_ROWS: Final = 1 << 18
REMEMBERED: Final = 4.5
"""Capacities of evicted blocks: more than TIDE remembers."""
MANY_ROWS: Final = 6_000_000 // 64 * 64
CHILDREN: Final = 3
COLLECTIONS: Final = 10
_SECONDS: Final = 600.0
_MEGABYTE: Final = 1e6


def run(case: str) -> Iterator[Measure]:
    """Resident bytes per row of a full pool, of its policy's history too; longest collection with 6 million rows."""
    values = [_fill("lru", ROWS) / ROWS for _ in range(CHILDREN)]
    yield bounded(case, "row", values=values, unit="B", limit=200, wished=160)
    more = _fill("tide", TIDE_ROWS, evicted=int(TIDE_ROWS * REMEMBERED)) - _fill("lru", TIDE_ROWS)
    yield bounded(case, "tide_history_per_row", values=[more / TIDE_ROWS], unit="B", limit=400)
    with _filled_pool() as child:
        resident = child.ask("fill", _SECONDS, policy="lru", rows=MANY_ROWS)
        yield bounded(case, "six_million_rows", values=[resident / _MEGABYTE], unit="MB", limit=1_300)
        seconds = child.ask("full_collections", _SECONDS, times=COLLECTIONS)
        pauses = [1e3 * value for value in seconds]
        yield bounded(case, "full_collection", values=pauses, unit="ms", limit=20)


def _fill(policy: str, rows: int, evicted: int = 0) -> int:
    with _filled_pool() as child:
        return int(child.ask("fill", _SECONDS, policy=policy, rows=rows, evicted=evicted))


@contextmanager
def _filled_pool() -> Iterator[Child]:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join((str(ROOT / "shared"), str(ROOT)))}
    with tempfile.TemporaryDirectory(prefix="blockyard-bench-") as folder:
        command = [sys.executable, "-m", "bench.filled_pool"]
        with Child(command, Path(folder) / "log", environment) as child:
            yield child
