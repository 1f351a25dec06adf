"""How late the event loop comes to its timers: what every request waits for beside its own work.

Threading: one event loop; one task.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from prometheus_client import Histogram

from blockyard.core.clock import Clock

PERIOD_SECONDS: Final = 0.25


async def measure_loop_lag(
    lag: Histogram, clock: Clock, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
) -> None:
    """Observe until cancelled."""
    while True:
        due = clock.monotonic() + PERIOD_SECONDS
        await sleep(PERIOD_SECONDS)
        lag.observe(max(0.0, clock.monotonic() - due))
