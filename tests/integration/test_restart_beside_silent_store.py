"""The block-manager is killed while its remote-tier hangs on a silent store: the next life grants and loads at once."""

from tests.integration.engine_kit import ALL, BM, RT, engine, node_folder, run_of, settings

from blockyard.cli.embedded.seaweedfs import SeaweedfsServer
from blockyard.core.vocabulary import ItemStatus
from blockyard.runtime.settings import NodeSettings
from blockyard.testing.frozen import frozen
from blockyard.testing.running_node import RunningNode, eventually, running_node

__all__ = ["node_folder", "settings"]

BEFORE, MEANWHILE = run_of(8), run_of(8, first=100_000)


async def _puts_under_way(node: RunningNode) -> bool:
    url = node.folder.service(BM).read_http()
    lines = (await node.http.get(f"{url}/metrics")).text.splitlines()
    return any(
        line.startswith("blockyard_jobs_unsettled{") and RT in line and float(line.split()[-1]) > 0 for line in lines
    )


async def test_a_put_that_hangs_holds_up_no_load_of_the_next_life(
    settings: NodeSettings, seaweedfs_server: SeaweedfsServer
) -> None:
    async with running_node(settings, *ALL) as node:
        await node.ready()
        async with engine(node, "one") as one, engine(node, "two") as two:
            await one.compute(BEFORE)
            await node.holds("g4", 8)
            assert (await node.post("/v1/tiers/g2:clear")).json()["done"]
            with frozen(seaweedfs_server.pid):
                await one.compute(MEANWHILE, first_block=16)
                await eventually(lambda: _puts_under_way(node), "a put hangs on the store")
                node.kill(BM)
                node.start(BM)
                await node.ready("s3", "redis")
                await two.client.wait_connected(10.0)
                # From G3, or from G2 where the first engine has offered them again: either needs slots.
                statuses, _ = await two.load(BEFORE, first_block=32)
                assert statuses == [ItemStatus.OK] * 8
