"""What others see of a node on a real NATS: a name with dots, and an address that they can reach."""

from pathlib import Path

from tests.integration.engine_kit import BM, OW, engine, local_settings, node_folder, published, run_of

from blockyard.cli.embedded.nats import NatsServer
from blockyard.runtime.settings import HttpSection, NodeSettings
from blockyard.testing.running_node import running_node

__all__ = ["node_folder"]
NAME = "ip-10-0-0-1.eu-west-1.compute.internal"


def named(settings: NodeSettings, name: str) -> NodeSettings:
    http = HttpSection(advertised_host="10.0.0.1")
    return settings.model_copy(update={"node": settings.node.model_copy(update={"name": name}), "http": http})


async def test_a_node_may_be_called_like_its_machine(node_folder: Path, nats_server: NatsServer) -> None:
    settings = named(local_settings(node_folder, nats_server.url), NAME)
    # The name that would be the same if dots were dropped instead of encoded.
    twin = named(local_settings(node_folder / "twin", nats_server.url), NAME.replace(".", "-"))
    async with running_node(settings, OW, BM) as node, running_node(twin, OW, BM) as other:
        await node.ready()
        await other.ready()
        async with engine(node, "one") as one:
            await one.compute(run_of(4))
            await node.holds("g3", 4)
        fold = await published(node, nats_server.url)
        assert fold.cursor > 0
        port = (node.folder.service(BM).read_http() or "").rsplit(":", 1)[1]
        listed = {entry["instance"]: entry for entry in (await node.get("/v1/nodes"))["nodes"]}
        assert {NAME, NAME.replace(".", "-")} <= set(listed)
        assert listed[NAME]["api_url"] == f"http://10.0.0.1:{port}"
