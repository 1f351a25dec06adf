"""The proof run over a stack that was started beforehand: everything goes through a compose command and open ports."""

import json
import os
import shlex
import signal
import subprocess
import sys
import sysconfig
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.e2e import process_compose
from tests.e2e.process_compose import Described

from blockyard.cli.cluster import Cluster, ClusterPlan
from blockyard.cli.demo_plan import SHORT
from blockyard.cli.embedded.ports import free_ports
from blockyard.cli.embedded.seaweedfs import SeaweedfsServer
from blockyard.cli.exit_codes import EXIT_FAILED, EXIT_OK, EXIT_START
from blockyard.runtime.node_folder import NodeFolder, ServiceName
from blockyard.runtime.settings import NodeSettings
from blockyard.runtime.settings_source import environment_of
from blockyard.testing.launcher import Launcher

pytestmark = pytest.mark.timeout(240)

INSIDE = "http://s3:8333"
"""What containers would call the object store."""


class Stack:
    """Services of two nodes as processes, and their engines."""

    def __init__(self, cluster: Cluster) -> None:
        self.state = cluster.folder.path / "state.json"
        self.compose = shlex.join((sys.executable, process_compose.__file__, str(self.state)))
        self.services: dict[str, Described] = {}
        self._logs = cluster.folder.logs
        store = cluster.object_store()
        self.services["s3"] = Described([], {}, "", port=int(store.endpoint_url.rpartition(":")[2]))
        for name in ("a", "b"):
            self._add_node(name, cluster.prepare(name).settings)
        (self.services["s3"].pid,) = [
            server.pid for server in cluster.infrastructure.servers if isinstance(server, SeaweedfsServer)
        ]
        process_compose.save(self.state, self.services)

    def _add_node(self, name: str, settings: NodeSettings) -> None:
        environment = environment_of(settings)
        folder = NodeFolder.of(settings)
        folder.identify()
        for service in ServiceName:
            self.services[f"{service}-{name}"] = Described(
                [str(Path(sysconfig.get_path("scripts")) / f"blockyard-{service}")],
                environment,
                str(self._logs / f"{service}-{name}.log"),
                address_file=str(folder.service(service).http),
                shown_environment=environment | {"BLOCKYARD_G4__ENDPOINT_URL": INSIDE},
            )
        (port,) = free_ports(1)
        socket = folder.service(ServiceName.BLOCK_MANAGER).socket
        self.services[f"engine-{name}"] = Described(
            [
                *(
                    sys.executable,
                    "-m",
                    "blockyard.connectors.mock",
                    "--socket",
                    str(socket),
                    "--name",
                    f"engine-{name}",
                ),
                *("--blocks", str(SHORT.cluster.g1_blocks), "--listen", f"127.0.0.1:{port}"),
            ],
            {},
            str(self._logs / f"engine-{name}.log"),
            port=port,
        )

    def kill(self) -> None:
        for name, service in process_compose.load(self.state).items():
            if name != "s3" and process_compose.alive(service.pid):
                os.killpg(service.pid, signal.SIGKILL)

    def start(self, *services: str) -> None:
        flags = "--file f --profile demo up --detach --no-deps --no-recreate --no-build --pull never"
        subprocess.run([*shlex.split(self.compose), *flags.split(), *services], check=True)

    def running(self) -> set[str]:
        services = process_compose.load(self.state)
        return {name for name, service in services.items() if process_compose.alive(service.pid)}


@asynccontextmanager
async def running(plan: ClusterPlan) -> AsyncIterator[Stack]:
    cluster = Cluster(plan, NodeSettings())
    try:
        await cluster.infrastructure.start()
        stack = Stack(cluster)
        try:
            stack.start(*stack.services)
            yield stack
        finally:
            stack.kill()
    finally:
        await cluster.http.aclose()
        for server in cluster.infrastructure.servers:
            server.kill()
        cluster.folder.close()


@pytest.fixture
async def stack() -> AsyncIterator[Stack]:
    async with running(SHORT.cluster) as stack:
        yield stack


@pytest.fixture
async def careless_stack() -> AsyncIterator[Stack]:
    """One whose services compare no checksums."""
    async with running(replace(SHORT.cluster, skip_verification=True)) as stack:
        yield stack


def run_demo(launcher: Launcher, stack: Stack) -> tuple[int, dict[str, Any], str]:
    options = ("--compose", "compose.yml", "--project", "some", "--compose-command", stack.compose)
    with launcher.start("demo", "--json", "--short", *options) as run:
        stdout, stderr = run.communicate()
    assert stdout, stderr
    return run.returncode, json.loads(stdout), stderr


async def test_blocks_travel_survive_and_are_never_wrong_and_a_used_stack_is_refused(
    launcher: Launcher, stack: Stack
) -> None:
    code, summary, log = run_demo(launcher, stack)
    assert (summary["failures"], summary["not_reached"]) == ([], []), log
    assert (code, summary["ok"], summary["venue"], summary["wrong_bytes"]) == (EXIT_OK, True, "compose", 0)
    assert summary["g4_cross_node_hits"] > 0
    assert summary["after_kill_hits"] > 0
    assert summary["warm_restart_g3_blocks"] > 0
    assert summary["checksum_failures"] == 2
    assert summary["disk_bytes"] > 2 * SHORT.cluster.g3_blocks * SHORT.cluster.block_bytes
    a = {"block-manager-a", "offload-worker-a", "remote-tier-a", "engine-a"}
    assert stack.running() == set(stack.services) - a

    code, summary, _ = run_demo(launcher, stack)
    assert code == EXIT_START
    assert "missing=block-manager-a engine-a offload-worker-a remote-tier-a" in summary["failures"][0]

    stack.start(*a)
    code, summary, _ = run_demo(launcher, stack)
    assert code == EXIT_START
    assert "an engine has served requests before the run" in summary["failures"][0]
    assert "engine=engine-b" in summary["failures"][0]


async def test_without_verification_the_flipped_bytes_reach_an_engine(
    launcher: Launcher, careless_stack: Stack
) -> None:
    code, summary, log = run_demo(launcher, careless_stack)
    assert (code, summary["wrong_bytes"], summary["checksum_failures"]) == (EXIT_FAILED, 2, 0), log
    assert "the byte flipped in G3 reached an engine" in summary["failures"]
    assert "the byte flipped in G4 reached an engine" in summary["failures"]
