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
    """Observe until cancelled.

    A loop that stands still is late for every timer that is due meanwhile. They all count: one observation for a
    stall of seconds would vanish among those of the quiet time around it.
    """
    due = clock.monotonic()
    while True:
        due += PERIOD_SECONDS
        await sleep(max(0.0, due - clock.monotonic()))
        now = clock.monotonic()
        lag.observe(max(0.0, now - due))
        while due + PERIOD_SECONDS <= now:
            due += PERIOD_SECONDS
            lag.observe(now - due)
