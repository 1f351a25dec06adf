"""Real servers for the tests: started once per test process, on loopback, removed at the end.

A test that stops or kills a server must start it again before it ends, or use a server of its own.
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from blockyard.cli.embedded.nats import NatsServer
from blockyard.cli.embedded.seaweedfs import SeaweedfsServer
from blockyard.cli.embedded.server import EmbeddedServer
from blockyard.cli.embedded.valkey import ValkeyServer
from blockyard.cli.run_folder import RunFolder

Server = TypeVar("Server", bound=EmbeddedServer)


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A folder of the test, in the place of pytest's, whose long names leave no room for the name of a socket."""
    with tempfile.TemporaryDirectory(prefix="by-") as folder:
        yield Path(folder)


@pytest.fixture(scope="session")
def run_folder() -> Iterator[RunFolder]:
    """Short private folder for data, sockets and logs of this test process."""
    with RunFolder() as folder:
        yield folder


@pytest.fixture(scope="session")
def nats_server(run_folder: RunFolder) -> Iterator[NatsServer]:
    """NATS with JetStream: ``.url``, ``.stop()``, ``.kill()``, ``.start()``, ``.restart()``."""
    yield from _running(NatsServer(run_folder))


@pytest.fixture(scope="session")
def valkey_server(run_folder: RunFolder) -> Iterator[ValkeyServer]:
    """Valkey: ``.url`` and life as above."""
    yield from _running(ValkeyServer(run_folder))


@pytest.fixture(scope="session")
def seaweedfs_server(run_folder: RunFolder) -> Iterator[SeaweedfsServer]:
    """S3: ``.url``, ``.access_key``, ``.secret_key`` and life as above."""
    yield from _running(SeaweedfsServer(run_folder))


def _running(server: Server) -> Iterator[Server]:
    server.start()
    yield server
    # Its data goes with the folder: an orderly stop would only take longer.
    server.kill()
