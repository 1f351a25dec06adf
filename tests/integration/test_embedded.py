"""The embedded servers start on loopback, survive a restart on their ports, and leave nothing."""

import socket
from pathlib import Path

import pytest

from blockyard.cli.embedded.loopback_http import get
from blockyard.cli.embedded.nats import NatsServer
from blockyard.cli.embedded.ports import LOOPBACK
from blockyard.cli.embedded.seaweedfs import SeaweedfsServer
from blockyard.cli.embedded.server import EmbeddedServer
from blockyard.cli.embedded.valkey import ValkeyServer
from blockyard.cli.run_folder import RunFolder
from blockyard.core.errors import ServerStartError


def listening_addresses(pid: int) -> set[str]:
    """Local addresses on which a process listens, read from its socket inodes."""
    inodes = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        target = link.readlink().as_posix() if link.is_symlink() else ""
        if target.startswith("socket:["):
            inodes.add(target[8:-1])
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            columns = line.split()
            if columns[3] == "0A" and columns[9] in inodes:
                found.add(columns[1].split(":")[0])
    return found


def test_every_server_is_ready_and_listens_on_loopback_only(
    nats_server: NatsServer, valkey_server: ValkeyServer, seaweedfs_server: SeaweedfsServer
) -> None:
    for server in (nats_server, valkey_server, seaweedfs_server):
        assert server.poll_ready()
        assert listening_addresses(server.pid) == {"0100007F"}


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
