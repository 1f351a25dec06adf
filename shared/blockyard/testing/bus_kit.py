"""Waiting for the bus and for what a real server holds.

Threading: one event loop.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final, TypeVar

from blockyard.runtime.bus import Bus
from blockyard.runtime.bus_values import BusState
from blockyard.runtime.settings import NatsSection

WAIT_SECONDS: Final = 10.0
_POLL_SECONDS: Final = 0.02
Value = TypeVar("Value")


@contextlib.asynccontextmanager
async def connected_bus(section: NatsSection) -> AsyncIterator[Bus]:
    """A bus that is connected when the body starts."""
    async with Bus(section, "test") as bus:
        await becomes(bus, BusState.CONNECTED)
        yield bus


async def becomes(bus: Bus, state: BusState) -> None:
    """Wait until the bus is in this state."""
    changed = asyncio.Event()
    bus.listen(lambda _: changed.set())
    async with asyncio.timeout(WAIT_SECONDS):
        while bus.state is not state:
            changed.clear()
            await changed.wait()


async def read_until(read: Callable[[], Awaitable[Value]], holds: Callable[[Value], bool]) -> Value:
    """Ask the server again and again until its answer holds; time passes there, not here."""
    async with asyncio.timeout(WAIT_SECONDS):
        while not holds(value := await read()):
            await asyncio.sleep(_POLL_SECONDS)
    return value
