"""Servers start in folders with names that mean something in their own syntax, and keep their files private."""

import stat
from pathlib import Path

import pytest

from blockyard.cli.embedded.nats import NatsServer
from blockyard.cli.embedded.seaweedfs import SeaweedfsServer
from blockyard.cli.embedded.server import EmbeddedServer
from blockyard.cli.embedded.valkey import ValkeyServer
from blockyard.cli.run_folder import RunFolder

ODD_NAME = "s p ü'q\"\\u00,$x#;{"


@pytest.mark.parametrize("kind", [NatsServer, ValkeyServer, SeaweedfsServer])
def test_server_starts_and_restarts_in_an_oddly_named_folder(kind: type[EmbeddedServer], tmp_path: Path) -> None:
    parent = tmp_path / ODD_NAME
    parent.mkdir()
    with RunFolder(parent) as folder:
        server = kind(folder)
        try:
            server.start()
            server.kill()
            server.start()
            assert server.running
        finally:
            server.kill()
    assert list(tmp_path.iterdir()) == [parent]
    assert list(parent.iterdir()) == []


def test_sockets_outside_the_run_folder_are_private_and_removed_also_when_the_folder_is_kept(tmp_path: Path) -> None:
    with RunFolder(tmp_path, keep=True) as folder:
        server = SeaweedfsServer(folder)
        try:
            server.start()
            sockets = server.stray_files()
            assert [stat.S_IMODE(file.stat().st_mode) & 0o077 for file in sockets] == [0] * len(sockets)
        finally:
            server.kill()
        assert not any(file.exists() for file in sockets)
