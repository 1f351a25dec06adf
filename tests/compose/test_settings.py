"""Every setting can be given to the services of the stack, and a name that is none is refused by them."""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.architecture.doc_commands import fences
from tests.compose.project import NODES, OWN_SERVERS, OWN_SERVERS_FILE, SERVICES, installed, resolved, settings_of
from tests.compose.smoke.compose import COMPOSE_FILE, compose_program
from tests.compose.smoke.isolation import ROOT

from blockyard.core.errors import ConfigurationError
from blockyard.runtime.settings import NodeSettings

pytestmark = pytest.mark.skipif(not installed(), reason="compose comes with make deploy-tools")
PAGE = ROOT / "docs" / "how-to" / "docker-compose.md"
HANDED_ON = ROOT / "deploy" / "compose.env"
OWN = [f"{service}-{node}" for node in NODES for service in SERVICES]
PLACES = {"node.folder", "g3.folder", "http.host", "http.block_manager_port", "http.offload_worker_port"}
PLACES |= {"http.remote_tier_port"}
"""Where mounts and published ports lead to: images say it."""
BY_FILE_ONLY = {"unsafe.skip_verification", "g4.standalone"}
"""Nothing for a node that serves."""
VALUES = {
    "BLOCKYARD_NODE__NAMESPACE": "other",
    "BLOCKYARD_G3__MOVER": "plain",
    "BLOCKYARD_G3__ENABLED": "false",
    "BLOCKYARD_G4__ENABLED": "false",
    "BLOCKYARD_G4__REGION": "eu-central-1",
    "BLOCKYARD_G4__PREFIX": "models/large",
    "BLOCKYARD_LOG__LEVEL": "debug",
    "BLOCKYARD_LOG__JSON_LINES": "true",
    "BLOCKYARD_TRACING__ENDPOINT_URL": "http://otel-collector:4318",
    "BLOCKYARD_TRACING__SAMPLE_RATIO": "0.5",
    "BLOCKYARD_G2__CAPACITY": "64MiB",
    "BLOCKYARD_G3__CAPACITY": "64MiB",
    "BLOCKYARD_G2__EVICTION": "lineage",
    "BLOCKYARD_G3__EVICTION": "s3_fifo",
    "BLOCKYARD_G3__COMMIT_BYTES": "2MiB",
    "BLOCKYARD_G3__WRITE_POLICY": "write_back",
    "BLOCKYARD_G3__BYTES_PER_DAY": "1TiB",
    "BLOCKYARD_G4__TARGET_BYTES": "2MiB",
    "BLOCKYARD_NATS__STREAM_MAX_BYTES": "2MiB",
    "BLOCKYARD_REDIS__ENTRY_TTL_SECONDS": "61",
    "BLOCKYARD_JOBS__STUCK_MS": "5000",
}
"""A value for each setting that does not take the number 5."""


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    (tmp_path / "deploy").mkdir()
    shutil.copy(COMPOSE_FILE, tmp_path)
    shutil.copy(HANDED_ON, tmp_path / "deploy")
    return tmp_path


