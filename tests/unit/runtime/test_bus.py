"""The connection to NATS without a server: what its client library does at a bad moment."""

import asyncio
from typing import Any

import pytest

from blockyard.runtime import bus as bus_module
from blockyard.runtime.bus import Bus
from blockyard.runtime.settings import NatsSection

WAIT_SECONDS = 5.0


class DeafClient:
    """Loses the first cancellation of its connect, as ``asyncio.wait_for`` does when it has an answer by then."""

    connecting: asyncio.Event
    connects: bool

    async def connect(self, **_: Any) -> None:
        self.connecting.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if self.connects:
                return
        await asyncio.Event().wait()

    def jetstream(self, **_: Any) -> None:
        return None

    async def close(self) -> None:
        return None


@pytest.mark.parametrize("connects", [False, True], ids=["goes on trying", "has connected"])
async def test_a_stop_that_the_client_library_loses_ends_the_bus_all_the_same(
    connects: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bus_module, "StrictClient", DeafClient)
    monkeypatch.setattr(bus_module, "RECONNECT_SECONDS", 0.01)
    DeafClient.connecting, DeafClient.connects = asyncio.Event(), connects
    async with asyncio.timeout(WAIT_SECONDS):
        async with Bus(NatsSection(), "test"):
            await DeafClient.connecting.wait()
