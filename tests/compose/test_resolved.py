"""What must hold for every container of the stack, looked up in what compose makes of the files."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.charts.dockerfile import stages
from tests.compose.project import (
    NODES,
    OWN_SERVERS,
    OWN_SERVERS_FILE,
    PROFILES,
    SERVICES,
    installed,
    require_memory,
    resolved,
    settings_of,
)
from tests.compose.smoke.compose import PROOF_FILE, own_target
from tests.compose.smoke.isolation import ROOT

from blockyard.core.errors import ConfigurationError
from blockyard.runtime.settings import NodeSettings
from blockyard.runtime.supervisor import GRACE_SECONDS

pytestmark = pytest.mark.skipif(not installed(), reason="compose comes with make deploy-tools")
STATE, SLAB = "/var/lib/blockyard", "/var/lib/blockyard-g3"
WITHOUT_HEALTH_CHECK = {"otel-collector"}
"""Its image holds one program and no shell."""
AS_ROOT = {"nats"}
"""Its image makes its folder for root; it has no capability all the same."""
OWN = [f"{service}-{node}" for node in NODES for service in SERVICES]


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    return resolved()


@pytest.fixture(scope="module")
def services(project: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = project["services"]
    return found


def test_every_container_is_confined(services: dict[str, Any]) -> None:
    for name, service in services.items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert not service.keys() & {"privileged", "cap_add", "devices", "pid", "ipc", "network_mode", "userns_mode"}, (
            name
        )
        assert "docker.sock" not in str(service.get("volumes", "")), name


def test_nobody_is_root_but_who_has_to(services: dict[str, Any]) -> None:
    images = {"prometheus", "grafana", "otel-collector", "jaeger"}
    for name, service in services.items():
        target = own_target(service)
        user = stages()[target].user if target else service.get("user", "")
        if name not in AS_ROOT | images:
            assert user, name
            assert user.partition(":")[0] not in ("0", "root"), name


def test_every_container_has_limits(services: dict[str, Any]) -> None:
    for name, service in services.items():
        assert 0 < int(service["mem_limit"]) <= 1 << 30, name
        assert 0 < float(service["cpus"]) <= 2, name
        assert 0 < service["pids_limit"] <= 256, name
        assert service["ulimits"]["nofile"] >= 16_384, name
        assert service["logging"]["options"] == {"max-size": "10m", "max-file": "3"}, name
        assert service["restart"] == "unless-stopped", name


def test_a_service_is_given_the_time_it_takes_to_stop(services: dict[str, Any]) -> None:
    assert all(services[name]["stop_grace_period"] == "20s" for name in OWN)
    assert GRACE_SECONDS < 20


def test_ports_are_published_on_loopback_and_only_once(services: dict[str, Any]) -> None:
    published = [
        (entry["host_ip"], entry["published"]) for service in services.values() for entry in service.get("ports", [])
    ]
    assert {host for host, _ in published} == {"127.0.0.1"}
    assert len(set(published)) == len(published)


def test_every_published_port_can_be_moved(services: dict[str, Any]) -> None:
    names = [f"PORT_{name.upper().replace('-', '_')}" for name in services]
    moved = resolved(environment={name: str(20_000 + number) for number, name in enumerate(names)})["services"]
    for number, name in enumerate(services):
        if "ports" in moved[name]:
            assert moved[name]["ports"][0]["published"] == str(20_000 + number), name


def test_each_image_is_built_by_one_service_that_is_there_whenever_it_is_used(services: dict[str, Any]) -> None:
    """Two that build the same tag at once get in each other's way."""
    built = [(service["image"], service["build"]["target"]) for service in services.values() if "build" in service]
    assert len({image for image, _ in built}) == len(built)
    assert all(image.partition(":")[0] == f"blockyard/{target}" for image, target in built)
    for profiles in PROFILES:
        started = resolved(profiles=profiles)["services"].values()
        used = {service["image"] for service in started if own_target(service)}
        assert used == {service["image"] for service in started if "build" in service}


def test_no_registry_is_asked_for_images_of_this_project(services: dict[str, Any]) -> None:
    """Nobody owns their names there: whoever takes one would run in the place of what is built here."""
    for name, service in services.items():
        assert (service.get("pull_policy") == "never") is bool(own_target(service)), name


def test_images_are_pinned(services: dict[str, Any]) -> None:
    for name, service in services.items():
        tag = service["image"].rpartition(":")[2]
        assert tag.lstrip("v")[0].isdigit(), name
        assert tag.count(".") >= 1, name


