"""The embedded servers start on loopback, survive a restart on their ports, and leave nothing."""

import socket

import pytest

from blockyard.cli.embedded.loopback_http import get
from blockyard.cli.embedded.nats import NatsServer
from blockyard.cli.embedded.ports import LOOPBACK, listening
from blockyard.cli.embedded.seaweedfs import SeaweedfsServer
from blockyard.cli.embedded.server import EmbeddedServer
from blockyard.cli.embedded.valkey import ValkeyServer
from blockyard.cli.run_folder import RunFolder
from blockyard.core.errors import ServerStartError


def test_every_server_is_ready_and_listens_on_loopback_only(
    nats_server: NatsServer, valkey_server: ValkeyServer, seaweedfs_server: SeaweedfsServer
) -> None:
    for server in (nats_server, valkey_server, seaweedfs_server):
        assert server.poll_ready()
        found = listening(server.pid)
        assert {address for address, _ in found} == {"0100007F"}
        assert {port for _, port in found}.issuperset(server.ports)


def test_killed_server_comes_back_on_the_same_port(nats_server: NatsServer) -> None:
    url, pid = nats_server.url, nats_server.pid
    nats_server.kill()
    assert not nats_server.running
    nats_server.start()
    assert nats_server.url == url
    assert nats_server.pid != pid


def test_object_store_refuses_a_stranger(seaweedfs_server: SeaweedfsServer) -> None:
    port = int(seaweedfs_server.url.rsplit(":", 1)[1])
    assert get(port, "/some-bucket/some-key").status == 403


@pytest.mark.parametrize("kind", [NatsServer, ValkeyServer, SeaweedfsServer])
def test_taken_port_leads_to_another_choice(kind: type[EmbeddedServer], run_folder: RunFolder) -> None:
    with socket.socket() as taken:
        taken.bind((LOOPBACK, 0))
        taken.listen()
        port = taken.getsockname()[1]
        server = kind(run_folder, f"{kind.name}-taken")
        server.ports = (port, *range(port + 1, port + kind.port_count))
        with server:
            assert port not in server.ports
            assert server.running


def test_answers_of_another_server_on_the_port_are_not_taken_for_the_own(
    valkey_server: ValkeyServer, run_folder: RunFolder
) -> None:
    """Two runs that choose the same port at the same time."""
    server = ValkeyServer(run_folder, "valkey-late")
    server.ports = valkey_server.ports
    server.spawn()
    try:
        assert server.answers()
        assert not server.poll_ready()
    finally:
        server.kill()


def test_server_that_cannot_start_says_why(run_folder: RunFolder) -> None:
    class Broken(ValkeyServer):
        def command(self) -> tuple[str, ...]:
            return (*super().command(), "--no-such-option", "1")

    with pytest.raises(ServerStartError, match="no-such-option"):
        Broken(run_folder, "valkey-broken").start()


def test_nothing_is_left_after_the_run() -> None:
    with RunFolder() as folder:
        path = folder.path
        server = SeaweedfsServer(folder)
        server.start()
        strays = server.stray_files()
        assert any(stray.exists() for stray in strays)
        server.kill()
    assert not path.exists()
    assert not any(stray.exists() for stray in strays)
