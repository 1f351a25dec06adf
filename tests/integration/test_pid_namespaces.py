"""The services of a node in process namespaces of their own, as in three containers on one folder: each has number 1.

None of them sees the others' processes, so whatever is proven by locks and sockets must hold without process ids.
"""

import pytest
from tests.integration.engine_kit import ALL, BM, OW, RT, Engine, engine, node_folder, run_of, settings
from tests.integration.process_namespace import wrapper

from blockyard.core.chain_run import ChainRun
from blockyard.core.errors import ServerStartError
from blockyard.core.vocabulary import ItemStatus, Tier
from blockyard.runtime.node_folder import ServiceName
from blockyard.runtime.process_life import holder_of
from blockyard.runtime.settings import NodeSettings
from blockyard.testing.running_node import RunningNode, eventually, running_node
from blockyard.testing.service_process import ServiceProcess

__all__ = ["node_folder", "settings", "wrapper"]


async def gone(node: RunningNode, service: ServiceName) -> None:
    """Wait until nobody holds the lock of a killed service."""

    async def free() -> bool:
        return holder_of(node.folder.service(service)) is None

    await eventually(free, f"the lock of {service} is free")


async def loads(reader: Engine, run: ChainRun, tier: Tier) -> None:
    assert await reader.load(run) == ([ItemStatus.OK] * len(run), [tier] * len(run))


async def test_services_that_cannot_see_each_other_serve_and_take_over(
    wrapper: tuple[str, ...], settings: NodeSettings
) -> None:
    async with running_node(settings, *ALL, wrapper=wrapper) as node:
        await node.ready()
        holders = [holder_of(node.folder.service(service)) for service in ALL]
        assert [holder.pid if holder else None for holder in holders] == [1, 1, 1]
        run = run_of(8)
        async with engine(node, "one") as one, engine(node, "two") as two:
            await one.compute(run)
            for tier in ("g2", "g3", "g4"):
                await node.holds(tier, 8)
            await loads(two, run, Tier.G2)

            # The arena and the slab outlive their worker, and the next one takes both over.
            node.kill(OW)
            node.start(OW)
            await node.ready()
            await node.holds("g2", 8)
            await loads(two, run, Tier.G2)

            # The manager finds its workers again, and both know it for a later life.
            node.kill(BM)
            node.start(BM)
            await node.ready()
            await two.client.wait_connected(10.0)
            await loads(two, run, Tier.G2)

            node.kill(RT)
            node.start(RT)
            await node.ready()
            for tier in ("g2", "g3"):
                assert (await node.post(f"/v1/tiers/{tier}:clear")).json()["done"]
            await two.client.lookup(run, remote_wait_seconds=1.0)
            await loads(two, run, Tier.G4)


async def test_a_remote_tier_that_has_ended_is_known_to_have_ended(
    wrapper: tuple[str, ...], settings: NodeSettings
) -> None:
    """A manager that starts without it stores nothing before it knows that no remote-tier can still write the arena."""
    async with running_node(settings, OW, RT, wrapper=wrapper) as node:

        async def holds() -> bool:
            return holder_of(node.folder.service(RT)) is not None

        await eventually(holds, "the remote-tier runs")
        with node.hanging(RT):
            node.start(BM)

            async def listed() -> bool:
                page = await node.get("/readyz")
                return page is not None and {"name": "local-tiers", "ok": True, "detail": ""} in page["checks"]

            await eventually(listed, "the manager has its local tiers")
            async with engine(node, "one") as one:
                await one.compute(run_of(4))

                async def stored() -> bool:
                    return await node.registered("g2") > 0

                # Several looks at the lock, which all find its holder.
                with pytest.raises(ServerStartError, match="stored"):
                    await eventually(stored, "stored", seconds=1.0)
                node.kill(RT)
                await gone(node, RT)
                await node.holds("g2", 4)


@pytest.mark.parametrize("service", ALL)
async def test_a_second_service_on_the_folder_is_refused(
    wrapper: tuple[str, ...], settings: NodeSettings, service: ServiceName
) -> None:
    async with running_node(settings, service, wrapper=wrapper) as node:

        async def holds() -> bool:
            return holder_of(node.folder.service(service)) is not None

        await eventually(holds, "the service runs")
        second = ServiceProcess(service, settings)
        second.start()
        assert await second.child.wait_async(20.0)
        assert second.child.exit_code == 2
        assert f"{service} is running on this state folder (pid=1, host=" in second.child.log_tail()
