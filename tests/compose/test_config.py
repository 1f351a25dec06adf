"""Compose accepts the files in every combination that is documented, and refuses what is wrong in them."""

import json
from pathlib import Path

import pytest
import yaml
from tests.compose.project import (
    OWN_SERVERS,
    OWN_SERVERS_FILE,
    PROFILES,
    ask,
    installed,
    resolved,
)
from tests.compose.smoke.compose import COMPOSE_FILE, PROOF_FILE, free_port_variables, within_limits
from tests.compose.smoke.plan import Plan

pytestmark = pytest.mark.skipif(not installed(), reason="compose comes with make deploy-tools")


@pytest.mark.parametrize("profiles", PROFILES, ids=lambda names: "+".join(names) or "none")
@pytest.mark.parametrize("override", ["none", "proof", "own servers", "smoke run"])
def test_compose_accepts(profiles: tuple[str, ...], override: str, tmp_path: Path) -> None:
    files = {
        "none": (),
        "proof": (PROOF_FILE,),
        "own servers": (OWN_SERVERS_FILE,),
        "smoke run": (PROOF_FILE, within_limits(resolved(), tmp_path)),
    }[override]
    done = ask("--quiet", files=(COMPOSE_FILE, *files), profiles=profiles, environment=OWN_SERVERS)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


MUTATIONS = {
    "condition that is none": ("{condition: service_started}", "{condition: service_happy}"),
    "volume that is not declared": ("- nats-data:/data", "- nats-dta:/data"),
    "key that is none": ("    user: 1000:1000", "    usr: 1000:1000"),
    "service that is none": ("      remote-tier-a: {condition", "      remote-tier-c: {condition"),
    "network that is none": ("networks: [stores, watch]", "networks: [store, watch]"),
    "port that is none": (":-4222}:4222", ":-4222}:42222222"),
    "list where a map belongs": ("    bind: {create_host_path: false}", "    bind: [create_host_path]"),
    "size that is none": ("mem_limit: 384m", "mem_limit: 384x"),
}


@pytest.mark.parametrize(("old", "new"), MUTATIONS.values(), ids=MUTATIONS)
def test_compose_refuses(old: str, new: str, tmp_path: Path) -> None:
    text = COMPOSE_FILE.read_text()
    assert old in text
    broken = tmp_path / "docker-compose.yml"
    broken.write_text(text.replace(old, new))
    done = ask("--quiet", files=(broken,), profiles=("demo", "observability"))
    assert done.returncode != 0
    assert done.stderr != ""


@pytest.mark.parametrize("name", OWN_SERVERS)
def test_a_missing_secret_or_address_of_own_servers_is_named(name: str) -> None:
    given = {other: value for other, value in OWN_SERVERS.items() if other != name}
    done = ask("--quiet", files=(COMPOSE_FILE, OWN_SERVERS_FILE), environment=given)
    assert done.returncode != 0
    assert f"required variable {name} is missing a value" in done.stderr


@pytest.mark.parametrize(
    ("name", "value"), [("PORT_NATS", "4222x"), ("OFFLOAD_WORKER_MEMORY", "1q"), ("ENGINE_CPUS", "many")]
)
def test_a_wrong_value_is_refused_and_shown(name: str, value: str) -> None:
    done = ask("--quiet", profiles=("demo",), environment={name: value})
    assert done.returncode != 0
    assert value in done.stderr or repr(value[-1]) in done.stderr


def test_own_servers_start_none_of_the_bundled_ones() -> None:
    names = set(resolved(OWN_SERVERS_FILE, profiles=("demo",), environment=OWN_SERVERS)["services"])
    assert names.isdisjoint({"nats", "valkey", "s3"})
    assert {"block-manager-a", "remote-tier-b", "engine-b"} <= names


def test_every_variable_of_own_servers_arrives() -> None:
    services = resolved(OWN_SERVERS_FILE, environment=OWN_SERVERS)["services"]
    seen = services["block-manager-a"]["environment"] | services["remote-tier-b"]["environment"]
    assert seen.items() >= OWN_SERVERS.items()


def test_the_smoke_run_asks_for_no_higher_limits_and_changes_nothing_else(tmp_path: Path) -> None:
    plain = resolved()
    limited = resolved(within_limits(plain, tmp_path))
    for service in (*plain["services"].values(), *limited["services"].values()):
        service.pop("ulimits")
    assert limited == plain


def test_a_run_takes_variables_away_that_compose_would_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("COMPOSE_FILE", "DOCKER_HOST", "PORT_NATS", "BLOCKYARD_G2__CAPACITY", "ENGINE_BLOCKS"):
        monkeypatch.setenv(name, "1")
    environment = Plan(str(tmp_path), "vfs", 1.0, short=False).shell().run("env")
    assert not [
        line for line in environment.splitlines() if line.startswith(("COMPOSE_", "DOCKER_", "PORT_", "BLOCKY"))
    ]


def test_a_run_on_an_engine_of_others_stays_on_the_one_that_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that runs without root is found by these variables only."""
    monkeypatch.setenv("DOCKER_HOST", "unix:///run/user/1000/docker.sock")
    monkeypatch.setenv("COMPOSE_FILE", "other.yml")
    environment = Plan(str(tmp_path), "vfs", 1.0, short=False).shell(own_engine=False).run("env").splitlines()
    assert "DOCKER_HOST=unix:///run/user/1000/docker.sock" in environment
    assert "COMPOSE_FILE=other.yml" not in environment


def test_a_run_on_an_engine_of_others_takes_ports_of_nobody() -> None:
    given = free_port_variables()
    services = resolved(environment=given)["services"].values()
    published = [entry["published"] for service in services for entry in service.get("ports", [])]
    assert sorted(published) == sorted(given.values())


def test_variables_with_defaults_are_the_only_ones() -> None:
    """``up`` from a clone needs nothing, and nothing is taken from the environment without saying so."""
    done = ask("--variables", "--format", "json", profiles=("demo", "observability"))
    variables = json.loads(done.stdout)
    assert variables
    assert [name for name, facts in variables.items() if facts.get("required")] == []
    assert "set. Defaulting to a blank string" not in ask("--quiet", profiles=("demo", "observability")).stderr


def test_the_files_are_plain_yaml_too() -> None:
    """Other tools read them without compose: what is resolved by it only are variables and merges."""
    assert set(yaml.safe_load(COMPOSE_FILE.read_text())["services"]) == set(resolved()["services"])
