"""``curl`` in the documentation, run as it stands there against a real node.

A page names the ports of the compose file; here the node answers on ports of its own.
"""

import asyncio
import re
import shutil
from typing import Final
from uuid import uuid4

import pytest
import yaml
from pydantic import ByteSize, SecretStr
from tests.architecture.doc_commands import Command, Runner, commands_of
from tests.architecture.doc_tables import ROOT

from blockyard.cli.embedded.nats import NatsServer
from blockyard.cli.run_folder import RunFolder
from blockyard.runtime.node_folder import ServiceName
from blockyard.runtime.settings import G2Section, G3Section, G4Section, NatsSection, NodeSection, NodeSettings
from blockyard.testing.running_node import RunningNode, running_node

_ADDRESS: Final = re.compile(r"http://(?:127\.0\.0\.1|localhost):(\d+)")
_PUBLISHED: Final = re.compile(r"127\.0\.0\.1:\$\{\w+:-(\d+)\}:(\d+)")
_SERVICES: Final = {"8801": ServiceName.BLOCK_MANAGER, "8802": ServiceName.OFFLOAD_WORKER}

pytestmark = pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")


def published() -> dict[str, str]:
    """Ports of this machine under which compose shows those of containers."""
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"].values()
    ports = [_PUBLISHED.fullmatch(port) for service in services for port in service.get("ports", ())]
    return {found[1]: found[2] for found in ports if found}


PORTS: Final = published()


def here(command: Command, node: RunningNode) -> str | None:
    """The command with the addresses of the node; None where it asks a server of others."""
    text = command.text
    for port in _ADDRESS.findall(text):
        assert port in PORTS, f"no container publishes the port of {command}"
        if PORTS[port] not in _SERVICES:
            return None
        url = node.folder.service(_SERVICES[PORTS[port]]).read_http()
        assert url is not None
        text = re.sub(rf"http://(127\.0\.0\.1|localhost):{port}", url, text)
    return text


async def test_a_node_answers_what_the_pages_ask(run_folder: RunFolder) -> None:
    folder = run_folder.path / f"n{uuid4().hex[:6]}"
    folder.mkdir()
    with NatsServer(run_folder, f"nats-{folder.name}") as nats:
        settings = NodeSettings(
            node=NodeSection(name="a", folder=folder),
            g2=G2Section(capacity=ByteSize(4 << 20)),
            g3=G3Section(capacity=ByteSize(4 << 20)),
            g4=G4Section(enabled=False),
            nats=NatsSection(url=SecretStr(nats.url)),
        )
        async with running_node(settings, *_SERVICES.values()) as node:
            await node.ready()
            for command in commands_of(Runner.HTTP):
                if (text := here(command, node)) is not None:
                    stdout, stderr = await output_of(text)
                    assert (stderr, bool(stdout.strip())) == ("", True), command
                    assert "urn:blockyard:problem" not in stdout, command


async def output_of(text: str) -> tuple[str, str]:
    run = await asyncio.create_subprocess_exec(
        *("sh", "-eu", "-c", text), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    stdout, stderr = await asyncio.wait_for(run.communicate(), 30.0)
    assert run.returncode == 0, text
    return stdout.decode(), stderr.decode()