def test_every_container_has_a_health_check_or_a_reason(services: dict[str, Any]) -> None:
    text = (ROOT / "Dockerfile").read_text()
    for name, service in services.items():
        if target := own_target(service):
            stage = text.partition(f" AS {target}\n")[2].partition("\nFROM ")[0]
            assert "\nHEALTHCHECK " in stage, name
        else:
            assert ("healthcheck" in service) is (name not in WITHOUT_HEALTH_CHECK), name


def test_health_checks_cost_little_and_leave_a_slow_start_its_time(services: dict[str, Any]) -> None:
    """Every look starts a process in the container: ten of them every two seconds are a busy core."""
    seen = {name: service["healthcheck"] for name, service in services.items() if "healthcheck" in service}
    assert len(seen) > 5
    for name, check in seen.items():
        expected = {"interval": "10s", "timeout": "5s", "start_period": "2m0s", "retries": 3, "test": check["test"]}
        assert check == expected, name
        words = " ".join(check["test"])
        assert words.count("wget") == words.count("wget -Y off "), f"{name} asks a proxy for 127.0.0.1"
    own = re.findall(r"^HEALTHCHECK (.*) \\\n", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert own == ["--interval=10s --timeout=5s --start-period=5m --retries=3"] * len(own)
    assert len(own) == len({own_target(service) for service in services.values()} - {""})


def test_who_waits_for_health_waits_for_a_health_check(services: dict[str, Any]) -> None:
    for name, service in services.items():
        for other, how in service.get("depends_on", {}).items():
            healthy = own_target(services[other]) or "healthcheck" in services[other]
            assert how["condition"] != "service_healthy" or healthy, f"{name} waits for {other}"


def test_what_is_mounted_from_the_clone_is_in_it_and_read_only(services: dict[str, Any]) -> None:
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False).stdout.split(
        "\n"
    )
    mounted = [
        mount for service in services.values() for mount in service.get("volumes", []) if mount["type"] == "bind"
    ]
    assert mounted
    for mount in mounted:
        source = Path(mount["source"])
        assert source.exists(), source
        assert mount["read_only"] is True
        assert mount["bind"].get("create_host_path", False) is False
        inside = str(source.relative_to(ROOT))
        assert tracked == [""] or any(name == inside or name.startswith(f"{inside}/") for name in tracked), inside


def test_volumes_of_a_node_are_its_own(services: dict[str, Any]) -> None:
    for node in NODES:
        users = [*(f"{service}-{node}" for service in SERVICES), f"engine-{node}"]
        for name, service in services.items():
            mounts = {mount["target"]: mount["source"] for mount in service.get("volumes", [])}
            if name in users:
                assert mounts[STATE] == f"node-{node}", name
                assert mounts.get(SLAB) == (f"slab-{node}" if name.startswith("offload-worker") else None), name
            else:
                assert f"node-{node}" not in mounts.values(), name


def test_servers_are_reached_by_those_who_use_them_only(services: dict[str, Any]) -> None:
    def on(network: str) -> set[str]:
        return {name for name, service in services.items() if network in service["networks"]}

    assert on("bus") == {"nats", "block-manager-a", "block-manager-b"}
    assert on("stores") == {"valkey", "s3", "remote-tier-a", "remote-tier-b"}
    assert on("engines") == {"engine-a", "engine-b"}


def test_nothing_runs_in_a_profile_that_the_rest_needs() -> None:
    assert set(resolved(profiles=())["services"]) == {"nats", "valkey", "s3", *OWN[:3]}
    assert set(resolved(profiles=("demo",))["services"]) == {"nats", "valkey", "s3", *OWN, "engine-a", "engine-b"}


@pytest.mark.parametrize("name", OWN)
@pytest.mark.parametrize("override", ["none", "proof", "own servers"])
def test_variables_of_services_are_settings(name: str, override: str) -> None:
    files = {"none": (), "proof": (PROOF_FILE,), "own servers": (OWN_SERVERS_FILE,)}[override]
    service = resolved(*files, environment=OWN_SERVERS)["services"][name]
    settings = settings_of(service)
    assert settings.node.name == name[-1]
    assert settings.node.folder == Path(STATE)
    assert settings.g3.folder == Path(SLAB)
    port = getattr(settings.http, f"{name[:-2].replace('-', '_')}_port")
    assert [entry["target"] for entry in service["ports"]] == [port]
    assert stages()[own_target(service)].exposed == (port,)
    assert settings.http.host == "0.0.0.0"


