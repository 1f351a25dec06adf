"""Hints over REST: blocks leave the tiers of the node in another order."""

from collections.abc import AsyncIterator

import httpx
import pytest
from tests.unit.block_manager.world import MakeWorld, World

from blockyard.core.vocabulary import Tier
from blockyard.testing.blocks import chain
from blockyard.wire.events import InstanceRecord
from blockyard_block_manager.api.application import make_application
from blockyard_block_manager.api.ports import ApiPorts
from blockyard_block_manager.remote_index import RemoteIndex

OLD, NEW = chain("old", 2), chain("new", 2)


def digests(*runs: object) -> list[str]:
    return [run.digest(index).hex() for run in (OLD, NEW) if run in runs for index in range(2)]


async def nobody() -> tuple[InstanceRecord, ...]:
    return ()


@pytest.fixture
def world(make_world: MakeWorld) -> World:
    """A node whose tiers hold an older and a newer chain."""
    world: World = make_world().ready()
    engine = world.connect("one")
    for run in (OLD, NEW):
        engine.compute(run)
        world.settle()
    return world


@pytest.fixture
async def http(world: World) -> AsyncIterator[httpx.AsyncClient]:
    index = RemoteIndex(world.clock)
    application = make_application(ApiPorts(core=world.core, index=index, list_instances=nobody))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=application), base_url="http://node") as client:
        yield client
    await index.close()


def next_out(world: World, tier: Tier) -> list[bytes]:
    return [block.key for block in world.core.tables.next_victims(tier, 4)]


async def test_kept_blocks_leave_both_tiers_last(http: httpx.AsyncClient, world: World) -> None:
    body = {"digests": digests(OLD), "priority": 50}
    assert (await http.post("/v1/blocks:keep", json=body)).json() == {"g2": 2, "g3": 2}
    for tier in (Tier.G2, Tier.G3):
        assert next_out(world, tier) == [*NEW.keys()[::-1], *OLD.keys()[::-1]]


async def test_when_their_time_is_over_they_leave_first(http: httpx.AsyncClient, world: World) -> None:
    body = {"digests": digests(NEW), "priority": 50, "ttl_seconds": 60}
    assert (await http.post("/v1/blocks:keep", json=body)).status_code == 200
    assert next_out(world, Tier.G2)[:2] == OLD.keys()[::-1]
    world.clock.advance(60)
    assert next_out(world, Tier.G2)[:2] == NEW.keys()[::-1]


async def test_expendable_blocks_leave_both_tiers_first(http: httpx.AsyncClient, world: World) -> None:
    answer = await http.post("/v1/blocks:expend", json={"digests": [*digests(NEW), "0" * 64]})
    assert (answer.status_code, answer.json()) == (200, {"g2": 2, "g3": 2})
    for tier in (Tier.G2, Tier.G3):
        assert next_out(world, tier) == [*NEW.keys()[::-1], *OLD.keys()[::-1]]


async def test_a_node_without_tables_hints_nothing(make_world: MakeWorld) -> None:
    world = make_world()
    application = make_application(ApiPorts(core=world.core, index=RemoteIndex(world.clock), list_instances=nobody))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=application), base_url="http://node") as client:
        answer = await client.post("/v1/blocks:expend", json={"digests": digests(OLD)})
    assert answer.json() == {"g2": 0, "g3": 0}


@pytest.mark.parametrize(
    "change", [{"priority": 0}, {"priority": 101}, {"priority": "5"}, {"ttl_seconds": 0}, {"digests": ["ab"]}, {"x": 1}]
)
async def test_a_hint_that_does_not_fit_is_refused(http: httpx.AsyncClient, change: dict[str, object]) -> None:
    body = {"digests": digests(OLD), "priority": 5, **change}
    assert (await http.post("/v1/blocks:keep", json=body)).status_code == 422
