"""A real remote-tier that serves no node, on a real object store and a real index."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import httpx
import pytest

from blockyard.cli.embedded.seaweedfs import SeaweedfsServer
from blockyard.cli.embedded.valkey import ValkeyServer
from blockyard.core.errors import UnsupportedOperationError
from blockyard.core.vocabulary import Availability
from blockyard.runtime.settings import NodeSettings
from blockyard.testing.blocks import chain
from blockyard.testing.remote_process import RemoteServers, RemoteTierProcess, empty_index, remote_settings

RUN = chain("prompt", 8)


@pytest.fixture
def folder() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="by-sa-"))
    yield path
    shutil.rmtree(path)


@pytest.fixture
def settings(folder: Path, valkey_server: ValkeyServer, seaweedfs_server: SeaweedfsServer) -> NodeSettings:
    empty_index(valkey_server.url)
    servers = RemoteServers(
        s3_url=seaweedfs_server.url,
        redis_url=valkey_server.url,
        access_key=seaweedfs_server.access_key,
        secret_key=seaweedfs_server.secret_key,
    )
    return remote_settings(folder / "node", servers, f"alone-{uuid4().hex[:8]}")


def alone(settings: NodeSettings, folder: Path) -> RemoteTierProcess:
    node = settings.node.model_copy(update={"folder": folder / "alone"})
    g4 = settings.g4.model_copy(update={"standalone": True})
    return RemoteTierProcess(settings.model_copy(update={"node": node, "g4": g4}))


async def test_a_lost_index_is_rebuilt_where_no_node_is_left(
    settings: NodeSettings, folder: Path, valkey_server: ValkeyServer
) -> None:
    node, standalone = RemoteTierProcess(settings), alone(settings, folder)
    try:
        node.start()
        await node.until_ready()
        assert (await node.bench.put(RUN)).all_ok
        node.channel.close()
        node.kill()
        empty_index(valkey_server.url)

        standalone.start()
        page = await standalone.until(lambda page: page.status_code == httpx.codes.OK)
        assert {check["name"]: check["ok"] for check in page.json()["checks"]} == {"redis": True, "s3": True}
        assert "blocks=8" in standalone.log

        # A node that comes later finds a complete index.
        standalone.kill()
        node.start()
        await node.until_ready()
        assert "index rebuilt" not in node.log.rpartition("starting")[2]
        assert (await node.bench.find(RUN)).availability == [Availability.G4] * 8
        assert (await node.bench.load(RUN, first_slot=10)).all_ok
    finally:
        node.close()
        standalone.close()


async def test_a_block_manager_is_refused_with_the_setting_named(settings: NodeSettings, folder: Path) -> None:
    standalone = alone(settings, folder)
    try:
        standalone.start()
        with pytest.raises(UnsupportedOperationError, match="serves no node") as raised:
            await standalone.bench.attach()
        assert raised.value.fields == {"key": "g4.standalone"}
        assert "g4.standalone" in standalone.log
    finally:
        standalone.close()
