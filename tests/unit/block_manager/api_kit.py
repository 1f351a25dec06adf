"""The API of a node in one thread, asked over ASGI: its client, and what problems look like."""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

import httpx
import pytest
from tests.unit.block_manager.world import MODEL, MakeWorld, World

from blockyard.core.errors import (
    UnavailableError,
)
from blockyard.core.vocabulary import Availability
from blockyard.runtime.current_trace import current_trace
from blockyard.testing.blocks import chain
from blockyard.wire.events import InstanceRecord
from blockyard.wire.trace_parent import TraceParent
from blockyard.wire.worker_channel import Find, Found
from blockyard_block_manager.api.application import make_application
from blockyard_block_manager.api.ports import ApiPorts
from blockyard_block_manager.remote_index import RemoteIndex

RUN = chain("a", 4)
IDENTITY = MODEL.digest().hex()
DIGESTS = [RUN.digest(index).hex() for index in range(4)]


@dataclass
class Link:
    """A link to a remote tier that says G4 for everything."""

    answering: bool = True
    asked: list[Find] = field(default_factory=list)
    works: list[TraceParent] = field(default_factory=list)
    """For which traces it was asked."""

    async def find(self, request: Find, timeout_seconds: float, trace: TraceParent) -> Found:
        self.asked.append(request)
        self.works.append(current_trace())
        count = len(request.keys) // 16
        locator = bytes(16) + bytes([0, 1, 0, 0]) + (4_352).to_bytes(4, "little") + bytes(8)
        return Found(availability=bytes([Availability.G4]) * count, locators=locator * count)


@dataclass
class Api:
    world: World
    http: httpx.AsyncClient
    index: RemoteIndex

    async def problem(self, answer: Awaitable[httpx.Response], status: int, code: str) -> dict[str, object]:
        response = await answer
        assert response.status_code == status, response.text
        assert response.headers["content-type"] == "application/problem+json"
        body: dict[str, object] = response.json()
        assert body["type"] == f"urn:blockyard:problem:{code}"
        assert body["status"] == status
        assert body["title"]
        return body


Instances = Callable[[], Awaitable[tuple[InstanceRecord, ...]]]


async def nobody() -> tuple[InstanceRecord, ...]:
    raise UnavailableError("NATS is away")


@pytest.fixture
async def api(make_world: MakeWorld) -> AsyncIterator[Api]:
    world: World = make_world(g4=True).ready()
    world.connect("one").compute(RUN)
    world.settle()
    index = RemoteIndex(world.clock)
    async with client(world, index, nobody) as http:
        yield Api(world, http, index)
    await index.close()


def client(world: World, index: RemoteIndex, instances: Instances) -> httpx.AsyncClient:
    application = make_application(ApiPorts(core=world.core, index=index, list_instances=instances))
    return httpx.AsyncClient(transport=httpx.ASGITransport(app=application), base_url="http://node")
