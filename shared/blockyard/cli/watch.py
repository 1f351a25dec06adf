"""Keeps the display up to date while something else runs, and notices processes that end by themselves and
disks that fill up.

Threading: one event loop.
"""

import asyncio
import time
from typing import Final

from blockyard.cli.child_process import read_tail
from blockyard.cli.cluster import Cluster
from blockyard.cli.display import Display, RunView
from blockyard.cli.node_metrics import NodeFigures, NodeMetrics
from blockyard.core.errors import ProcessEndedError

_INTERVAL_SECONDS: Final = 1.0


class Watch:
    """Observer of one cluster."""

    def __init__(self, cluster: Cluster, display: Display) -> None:
        """Observe the running ``cluster``, show it on ``display``."""
        self._cluster = cluster
        self._display = display
        self._metrics = NodeMetrics(cluster.http)
        self._started = time.monotonic()
        # Kept beyond their end: the display goes on showing what a killed engine had done.
        self._engines = [node.engine for node in cluster.nodes if node.engine is not None]

    async def figures(self) -> dict[str, NodeFigures]:
        """Figures of all nodes now, by node."""
        return {figures.node: figures for figures in await self._metrics.read(self._cluster.nodes)}

    async def show_once(self) -> None:
        """Gather and draw."""
        nodes = await self._metrics.read(self._cluster.nodes)
        engines = tuple((engine.spec.name, engine.latest) for engine in self._engines)
        view = RunView(time.monotonic() - self._started, nodes, engines, self._cluster.docs)
        self._display.show(view)

    async def run(self) -> None:
        """Draw every second until cancelled.

        Raises:
            ProcessEndedError: a service or server ended that nobody stopped.
            DiskFullError: the disk filled up.
        """
        while True:
            self._cluster.require_room()
            self._require_alive()
            await self.show_once()
            await asyncio.sleep(_INTERVAL_SECONDS)

    def _require_alive(self) -> None:
        for node in self._cluster.nodes:
            if (ended := node.ended_process()) is not None:
                raise ProcessEndedError(ended, node=node.name)
        for server in self._cluster.infrastructure.servers:
            if not server.running:
                detail = f"{server.label} ended by itself; end of its log:\n{read_tail(server.log_file)}"
                raise ProcessEndedError(detail, server=server.label)
