"""What the user has set wins over the sizes of a run, and what a run chooses itself is said."""

import os
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from pydantic import BaseModel, ByteSize, SecretStr

from blockyard.cli.cluster import Cluster, ClusterPlan, ignored_settings
from blockyard.cli.failures import UnreachableServerError
from blockyard.core.errors import ConfigurationError, DiskFullError, ProcessEndedError
from blockyard.runtime.settings import (
    G2Section,
    G3Section,
    G4Section,
    HttpSection,
    JobSection,
    LogSection,
    NatsSection,
    NodeSection,
    NodeSettings,
    RedisSection,
    TracingSection,
)

PLAN = ClusterPlan(block_bytes=4_096, g2_blocks=4, g3_blocks=8, g4_bytes=1 << 20)
MakeCluster = Callable[[NodeSettings], Cluster]


def given(**sections: BaseModel) -> NodeSettings:
    """Settings of a user with servers of their own: no embedded one has to run."""
    servers = NodeSettings(
        nats=NatsSection(url=SecretStr("nats://127.0.0.1:1")),
        redis=RedisSection(url=SecretStr("redis://127.0.0.1:1")),
        g4=G4Section(endpoint_url="http://127.0.0.1:1"),
    )
    return servers.model_copy(update=dict(sections))


@pytest.fixture
async def make_cluster(tmp_path: Path) -> AsyncIterator[MakeCluster]:
    async with AsyncExitStack() as stack:

        def make(settings: NodeSettings) -> Cluster:
            cluster = Cluster(PLAN, settings, parent=tmp_path)
            stack.callback(cluster.folder.close)
            stack.push_async_callback(cluster.http.aclose)
            return cluster

        yield make


async def test_nodes_share_sizes_and_no_folder(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(given(g2=G2Section(capacity=ByteSize(1 << 20))))
    a, b = cluster.prepare("a").settings, cluster.prepare("b").settings
    assert a.g2.capacity == b.g2.capacity == 1 << 20
    assert a.g3.capacity == 8 * 4_096
    assert a.node.folder != b.node.folder
    assert cluster.prepare("a").slabs.is_relative_to(cluster.folder.path)


async def test_every_section_that_is_not_its_own_is_followed(make_cluster: MakeCluster) -> None:
    wanted = given(
        g2=G2Section(capacity=ByteSize(1 << 20)),
        g3=G3Section(capacity=ByteSize(1 << 20)),
        jobs=JobSection(max_items=7),
        log=LogSection(level="error"),
        tracing=TracingSection(endpoint_url="http://127.0.0.1:4318"),
    )
    node = make_cluster(wanted).prepare("a").settings
    followed = NodeSettings.model_fields.keys() - {"node", "http", "unsafe"}
    assert {name: getattr(node, name) for name in followed} == {name: getattr(wanted, name) for name in followed}


async def test_a_folder_for_slabs_is_shared_out_and_left_as_it_was(make_cluster: MakeCluster, tmp_path: Path) -> None:
    slabs = tmp_path / "fast" / "disk"
    cluster = make_cluster(given(g3=G3Section(folder=slabs)))
    found = [cluster.prepare(name).slabs for name in ("a", "b")]
    assert len(set(found)) == 2
    assert all(folder.is_relative_to(slabs) for folder in found)
    cluster.folder.close()
    assert os.listdir(slabs) == []


async def test_a_folder_for_slabs_that_cannot_be_is_named(make_cluster: MakeCluster, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match=r"g3\.folder"):
        make_cluster(given(g3=G3Section(folder=tmp_path / "file")))
    assert os.listdir(tmp_path) == ["file"]


async def test_a_disk_too_small_for_what_is_set_is_named(make_cluster: MakeCluster, tmp_path: Path) -> None:
    too_much = ByteSize(shutil.disk_usage(tmp_path).total)
    with pytest.raises(DiskFullError, match=r"TMPDIR.*needed_bytes="):
        make_cluster(given(g3=G3Section(capacity=too_much)))
    with pytest.raises(DiskFullError, match=r"BLOCKYARD_G3__FOLDER.*needed_bytes="):
        make_cluster(given(g3=G3Section(capacity=too_much, folder=tmp_path / "slabs")))
    (tmp_path / "slabs").rmdir()
    assert os.listdir(tmp_path) == []
    make_cluster(given(g3=G3Section(capacity=too_much, enabled=False)))


def test_settings_that_a_run_does_not_follow_are_listed() -> None:
    settings = given(node=NodeSection(name="mine"), http=HttpSection(host="0.0.0.0"))
    assert ignored_settings(settings) == ["http.host", "node.name"]
    assert ignored_settings(given()) == []


async def test_disk_that_fills_up_is_the_cause_of_whatever_fails(
    make_cluster: MakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = make_cluster(given())
    cluster.require_room()
    full = shutil.disk_usage("/")._replace(free=0)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: full)
    with pytest.raises(DiskFullError, match="TMPDIR"):
        cluster.require_room()
    with pytest.raises(DiskFullError, match="filled up during the run"):
        await cluster.__aexit__(ProcessEndedError, ProcessEndedError("a service ended"), None)


async def test_server_of_the_user_that_is_not_there_ends_the_start(make_cluster: MakeCluster) -> None:
    with pytest.raises(UnreachableServerError, match="BLOCKYARD_REDIS__URL"):
        await make_cluster(given()).__aenter__()
