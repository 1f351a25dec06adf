"""``blockyard demo --compose``: the proof run on a stack that is up already.

Threading: one event loop, in the main thread.
"""

from typing import Final

from blockyard.cli.compose.command import ComposeCommand
from blockyard.cli.compose.stack import ComposeStack
from blockyard.cli.demo_plan import DemoPlan
from blockyard.cli.demo_report import DemoReport
from blockyard.cli.display import Display
from blockyard.cli.proof_run import run_demo
from blockyard.cli.venue import VenueKind

PROFILE: Final = "demo"
"""Where node B and the engines are."""


async def run_compose_demo(
    plan: DemoPlan, command: ComposeCommand, display: Display, *, limit_seconds: float
) -> DemoReport:
    """Look at the stack, run the phases, leave the stack as it then is.

    Raises:
        ConfigurationError: nothing was done, because the compose files or the options do not fit.
    """

    def open_stack() -> ComposeStack:
        display.say(f"looking at the stack: {command.line('ps')}")
        return ComposeStack(command, plan, display.say)

    return await run_demo(plan, VenueKind.COMPOSE, open_stack, display, limit_seconds=limit_seconds)