def test_services_of_a_node_agree(services: dict[str, Any]) -> None:
    for node in NODES:
        seen = [settings_of(services[f"{service}-{node}"]) for service in SERVICES]
        for settings in seen:
            assert (settings.node, settings.g2, settings.g3) == (seen[0].node, seen[0].g2, seen[0].g3)


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_gets_only_the_accounts_it_uses(services: dict[str, Any], service: str) -> None:
    secret = {"BLOCKYARD_NATS__URL": "block-manager", "BLOCKYARD_REDIS__URL": "remote-tier"}
    secret |= dict.fromkeys(("BLOCKYARD_G4__ACCESS_KEY", "BLOCKYARD_G4__SECRET_KEY"), "remote-tier")
    for name, user in secret.items():
        assert (name in services[f"{service}-a"]["environment"]) is (user == service), name


def test_servers_and_services_share_their_passwords() -> None:
    given = {"NATS_PASSWORD": "one", "VALKEY_PASSWORD": "two", "BLOCKYARD_G4__ACCESS_KEY": "three"}
    found = resolved(environment=given | {"BLOCKYARD_G4__SECRET_KEY": "four"})["services"]
    manager, remote = settings_of(found["block-manager-a"]), settings_of(found["remote-tier-b"])
    assert manager.nats.url.get_secret_value() == "nats://blockyard:one@nats:4222"
    assert found["nats"]["environment"]["NATS_PASSWORD"] == '"one"'
    assert remote.redis.url.get_secret_value() == "redis://:two@valkey:6379/0"
    assert found["valkey"]["command"][-2:] == ["--requirepass", "two"]
    assert found["s3"]["environment"]["AWS_ACCESS_KEY_ID"] == remote.g4.access_key.get_secret_value() == "three"
    assert found["s3"]["environment"]["AWS_SECRET_ACCESS_KEY"] == remote.g4.secret_key.get_secret_value() == "four"
    assert "only-for-development" not in str([found[name] for name in ("nats", "valkey", "s3", *OWN)])


def test_the_arena_fits_into_the_memory_of_its_container(services: dict[str, Any]) -> None:
    for node in NODES:
        require_memory(services[f"offload-worker-{node}"])


def test_an_arena_that_does_not_fit_is_noticed() -> None:
    worker = resolved(environment={"BLOCKYARD_G2__CAPACITY": "1GiB"})["services"]["offload-worker-a"]
    with pytest.raises(ConfigurationError, match="memory limit"):
        require_memory(worker)


def test_the_event_stream_fits_into_the_store_of_nats() -> None:
    text = (ROOT / "deploy" / "nats.conf").read_text()
    assert "max_file: 1G\n" in text
    assert int(NodeSettings().nats.stream_max_bytes) < 1_000_000_000


def test_nats_acknowledges_what_is_on_disk() -> None:
    assert "\n  sync_interval: always\n" in (ROOT / "deploy" / "nats.conf").read_text()


def test_the_index_refuses_instead_of_forgetting(services: dict[str, Any]) -> None:
    command = " ".join(services["valkey"]["command"])
    assert "--maxmemory-policy noeviction" in command
    assert "--save  --appendonly no" in command


def test_servers_tell_nobody_about_this_machine(services: dict[str, Any]) -> None:
    assert "-master.telemetry=false" in services["s3"]["command"]
    grafana = services["grafana"]["environment"]
    assert grafana["GF_ANALYTICS_REPORTING_ENABLED"] == "false"
    assert grafana["GF_ANALYTICS_CHECK_FOR_UPDATES"] == "false"


def test_the_bucket_is_the_one_that_nodes_use() -> None:
    found = resolved(environment={"BLOCKYARD_G4__BUCKET": "other"})["services"]
    assert "-bucket=other" in found["s3"]["command"]
    assert settings_of(found["remote-tier-a"]).g4.bucket == "other"


@pytest.mark.parametrize("override", ["none", "proof"])
def test_options_of_the_demo_engine_exist_and_fit_the_node(override: str) -> None:
    program = [sys.executable, "-m", "blockyard.connectors.mock", "--help"]
    known = subprocess.run(program, capture_output=True, text=True, check=True, timeout=30).stdout
    found = resolved(*((PROOF_FILE,) if override == "proof" else ()))["services"]
    for node in NODES:
        options = dict(option.partition("=")[::2] for option in found[f"engine-{node}"]["command"])
        assert [name for name in options if f"{name} " not in known and f"{name}\n" not in known] == []
        settings = settings_of(found[f"block-manager-{node}"])
        assert int(options["--block-bytes"]) == settings.node.block_bytes
        assert options["--socket"] == f"{STATE}/block-manager/channel.sock"
        assert ("--replay" in options) is (override == "none")
