"""``blockyard demo`` on this machine: the proof run on two nodes of processes and servers of its own.

Threading: one event loop, in the main thread.
"""

from dataclasses import replace

from blockyard.cli.cluster import Cluster
from blockyard.cli.demo_plan import DemoPlan
from blockyard.cli.demo_report import DemoReport
from blockyard.cli.display import Display
from blockyard.cli.proof_run import run_demo
from blockyard.cli.up import say_start
from blockyard.cli.venue import VenueKind
from blockyard.runtime.settings import NodeSettings


async def run_local_demo(
    plan: DemoPlan,
    given: NodeSettings,
    display: Display,
    *,
    limit_seconds: float,
    keep: bool,
    skip_verification: bool,
) -> DemoReport:
    """Start everything, run the phases, take everything down.

    Raises:
        ConfigurationError: nothing was started, because a setting is wrong.
    """

    def open_cluster() -> Cluster:
        say_start(given, display)
        sizes = replace(plan.cluster, skip_verification=skip_verification)
        return Cluster(sizes, given, keep=keep, say=display.say)

    return await run_demo(plan, VenueKind.LOCAL, open_cluster, display, limit_seconds=limit_seconds)
