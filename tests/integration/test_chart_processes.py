"""What the chart renders really runs: each container with its own command, variables and files, until its probes hold.

The servers are the embedded ones. Folders of the pod become folders of the test; everything else is as rendered.
"""

import asyncio
import shutil
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
from tests.charts.chart_kit import SERVICES, Rendered, Values, merged, render
from tests.charts.container_process import Machine, container_process
from tests.integration.chart_containers import START_SECONDS, RunningContainer

from blockyard.cli.embedded.nats import NatsServer
from blockyard.cli.embedded.ports import free_ports
from blockyard.cli.embedded.seaweedfs import SeaweedfsServer
from blockyard.cli.embedded.valkey import ValkeyServer
from blockyard.testing.remote_process import empty_index
from blockyard.testing.running_node import eventually

pytestmark = pytest.mark.timeout(180)
PROBES = ("startupProbe", "readinessProbe", "livenessProbe")
FIELDS = {"spec.nodeName": "worker-1.example.com", "metadata.name": "demo-node-0", "status.podIP": "127.0.0.1"}
SIDECAR: Values = {"node": {"kind": "Sidecar"}}
STANDALONE: Values = {"node": {"enabled": False}, "standalone": {"enabled": True}}


class Cluster:
    """The chart on this machine."""

    def __init__(self, nats: NatsServer, valkey: ValkeyServer, s3: SeaweedfsServer, folder: Path) -> None:
        self._s3 = s3
        self.folder = folder
        self._secrets = {
            ("nats", "url"): nats.url,
            ("redis", "url"): valkey.url,
            ("s3", "access-key"): s3.access_key,
            ("s3", "secret-key"): s3.secret_key,
        }
        # It may describe the bucket of another test.
        empty_index(valkey.url)

    def render(self, *layers: Values) -> Rendered:
        """Small tiers, addresses in secrets, and ports that nobody has."""
        manager, worker, remote = free_ports(3)
        base: Values = {
            "bindHost": "127.0.0.1",
            "ports": {"blockManager": manager, "offloadWorker": worker, "remoteTier": remote},
            "settings": {
                "node": {"namespace": "chart"},
                "g2": {"capacity": "32MiB"},
                "g3": {"capacity": "64MiB"},
                "g4": {"bucket": "chart"},
            },
            "nats": {"external": {"existingSecret": {"name": "nats"}}},
            "redis": {"external": {"existingSecret": {"name": "redis"}}},
            "s3": {"external": {"endpointUrl": self._s3.url}, "existingSecret": {"name": "s3"}},
        }
        return render(merged(base, *layers))

    @asynccontextmanager
    async def running(
        self, rendered: Rendered, component: str, names: Sequence[str]
    ) -> AsyncIterator[dict[str, RunningContainer]]:
        """Containers of a pod, started together as the kubelet does."""
        machine = Machine(fields=FIELDS, secrets=self._secrets, root=self.folder)
        running: dict[str, RunningContainer] = {}
        async with httpx.AsyncClient(timeout=5.0, trust_env=False) as http:
            try:
                for name in names:
                    image = "demo-engine" if name == "engine" else name
                    process = container_process(rendered, rendered.pod(component), name, machine, image=image)
                    running[name] = RunningContainer(name, process, self.folder, http)
                yield running
            finally:
                for container in running.values():
                    container.child.kill()


@pytest.fixture
def cluster(
    nats_server: NatsServer, valkey_server: ValkeyServer, seaweedfs_server: SeaweedfsServer, tmp_path: Path
) -> Cluster:
    return Cluster(nats_server, valkey_server, seaweedfs_server, tmp_path)


async def hold(containers: dict[str, RunningContainer]) -> None:
    """Every probe of every container."""
    ours = [item for item in containers.values() if item.process.probes]
    assert all(set(item.process.probes) == set(PROBES) for item in ours)
    await asyncio.gather(*(item.succeeds(probe) for item in ours for probe in PROBES))


async def told_by_the_test(rendered: Rendered, port: str) -> tuple[int | None, str]:
    """What the pod of ``helm test`` says of this node: exit code and output."""
    (pod,) = rendered.of_kind("Pod")
    _, flag, program, _, asked, _ = pod["spec"]["containers"][0]["command"]
    assert asked == port
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, flag, program, FIELDS["status.podIP"], port, "0"), stdout=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(30):
        output, _ = await process.communicate()
    return process.returncode, output.decode()


