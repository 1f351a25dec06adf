"""NATS, Redis or the object store stop under a working node: local tiers go on, /readyz names it, all comes back."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Iterator
from dataclasses import dataclass
from enum import Enum

import pytest
from tests.integration.engine_kit import (
    ALL,
    BM,
    RT,
    Engine,
    engine,
    node_folder,
    published,
    run_of,
    settings,
)

from blockyard.cli.embedded.nats import NatsServer
from blockyard.cli.embedded.seaweedfs import SeaweedfsServer
from blockyard.cli.embedded.server import EmbeddedServer
from blockyard.cli.embedded.valkey import ValkeyServer
from blockyard.core.chain_run import ChainRun
from blockyard.core.vocabulary import Availability, ItemStatus, Tier
from blockyard.runtime.node_folder import ServiceName
from blockyard.runtime.settings import NodeSettings
from blockyard.testing.frozen import frozen
from blockyard.testing.running_node import RunningNode, eventually, running_node

__all__ = ["node_folder", "settings"]

LOCAL_SECONDS = 1.0
"""For a busy machine: a local call that waited for one of the servers would take longer than this."""
BEFORE, MEANWHILE = run_of(8), run_of(4, first=100_000)


class Loss(Enum):
    KILLED = "killed"
    FROZEN = "frozen"


@dataclass(frozen=True)
class Dependency:
    """A server, and where /readyz names it."""

    fixture: str
    service: ServiceName
    check: str
    others: tuple[str, ...]


NATS = Dependency("nats_server", BM, "nats", ("local-tiers", "remote-tier"))
REDIS = Dependency("valkey_server", RT, "redis", ("s3", "attached"))
S3 = Dependency("seaweedfs_server", RT, "s3", ("redis", "attached"))


@contextlib.contextmanager
def lost(server: EmbeddedServer, how: Loss) -> Iterator[None]:
    """Without the server; it is back at the end."""
    if how is Loss.FROZEN:
        with frozen(server.pid):
            yield
        return
    server.kill()
    try:
        yield
    finally:
        server.start()


async def checks(node: RunningNode, service: ServiceName) -> dict[str, tuple[bool, str]]:
    page = await node.get("/readyz", service)
    return {} if page is None else {check["name"]: (check["ok"], check["detail"]) for check in page["checks"]}


async def named(node: RunningNode, dependency: Dependency) -> None:
    """Wait until /readyz says that the server is missing; nothing else of the list may be blamed."""

    async def missing() -> bool:
        return (await checks(node, dependency.service)).get(dependency.check, (True, ""))[0] is False

    await eventually(missing, f"/readyz names {dependency.check}")
    page = await checks(node, dependency.service)
    assert page[dependency.check][1] != "", "the check says what is missing"
    assert {name: page[name][0] for name in dependency.others} == dict.fromkeys(dependency.others, True)
    assert (await node.get("/livez", dependency.service))["live"]


async def in_time(work: Awaitable[object]) -> object:
    began = time.monotonic()
    result = await work
    assert time.monotonic() - began < LOCAL_SECONDS
    return result


async def all_from(engine: Engine, run: ChainRun, tier: Tier) -> None:
    loaded = await in_time(engine.load(run, first_block=32))
    assert loaded == ([ItemStatus.OK] * len(run), [tier] * len(run))


async def local_tiers_work(node: RunningNode, one: Engine, two: Engine) -> None:
    """Store, look up and load what was there before and what is new, from G2 and from G3."""
    await in_time(one.compute(MEANWHILE, first_block=16))
    await node.holds("g3", 12)
    assert await in_time(two.lookup(BEFORE)) == (Availability.G2,) * 8
    await all_from(two, BEFORE, Tier.G2)
    await all_from(two, MEANWHILE, Tier.G2)
    # Puts into a store that does not answer hold their blocks for a while: these are gone at once, and freed later.
    assert (await node.post("/v1/tiers/g2:clear?wait_seconds=0")).is_success
    await all_from(two, MEANWHILE, Tier.G3)
    await all_from(two, BEFORE, Tier.G3)


async def until_found_in_store(two: Engine, run: ChainRun) -> None:
    async def found() -> bool:
        return await two.lookup(run, remote_wait_seconds=1.0) == (Availability.G4,) * len(run)

    await eventually(found, "the shared store has the blocks")


@pytest.mark.parametrize("how", list(Loss), ids=lambda how: how.value)
@pytest.mark.parametrize("dependency", [NATS, REDIS, S3], ids=lambda dependency: dependency.check)
async def test_local_tiers_go_on_without_a_server_and_everything_comes_back(
    settings: NodeSettings,
    nats_server: NatsServer,
    valkey_server: ValkeyServer,
    seaweedfs_server: SeaweedfsServer,
    dependency: Dependency,
    how: Loss,
) -> None:
    servers = {"nats_server": nats_server, "valkey_server": valkey_server, "seaweedfs_server": seaweedfs_server}
    async with running_node(settings, *ALL) as node:
        await node.ready()
        async with engine(node, "one") as one, engine(node, "two") as two:
            await one.compute(BEFORE)
            await node.holds("g4", 8)
            with lost(servers[dependency.fixture], how):
                # At once, before anybody has noticed, and again when everybody knows.
                await local_tiers_work(node, one, two)
                await named(node, dependency)
                await all_from(two, BEFORE, Tier.G2)
            await node.ready()
            await node.holds("g4", 12)
            for tier in (Tier.G2, Tier.G3):
                assert (await node.post(f"/v1/tiers/{tier.label}:clear")).json()["done"]
            await until_found_in_store(two, BEFORE)
            await until_found_in_store(two, MEANWHILE)
            for run in (BEFORE, MEANWHILE):
                assert await two.load(run, 32) == ([ItemStatus.OK] * len(run), [Tier.G4] * len(run))
            await asyncio.gather(node.holds("g2", 12), node.holds("g3", 12))
            fold = await published(node, nats_server.url)
            assert fold.gaps == 0
            for tier in Tier:
                held = sum(item.tier is tier for item in fold.held)
                assert held == await node.registered(tier.label), tier
