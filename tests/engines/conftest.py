"""Real engines and real nodes under them; needs ``.venv-engines`` (``make test-engines``).

Engines start slowly and are kept for the session, one per configuration; a node is fast, and each test gets its own, at
the place where the engine of its configuration looks for it.
"""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.engines.engine_kit import Engines, Nodes
from tests.engines.engine_process import PYTHON, QUIET, EngineMaker
from tests.integration.conftest import run_folder, seaweedfs_server, valkey_server

from blockyard.cli.embedded.seaweedfs import SeaweedfsServer
from blockyard.cli.embedded.valkey import ValkeyServer
from blockyard.cli.run_folder import RunFolder

__all__ = ["run_folder", "seaweedfs_server", "valkey_server"]

# They run in the environment of the engine.
collect_ignore = ["contract"]


@pytest.fixture(scope="session")
def models(run_folder: RunFolder) -> Path:
    """Folder with the tiny models."""
    folder = run_folder.folder("models")
    command = (str(PYTHON), str(Path(__file__).with_name("tiny_models.py")), str(folder))
    subprocess.run(command, check=True, capture_output=True, timeout=120, env=QUIET)
    return folder


@pytest.fixture(scope="session")
def engine_maker(run_folder: RunFolder) -> Iterator[EngineMaker]:
    """The process that makes engines."""
    maker = EngineMaker(run_folder)
    yield maker
    maker.close()


@pytest.fixture(scope="session")
def engines(run_folder: RunFolder, engine_maker: EngineMaker, models: Path) -> Iterator[Engines]:
    """All engines of the session, made when first asked for."""
    made = Engines(run_folder, engine_maker, models)
    yield made
    made.close()


@pytest.fixture(scope="session")
def nodes(engines: Engines, valkey_server: ValkeyServer, seaweedfs_server: SeaweedfsServer) -> Nodes:
    """Makes nodes where engines look for them."""
    return Nodes(engines, valkey_server, seaweedfs_server)
