"""A NATS server that a test may stop and kill, and a connection to it."""

import itertools
from collections.abc import AsyncIterator, Iterator

import pytest
from pydantic import SecretStr

from blockyard.cli.embedded.nats import NatsServer
from blockyard.cli.run_folder import RunFolder
from blockyard.runtime.bus import Bus
from blockyard.runtime.settings import NatsSection
from blockyard.testing.bus_kit import connected_bus

_numbers = itertools.count()


@pytest.fixture
def server(run_folder: RunFolder) -> Iterator[NatsServer]:
    """A server of this test's own, empty, that it may stop and kill."""
    server = NatsServer(run_folder, name=f"bus-{next(_numbers)}")
    server.start()
    yield server
    server.kill()


@pytest.fixture
def section(server: NatsServer) -> NatsSection:
    """Settings with short times."""
    return NatsSection(url=SecretStr(server.url), timeout_seconds=1.0, lease_ttl_seconds=1.0, lease_tick_seconds=0.2)


@pytest.fixture
async def bus(section: NatsSection) -> AsyncIterator[Bus]:
    """A bus that is connected."""
    async with connected_bus(section) as bus:
        yield bus
