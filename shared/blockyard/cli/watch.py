"""Keeps the display up to date while something else runs, and has the venue looked after.

Threading: one event loop.
"""

import asyncio
import time
from typing import Final

from blockyard.cli.display import Display, RunView
from blockyard.cli.node_metrics import NodeFigures, NodeMetrics
from blockyard.cli.venue import Venue, docs_of

_INTERVAL_SECONDS: Final = 1.0


class Watch:
    """Observer of one venue."""

    def __init__(self, venue: Venue, display: Display) -> None:
        """Observe the running ``venue``, show it on ``display``."""
        self._venue = venue
        self._display = display
        self._metrics = NodeMetrics(venue.http)
        self._started = time.monotonic()
        # Kept beyond their end: the display goes on showing what a killed engine had done.
        self._engines = [node.engine for node in venue.nodes if node.engine is not None]

    async def figures(self) -> dict[str, NodeFigures]:
        """Figures of all nodes now, by node."""
        return {figures.node: figures for figures in await self._metrics.read(self._venue.nodes)}

    async def show_once(self) -> None:
        """Gather and draw."""
        nodes = await self._metrics.read(self._venue.nodes)
        engines = tuple((engine.name, engine.latest) for engine in self._engines)
        view = RunView(time.monotonic() - self._started, nodes, engines, docs_of(self._venue.nodes))
        self._display.show(view)

    async def run(self) -> None:
        """Draw every second until cancelled.

        Raises:
            ProcessEndedError: a service or server ended that nobody stopped.
            DiskFullError: the disk filled up.
        """
        while True:
            await self._venue.check()
            await self.show_once()
            await asyncio.sleep(_INTERVAL_SECONDS)
