"""``blockyard up``: two nodes that replay the trace until they are stopped.

B follows A through the trace, so that it asks for blocks that A computed a moment ago.
Threading: one event loop, in the main thread.
"""

import asyncio
from typing import Final

from blockyard.cli.cluster import Cluster, ClusterPlan, ignored_settings
from blockyard.cli.display import Display
from blockyard.cli.engine_link import EngineLink
from blockyard.cli.together import together
from blockyard.cli.watch import Watch
from blockyard.runtime.settings import NodeSettings

_WINDOW_REQUESTS: Final = 20
_PACE: Final = 8.0
_FOLLOW_SECONDS: Final = 10.0


async def run_up(given: NodeSettings, display: Display, *, keep: bool) -> None:
    """Start everything, replay and show until cancelled or until something breaks.

    Raises:
        ServerStartError: something did not start.
        ProcessEndedError: a process ended by itself.
    """
    say_start(given, display)
    async with Cluster(ClusterPlan(), given, keep=keep, say=display.say) as cluster:
        display.say(f"ready; {cluster.place}; Ctrl-C ends everything")
        display.say(f"KV events on NATS: {cluster.infrastructure.nats_place}")
        for node in cluster.nodes:
            display.say(f"engines of node {node.name} connect to {node.engine_socket}")
        engines = [node.engine for node in cluster.nodes if node.engine is not None]
        await together(
            Watch(cluster, display).run(),
            *(_replay_for_ever(engine, index * _FOLLOW_SECONDS) for index, engine in enumerate(engines)),
        )


def say_start(given: NodeSettings, display: Display) -> None:
    """What begins now, and which settings it does not follow."""
    if ignored := ignored_settings(given):
        display.say(f"not used here, chosen by the run itself: {', '.join(ignored)}")
    display.say("starting NATS, Valkey, SeaweedFS and nodes a and b ...")


async def _replay_for_ever(engine: EngineLink, delay_seconds: float) -> None:
    await asyncio.sleep(delay_seconds)
    while True:
        for first in range(0, engine.requests, _WINDOW_REQUESTS):
            await engine.replay(first, _WINDOW_REQUESTS, pace=_PACE)
