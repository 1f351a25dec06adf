"""What the user names is used; what is not named is embedded."""

from collections.abc import Iterator

import pytest

from blockyard.cli.embedded.infrastructure import Infrastructure
from blockyard.cli.run_folder import RunFolder
from blockyard.runtime.settings_source import load_settings


@pytest.fixture
def run_folder() -> Iterator[RunFolder]:
    with RunFolder() as folder:
        yield folder


def test_all_three_are_embedded_by_default(run_folder: RunFolder) -> None:
    servers = Infrastructure(run_folder, load_settings({})).servers
    assert [server.label for server in servers] == ["nats", "valkey", "seaweedfs"]


def test_named_servers_are_used_as_they_are(run_folder: RunFolder) -> None:
    given = load_settings(
        {
            "BLOCKYARD_NATS__URL": "nats://example:1",
            "BLOCKYARD_REDIS__URL": "redis://example:2/0",
            "BLOCKYARD_G4__ENDPOINT_URL": "http://example:3",
            "BLOCKYARD_G4__ACCESS_KEY": "account",
            "BLOCKYARD_G4__SECRET_KEY": "secret",
        }
    )
    infrastructure = Infrastructure(run_folder, given)
    assert infrastructure.servers == ()
    assert infrastructure.nats() is given.nats
    assert infrastructure.redis() is given.redis
    assert infrastructure.g4() is given.g4


def test_other_settings_of_an_embedded_server_stay_the_users(run_folder: RunFolder) -> None:
    infrastructure = Infrastructure(run_folder, load_settings({"BLOCKYARD_G4__MAX_REQUESTS": "3"}))
    for server in infrastructure.servers:
        server.ports = tuple(range(1, 1 + server.port_count))
    g4 = infrastructure.g4()
    assert g4.max_requests == 3
    assert g4.endpoint_url.startswith("http://127.0.0.1:")
    assert len(g4.secret_key.get_secret_value()) == 32


def test_the_place_of_the_bus_shows_no_password(run_folder: RunFolder) -> None:
    given = load_settings({"BLOCKYARD_NATS__URL": "nats://user:p%40ss@example:1"})
    assert Infrastructure(run_folder, given).nats_place == "nats://example:1"
