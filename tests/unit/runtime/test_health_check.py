"""The command that container health checks and probes run."""

import asyncio
import json
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from blockyard.core.errors import UnavailableError
from blockyard.runtime import health_check
from blockyard.runtime.health_check import EXIT_CANNOT_ASK, EXIT_HEALTHY, EXIT_UNHEALTHY, Question
from blockyard.runtime.http import Health, ServiceHttp
from blockyard.runtime.node_folder import DEFAULT_FOLDER, NodeFolder, ServiceFolder, ServiceName
from blockyard.runtime.settings import NodeSettings
from blockyard.runtime.telemetry import Metrics
from blockyard.testing.tcp_server import tcp_server

SERVICE = ServiceName.BLOCK_MANAGER


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ServiceFolder:
    monkeypatch.setenv("BLOCKYARD_NODE__FOLDER", str(tmp_path))
    folder = NodeFolder(tmp_path).service(SERVICE)
    folder.create()
    return folder


@pytest.fixture
async def health(folder: ServiceFolder) -> AsyncIterator[Health]:
    health = Health()
    async with ServiceHttp("127.0.0.1", 0, health, Metrics("test"), folder=folder):
        yield health


async def run(*argv: str) -> int:
    return await asyncio.to_thread(health_check.main, [*argv, "--service", SERVICE])


async def test_a_service_is_live_before_it_has_started(health: Health, capsys: pytest.CaptureFixture[str]) -> None:
    assert await run("live") == EXIT_HEALTHY
    assert capsys.readouterr().out == "block-manager: live\n"
    assert await run("started") == EXIT_UNHEALTHY
    assert capsys.readouterr().out == "block-manager: not started: has not started\n"
    assert await run("ready") == EXIT_UNHEALTHY
    assert capsys.readouterr().out == "block-manager: not ready: has not started\n"
    assert not health.started


async def test_one_line_names_every_failing_check(health: Health, capsys: pytest.CaptureFixture[str]) -> None:
    health.started = True
    health.set("nats", ok=False, detail="NATS is away")
    health.set("local-tiers", ok=True)
    health.set("remote-tier", ok=False, detail="the remote-tier is away")
    assert await run("ready") == EXIT_UNHEALTHY
    said = capsys.readouterr().out
    assert said == "block-manager: not ready: nats (NATS is away); remote-tier (the remote-tier is away)\n"
    health.set("nats", ok=True)
    health.set("remote-tier", ok=True)
    assert await run("ready") == EXIT_HEALTHY
    assert await run("started") == EXIT_HEALTHY


async def test_a_service_that_does_not_run_is_unhealthy(
    folder: ServiceFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await run("live") == EXIT_UNHEALTHY
    assert "not running" in capsys.readouterr().out


async def test_an_address_left_by_a_killed_service_is_unhealthy(
    folder: ServiceFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    folder.write_http(f"http://127.0.0.1:{port}")
    assert await run("live") == EXIT_UNHEALTHY
    assert "no answer" in capsys.readouterr().out


async def test_a_service_that_hangs_is_unhealthy_after_the_timeout(
    folder: ServiceFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        folder.write_http(f"http://127.0.0.1:{silent.getsockname()[1]}")
        assert await run("live", "--timeout", "0.1") == EXIT_UNHEALTHY
    assert "timed out" in capsys.readouterr().out


async def test_an_address_file_that_holds_something_else_is_unhealthy(
    folder: ServiceFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    folder.http.write_text("[]")
    assert await run("live") == EXIT_UNHEALTHY
    assert "holds no address" in capsys.readouterr().out


async def test_an_address_that_is_no_file_is_unhealthy(folder: ServiceFolder) -> None:
    folder.http.mkdir()
    with pytest.raises(UnavailableError, match="not to be asked"):
        health_check.ask(folder, Question.LIVE, 1)


@pytest.mark.parametrize("body", [b"", b"[]", b"not json", json.dumps({"checks": [{}]}).encode()])
async def test_an_answer_of_somebody_else_is_unhealthy(
    folder: ServiceFolder, body: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 502 Bad\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))
        await writer.drain()

    async with tcp_server(answer) as port:
        folder.write_http(f"http://127.0.0.1:{port}")
        assert await run("ready") == EXIT_UNHEALTHY
    assert capsys.readouterr().out == "block-manager: not ready: answered 502\n"


async def test_what_does_not_speak_http_is_unhealthy(folder: ServiceFolder, capsys: pytest.CaptureFixture[str]) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"INFO {}\r\n")
        await reader.read()

    async with tcp_server(answer) as port:
        folder.write_http(f"http://127.0.0.1:{port}")
        assert await run("ready") == EXIT_UNHEALTHY
    assert "no answer" in capsys.readouterr().out


async def test_wrong_settings_are_told_apart_from_a_service_that_does_not_run(
    folder: ServiceFolder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BLOCKYARD_G2__CAPACITY", "much")
    assert await run("ready") == EXIT_CANNOT_ASK
    assert "g2.capacity" in capsys.readouterr().err


async def test_a_settings_file_that_cannot_be_read_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BLOCKYARD_CONFIG", str(tmp_path / "missing.yaml"))
    assert await run("ready") == EXIT_CANNOT_ASK
    assert "missing.yaml" in capsys.readouterr().err


@pytest.mark.parametrize(
    "argv",
    [
        [],
        ["ready"],
        ["healthy", "--service", SERVICE],
        ["ready", "--service", "router"],
        ["ready", "--service", SERVICE, "--timeout", "0"],
        ["ready", "--service", SERVICE, "--timeout", "nan"],
        ["ready", "--service", SERVICE, "--timeout", "soon"],
    ],
)
def test_a_wrong_command_line_is_refused(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        health_check.main(argv)
    assert end.value.code == EXIT_CANNOT_ASK
    assert "usage" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["-1", "0", "61", "soon", "nan"])
def test_a_timeout_that_is_none_is_told_what_one_is(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        health_check.main(["ready", "--service", SERVICE, "--timeout", text])
    assert f"--timeout: {text} is no time above 0 and up to 60 seconds" in capsys.readouterr().err


def test_the_folder_comes_from_environment_over_file_over_default(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("node: {folder: /from/file}\n")
    assert health_check.state_folder({}) == DEFAULT_FOLDER == NodeSettings().node.folder
    assert health_check.state_folder({"BLOCKYARD_CONFIG": str(file)}) == Path("/from/file")
    both = {"BLOCKYARD_CONFIG": str(file), "blockyard_node__folder": "/from/environment"}
    assert health_check.state_folder(both) == Path("/from/environment")
    file.write_text("node: {name: alone}\n")
    assert health_check.state_folder({"BLOCKYARD_CONFIG": str(file)}) == DEFAULT_FOLDER


def test_it_loads_nothing_that_takes_long() -> None:
    program = "import sys, blockyard.runtime.health_check; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=30)
    assert not {"pydantic", "numpy", "asyncio", "yaml", "msgspec", "uvicorn"} & set(done.stdout.split())
