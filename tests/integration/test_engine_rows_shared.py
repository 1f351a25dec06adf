"""Rows of groups of three kinds over the shared store: what one node put there another one loads, group by group."""

from pathlib import Path

from redis.asyncio import Redis
from tests.integration.engine_kit import ALL, node_folder, published, settings
from tests.integration.test_engine_rows import FULL, LATENT, RUN, WINDOW, Ranked, ranked

from blockyard.cli.embedded.nats import NatsServer
from blockyard.core.vocabulary import Availability, ItemStatus, Tier
from blockyard.runtime.settings import NodeSettings
from blockyard.testing.running_node import RunningNode, eventually, running_node

__all__ = ["node_folder", "settings"]

GROUPS = (FULL, WINDOW, LATENT)
IN_STORE = ((Availability.G4,) * 2,) * 3
FROM_STORE = ([ItemStatus.OK] * 2, [Tier.G4] * 2)


def beside(settings: NodeSettings, name: str) -> NodeSettings:
    """Another node of the same store."""
    folder = Path(settings.node.folder).with_name(f"{settings.node.name}{name}")
    return settings.model_copy(
        update={"node": settings.node.model_copy(update={"name": folder.name, "folder": folder})}
    )


async def look_up(engine: Ranked) -> tuple[tuple[Availability, ...], ...]:
    return await engine.client.lookup(RUN, groups=GROUPS, remote_wait_seconds=1.0)


async def forget(node: RunningNode) -> None:
    """Empty the tiers of a node."""
    for tier in ("g2", "g3"):
        assert (await node.post(f"/v1/tiers/{tier}:clear")).json()["done"]


async def check_loads(engine: Ranked) -> None:
    """All rows of all groups from the store, into pages of which each has the bytes of its own group."""
    for group, names, pages in ((FULL, (1, 2), 20), (WINDOW, (3, 4), 30), (LATENT, (5, 6), 40)):
        numbers = range(pages, pages + (4 if group == WINDOW else 8))
        assert await engine.load(group, *numbers) == FROM_STORE
        assert engine.wrong(group, names, *numbers) == 0


async def test_rows_of_every_group_are_loaded_by_another_node(settings: NodeSettings, nats_server: NatsServer) -> None:
    async with running_node(settings, *ALL) as node, running_node(beside(settings, "b"), *ALL) as other:
        await node.ready()
        await other.ready()
        async with ranked(node) as writer, ranked(other) as reader:
            await writer.compute(FULL, (1, 2), *range(8))
            await writer.compute(WINDOW, (3, 4), *range(8, 12))
            await writer.compute(LATENT, (5, 6), *range(12, 20))
            await node.holds("g4", 6)
            held = (await published(node, nats_server.url)).held
            assert {(item.group, item.key) for item in held if item.tier is Tier.G4} == {
                (group, key) for group in GROUPS for key in RUN.keys()
            }
            assert await look_up(reader) == IN_STORE
            await check_loads(reader)
            await other.holds("g4", 6)


async def test_a_lost_index_is_rebuilt_with_the_rows_of_every_group(settings: NodeSettings) -> None:
    async with running_node(settings, *ALL) as node:
        await node.ready()
        async with ranked(node) as engine:
            await engine.compute(FULL, (1, 2), *range(8))
            await engine.compute(WINDOW, (3, 4), *range(8, 12))
            await engine.compute(LATENT, (5, 6), *range(12, 20))
            await node.holds("g4", 6)
            await forget(node)
            async with Redis.from_url(settings.redis.url.get_secret_value()) as redis:
                await redis.flushdb()

            async def rebuilt() -> bool:
                return await look_up(engine) == IN_STORE

            await eventually(rebuilt, "the index names the rows of all groups again")
            await check_loads(engine)
