"""What compose says is understood, in all forms that it has."""

import json

import pytest
from tests.unit.cli.compose.conftest import Script

from blockyard.cli.failures import ComposeError
from blockyard.core.errors import ConfigurationError


async def test_missing_services_are_named(script: Script) -> None:
    project = await script.project()
    project.require("engine-a", "engine-b")
    with pytest.raises(ConfigurationError, match="missing=engine-c, engine-d"):
        project.require("engine-a", "engine-c", "engine-d")


async def test_what_is_no_configuration_is_refused(script: Script) -> None:
    script.on("config", "oops")
    with pytest.raises(ComposeError, match="wrote no configuration"):
        await script.project()


async def test_settings_come_from_the_environment_of_the_service(script: Script) -> None:
    environment = {"BLOCKYARD_G4__BUCKET": "mine", "BLOCKYARD_TRACING__ENDPOINT_URL": "", "PATH": None, "HOME": "/"}
    project = await script.project(remote_tier_b={"environment": environment})
    settings = project.settings("remote-tier-b")
    assert (settings.g4.bucket, settings.tracing.endpoint_url) == ("mine", "")


async def test_dependencies_are_followed_unless_they_end_before_or_are_not_required(script: Script) -> None:
    project = await script.project(
        block_manager_a={"depends_on": {"nats": {"condition": "service_healthy"}}},
        nats={"depends_on": {"disk": {}, "init": {"condition": "service_completed_successfully"}}},
        remote_tier_a={"depends_on": {"s3": {"condition": "service_healthy", "required": False}}},
        disk={"depends_on": {"nats": {}}},
        init={},
        grafana={},
    )
    assert project.with_dependencies(["block-manager-a", "remote-tier-a"]) == {
        *("block-manager-a", "remote-tier-a"),
        *("nats", "disk"),
    }


@pytest.mark.parametrize("as_array", [False, True])
async def test_states_of_containers(script: Script, as_array: bool) -> None:
    rows = [
        {"Service": "a", "State": "running", "ExitCode": 0, "Health": "healthy"},
        {"Service": "b", "State": "exited", "ExitCode": 137},
    ]
    script.on("ps --all --format json", json.dumps(rows) if as_array else "\n".join(json.dumps(row) for row in rows))
    states = await (await script.project()).states()
    assert [states[name].running for name in ("a", "b")] == [True, False]
    assert states["b"].text == "exited with 137"


@pytest.mark.parametrize("first", ["running", "exited"])
async def test_what_was_run_once_beside_a_service_does_not_hide_it(script: Script, first: str) -> None:
    rows = [{"Service": "a", "State": state} for state in sorted(("running", "exited"), key=lambda s: s != first)]
    script.on("ps", "".join(f"{json.dumps(row)}\n" for row in rows))
    assert (await (await script.project()).states())["a"].running


async def test_no_containers_are_no_error(script: Script) -> None:
    script.on("ps", "")
    assert await (await script.project()).states() == {}


async def test_what_is_no_list_of_containers_is_refused(script: Script) -> None:
    script.on("ps", "NAME  STATE\n")
    with pytest.raises(ComposeError, match="wrote no list of containers"):
        await (await script.project()).states()


@pytest.mark.parametrize(
    ("output", "place"),
    [
        ("127.0.0.1:9000\n", "127.0.0.1:9000"),
        ("0.0.0.0:9000\n", "127.0.0.1:9000"),
        ("[::]:9000\n", "[::1]:9000"),
        (":::9000\n", "[::1]:9000"),
        ("2001:db8::7:9000\n", "[2001:db8::7]:9000"),
        (":9000", "127.0.0.1:9000"),
        ("192.0.2.7:9000", "192.0.2.7:9000"),
    ],
)
async def test_a_published_port_is_reached_from_here(script: Script, output: str, place: str) -> None:
    script.on("port engine-a 8900", output)
    assert await (await script.project()).place("engine-a", 8900) == place


@pytest.mark.parametrize("output", ["", ":0\n", "invalid IP:0"])
async def test_a_port_that_is_not_published_is_named(script: Script, output: str) -> None:
    script.on("port", output)
    with pytest.raises(ConfigurationError, match=r"not published \(key=engine-a: ports, port=8900"):
        await (await script.project()).place("engine-a", 8900)


async def test_what_compose_says_of_a_port_is_passed_on(script: Script) -> None:
    script.on("port", errors="Cannot connect to the Docker daemon", status=1)
    with pytest.raises(ConfigurationError, match=r"(?s)not published: .*port engine-a 8900.*Docker daemon.*port=8900"):
        await (await script.project()).place("engine-a", 8900)


async def test_an_address_inside_becomes_one_outside_and_others_stay(script: Script) -> None:
    script.on("port s3 8333", "127.0.0.1:18333")
    script.on("port s3 443", "127.0.0.1:18443")
    project = await script.project(s3={})
    assert await project.reachable("http://s3:8333") == "http://127.0.0.1:18333"
    assert await project.reachable("https://s3") == "https://127.0.0.1:18443"
    assert await project.reachable("https://s3.example.org") == "https://s3.example.org"


async def test_a_log_that_cannot_be_had_is_empty(script: Script) -> None:
    project = await script.project()
    script.on("logs --no-color --no-log-prefix --tail 15 nats", "last words")
    assert await project.log_tail("nats") == "last words"
    assert await project.log_tail("other") == ""
