"""NATS with the file and the variables of compose takes whatever letters and digits somebody chose for a password."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import pytest
from tests.compose.project import installed, resolved, settings_of
from tests.compose.smoke.isolation import ROOT

from blockyard.cli.embedded.nats import NatsServer
from blockyard.cli.run_folder import RunFolder

pytestmark = pytest.mark.skipif(not installed(), reason="compose comes with make deploy-tools")
_OWN_PORTS: Final = {"0.0.0.0:4222": 0, "0.0.0.0:8222": 1}


class ComposedNats(NatsServer):
    """The NATS of compose on this machine: other ports, and its data in another folder."""

    given: dict[str, str]

    def command(self) -> tuple[str, ...]:
        """As compose starts it."""
        command = super().command()
        text = (ROOT / "deploy" / "nats.conf").read_text().replace("store_dir: /data", 'store_dir: "."')
        for address, index in _OWN_PORTS.items():
            assert text.count(address) == 1
            text = text.replace(address, f"127.0.0.1:{self.ports[index]}")
        (self.data_folder / command[-1]).write_text(text)
        return command

    def environment(self) -> dict[str, str]:
        """Variables that compose gives its container."""
        return self.given


@pytest.fixture(params=["12345678", "5m", "true", "4GB", "Word1"])
def password(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def nats(password: str, tmp_path: Path) -> Iterator[ComposedNats]:
    with RunFolder(tmp_path) as folder:
        server = ComposedNats(folder)
        server.given = resolved(environment={"NATS_PASSWORD": password})["services"]["nats"]["environment"]
        server.start()
        try:
            yield server
        finally:
            server.kill()


async def answer(server: ComposedNats, user: str, password: str) -> bytes:
    """What NATS says to a client with this account."""
    async with asyncio.timeout(10):
        reader, writer = await asyncio.open_connection("127.0.0.1", server.ports[0])
        assert (await reader.readline()).startswith(b"INFO")
        account = f'"user": "{user}", "pass": "{password}"'
        writer.write(f'CONNECT {{"verbose": false, {account}}}\r\nPING\r\n'.encode())
        line = await reader.readline()
        writer.close()
        await writer.wait_closed()
    return line.strip()


async def test_a_block_manager_is_let_in_and_nobody_else(nats: ComposedNats, password: str) -> None:
    manager = resolved(environment={"NATS_PASSWORD": password})["services"]["block-manager-a"]
    parts = urlsplit(settings_of(manager).nats.url.get_secret_value())
    assert parts.username is not None
    assert parts.password == password
    assert await answer(nats, parts.username, password) == b"PONG"
    assert await answer(nats, parts.username, "wrong") == b"-ERR 'Authorization Violation'"