def services_in(folder: Path, **environment: str) -> dict[str, Any]:
    """The services, as a user gets them in a folder with files of settings."""
    done = subprocess.run(
        [str(compose_program()), "--profile", "demo", "config", "--format", "json"],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "HOME": "/nonexistent", **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    found: dict[str, Any] = json.loads(done.stdout)["services"]
    return found


def handed_on() -> list[str]:
    """Names in the file of those that all services take."""
    lines = [line for line in HANDED_ON.read_text().splitlines() if not line.startswith("#")]
    return [line.partition("=")[0] for line in lines]


def variable(path: str) -> str:
    """Name in the environment of a setting."""
    return f"BLOCKYARD_{path.replace('.', '__')}".upper()


def all_settings() -> set[str]:
    """Paths of all settings."""
    return {f"{name}.{key}" for name in NodeSettings.model_fields for key in getattr(NodeSettings(), name).model_dump()}


def test_every_setting_can_be_set() -> None:
    services = resolved(OWN_SERVERS_FILE, environment=OWN_SERVERS)["services"]
    given = {name for service in OWN for name in services[service]["environment"]}
    rest = {variable(path) for path in all_settings() - PLACES - BY_FILE_ONLY}
    assert rest - given - set(handed_on()) == set()
    assert set(handed_on()) - rest == set()


@pytest.mark.parametrize("name", handed_on())
def test_a_name_in_dot_env_reaches_all_services_of_all_nodes(name: str, clone: Path) -> None:
    value = VALUES.get(name, "5")
    (clone / ".env").write_text(f"{name}={value}\n")
    services = services_in(clone)
    for service in OWN:
        assert services[service]["environment"][name] == value
        settings_of(services[service])


def test_what_is_not_set_has_the_default_of_the_program_or_of_the_file() -> None:
    for service in OWN:
        settings, plain = settings_of(resolved()["services"][service]), NodeSettings()
        assert (int(settings.g2.capacity), int(settings.g3.capacity)) == (512 << 20, 2 << 30)
        assert settings.node.namespace == "compose"
        assert (settings.jobs, settings.log, settings.tracing) == (plain.jobs, plain.log, plain.tracing)


def test_the_example_of_a_settings_file_reaches_all_services(clone: Path) -> None:
    (example,) = [fence.text for fence in fences(PAGE) if fence.kind == "text" and "__REGION=" in fence.text]
    (clone / "blockyard.env").write_text(example)
    services = services_in(clone)
    for service in OWN:
        settings = settings_of(services[service])
        assert (settings.g4.region, int(settings.g4.target_bytes)) == ("eu-central-1", 8 << 20)
        assert settings.node.block_tokens == 256


def test_a_settings_file_wins_over_dot_env_and_that_is_overruled_by_the_environment(clone: Path) -> None:
    (clone / ".env").write_text("BLOCKYARD_G2__CAPACITY=64MiB\nBLOCKYARD_G3__CAPACITY=64MiB\n")
    (clone / "blockyard.env").write_text("BLOCKYARD_G2__CAPACITY=128MiB\n")
    services = services_in(clone, BLOCKYARD_G3__CAPACITY="256MiB", BLOCKYARD_G2__CAPACITY="256MiB")
    settings = settings_of(services["offload-worker-b"])
    assert (int(settings.g2.capacity), int(settings.g3.capacity)) == (128 << 20, 256 << 20)


@pytest.mark.parametrize("service", OWN)
def test_a_misspelled_name_in_a_settings_file_is_refused_by_name(service: str, clone: Path) -> None:
    (clone / "blockyard.env").write_text("BLOCKYARD_G2__CAPACTY=1GiB\n")
    with pytest.raises(ConfigurationError, match="unknown setting") as refused:
        settings_of(services_in(clone)[service])
    assert "BLOCKYARD_G2__CAPACTY" in str(refused.value)


def test_what_containers_agree_on_is_not_taken_from_a_settings_file(clone: Path) -> None:
    names = ("NODE__NAME", "NODE__BLOCK_BYTES", "G4__BUCKET", "G4__SECRET_KEY", "G4__ENDPOINT_URL", "REDIS__URL")
    (clone / "blockyard.env").write_text("".join(f"BLOCKYARD_{name}=other\n" for name in names))
    environment = services_in(clone)["remote-tier-a"]["environment"]
    assert [name for name in names if environment[f"BLOCKYARD_{name}"] == "other"] == []


def test_another_file_may_be_named(clone: Path) -> None:
    (clone / "blockyard.env").write_text("BLOCKYARD_LOG__LEVEL=debug\n")
    (clone / "other.env").write_text("BLOCKYARD_LOG__LEVEL=error\n")
    services = services_in(clone, SETTINGS_FILE="other.env")
    assert settings_of(services["remote-tier-b"]).log.level == "error"
