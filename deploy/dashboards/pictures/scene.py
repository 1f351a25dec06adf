"""What the pictures show: two nodes at work under a Prometheus, and what happens to them on purpose.

::

    replay on a and b ─ flip bytes on b's disk ─ NATS hangs ─ the object store hangs ─ kill and restart b's services

Invariants: everything that was started has ended when the scene is left, also after an error.
Threading: one event loop, in the main thread.
"""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from deploy.dashboards.pictures.frames import Window
from deploy.dashboards.pictures.prometheus import Prometheus, ScrapeTarget

from blockyard.cli.cluster import Cluster, ClusterPlan
from blockyard.cli.embedded.server import EmbeddedServer
from blockyard.cli.engine_link import EngineLink
from blockyard.cli.together import alongside, together
from blockyard.runtime.settings_source import load_settings

_WINDOW_REQUESTS: Final = 20
_TELL_SECONDS: Final = 0.5
_FLIPPED_ONE_IN: Final = 16
_STOPPED: Final = ("nats", "seaweedfs")
_STEPS: Final = 240
"""Points of a curve."""


@dataclass(frozen=True, slots=True)
class ScenePlan:
    """How long everything takes, in seconds."""

    scrape: float
    calm: float
    """Before, between and after the episodes."""
    away: float
    """How long a server hangs."""
    follow: float
    """How far b is behind a."""
    pace: float
    """Factor by which the time of the trace is compressed."""
    cluster: ClusterPlan = ClusterPlan()


LONG: Final = ScenePlan(scrape=5.0, calm=50.0, away=25.0, follow=15.0, pace=1.7)


class Scene:
    """A running cluster that is being scraped."""

    def __init__(self, cluster: Cluster, prometheus: Prometheus, plan: ScenePlan) -> None:
        """Use these; both run."""
        self.cluster = cluster
        self.prometheus = prometheus
        self._plan = plan
        self._started = time.time()

    @property
    def window(self) -> Window:
        """The time from the beginning until now."""
        end = time.time()
        step = max(self._plan.scrape, (end - self._started) / _STEPS)
        return Window(self._started, end, self._plan.scrape, step)

    async def work(self) -> None:
        """Engines at work, while Prometheus is told what to scrape; until cancelled."""
        engines = [node.engine for node in self.cluster.nodes if node.engine is not None]
        replays = [_replay(engine, index * self._plan.follow, self._plan.pace) for index, engine in enumerate(engines)]
        await together(self._tell_targets(), *replays)

    async def play(self, say: Callable[[str], None]) -> None:
        """The whole scene, under load."""
        await alongside(self.work(), self._episodes(say))

    async def _tell_targets(self) -> None:
        """Addresses of services change when they are started again."""
        while True:
            addresses = [address for node in self.cluster.nodes for address in node.addresses()]
            self.prometheus.scrape(
                ScrapeTarget(
                    address=address.url.rpartition("//")[2],
                    job=f"blockyard-{address.service}",
                    node=address.node,
                    instance=f"{address.service}-{address.node}",
                )
                for address in addresses
            )
            await asyncio.sleep(_TELL_SECONDS)

    async def _episodes(self, say: Callable[[str], None]) -> None:
        b = self.cluster.nodes[1]
        await asyncio.sleep(self._plan.calm)
        blocks = (await b.slab_blocks())[::_FLIPPED_ONE_IN]
        for block in blocks:
            await b.flip_slab_byte(block)
        say(f"flipped a byte of each of {len(blocks)} blocks on b's disk")
        await asyncio.sleep(self._plan.calm)
        for server in self.cluster.infrastructure.servers:
            if server.label in _STOPPED:
                await self._stop(server, say)
                await asyncio.sleep(self._plan.calm)
        say("b's services are killed and started again")
        await b.kill_services()
        await b.start_services()
        await b.wait_ready(self.cluster.http, say)
        await asyncio.sleep(self._plan.calm)

    async def _stop(self, server: EmbeddedServer, say: Callable[[str], None]) -> None:
        """Let a server hang for a while."""
        say(f"{server.label} stops")
        os.kill(server.pid, signal.SIGSTOP)
        try:
            await asyncio.sleep(self._plan.away)
        finally:
            os.kill(server.pid, signal.SIGCONT)
        say(f"{server.label} goes on")


@asynccontextmanager
async def open_scene(plan: ScenePlan, folder: Path, rules: tuple[Path, ...] = ()) -> AsyncIterator[Scene]:
    """Start Prometheus, servers and nodes."""
    async with (
        Prometheus(folder, scrape_seconds=plan.scrape, rules=rules) as prometheus,
        Cluster(plan.cluster, load_settings(), parent=folder) as cluster,
    ):
        yield Scene(cluster, prometheus, plan)


async def _replay(engine: EngineLink, delay_seconds: float, pace: float) -> None:
    await asyncio.sleep(delay_seconds)
    while True:
        for first in range(0, engine.requests, _WINDOW_REQUESTS):
            await engine.replay(first, _WINDOW_REQUESTS, pace=pace)