async def test_a_node_of_the_daemon_set_becomes_whole(cluster: Cluster) -> None:
    rendered = cluster.render()
    async with cluster.running(rendered, "node", SERVICES) as containers:
        await hold(containers)
        manager = containers["block-manager"]
        port = manager.process.probes["readinessProbe"].partition("/")[0]
        page = (await manager.http.get(f"http://127.0.0.1:{port}/v1/nodes")).json()
        # The name of the machine, and the address under which the pod is reached.
        found = [item for item in page["nodes"] if item["instance"] == FIELDS["spec.nodeName"]]
        assert [item["api_url"] for item in found] == [f"http://{FIELDS['status.podIP']}:{port}"]
        assert await told_by_the_test(rendered, port) == (0, f"{FIELDS['status.podIP']}\n  ready\n")
        containers["offload-worker"].child.kill()
        code, said = await told_by_the_test(rendered, port)
        assert code == 1
        assert "local-tiers: the offload-worker is away" in said
        # State, sockets and slab lie where the volumes are.
        assert (cluster.folder / "state" / "block-manager" / "channel.sock").is_socket()
        assert list((cluster.folder / "g3").iterdir())


async def holds(manager: RunningContainer, tier: str) -> bool:
    """Whether a node has blocks in this tier."""
    port = manager.process.probes["readinessProbe"].partition("/")[0]
    tiers = (await manager.http.get(f"http://127.0.0.1:{port}/v1/tiers")).json()["tiers"]
    return any(found["tier"] == tier and found["registered_blocks"] > 0 for found in tiers)


async def test_blocks_on_a_claim_come_back_with_the_pod_of_that_number(cluster: Cluster) -> None:
    """All else of the pod is new: its state folder, with epochs and ids, is as empty as at the first start."""
    rendered = cluster.render(SIDECAR, {"node": {"sidecar": {"g3": {"kind": "PersistentVolumeClaim"}}}})
    async with cluster.running(rendered, "node", (*SERVICES, "engine")) as containers:
        await hold(containers)
        manager = containers["block-manager"]
        await eventually(lambda: holds(manager, "g3"), "blocks reach the claim", START_SECONDS)
    shutil.rmtree(cluster.folder / "state")
    async with cluster.running(rendered, "node", SERVICES) as containers:
        await hold(containers)
        manager = containers["block-manager"]
        await eventually(lambda: holds(manager, "g3"), "blocks of the claim are back", START_SECONDS)


async def test_a_pod_with_an_engine_works(cluster: Cluster) -> None:
    rendered = cluster.render(SIDECAR)
    async with cluster.running(rendered, "node", (*SERVICES, "engine")) as containers:
        await hold(containers)
        manager = containers["block-manager"]
        port = manager.process.probes["readinessProbe"].partition("/")[0]
        await eventually(lambda: holds(manager, "g2"), "the engine stores blocks in its node", START_SECONDS)
        engines = (await manager.http.get(f"http://127.0.0.1:{port}/v1/engines")).json()["engines"]
        assert [engine["engine"] for engine in engines] == [FIELDS["metadata.name"]]


async def test_a_remote_tier_by_itself_becomes_ready(cluster: Cluster) -> None:
    rendered = cluster.render(STANDALONE)
    async with cluster.running(rendered, "remote-tier", ["remote-tier"]) as containers:
        await hold(containers)


async def test_without_nats_an_engine_is_not_taken_out_of_service(cluster: Cluster) -> None:
    (nobody,) = free_ports(1)
    away: Values = {"nats": {"external": {"existingSecret": {"name": ""}, "url": f"nats://127.0.0.1:{nobody}"}}}
    async with cluster.running(cluster.render(SIDECAR, away), "node", SERVICES) as containers:
        manager = containers["block-manager"]
        await manager.succeeds("readinessProbe")
        port = manager.process.probes["readinessProbe"].partition("/")[0]
        # What a pod without an engine is asked: it is not whole.
        assert await manager.ask(f"{port}/readyz") == httpx.codes.SERVICE_UNAVAILABLE
        assert await manager.status("livenessProbe") == httpx.codes.OK


async def test_a_node_without_remote_tier_becomes_whole(cluster: Cluster) -> None:
    rendered = cluster.render({"settings": {"g3": {"enabled": False}, "g4": {"enabled": False}}})
    async with cluster.running(rendered, "node", ["block-manager", "offload-worker"]) as containers:
        await hold(containers)
        assert not (cluster.folder / "g3").exists()
