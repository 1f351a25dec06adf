"""How a service starts, stops, crashes, and what it says."""

import asyncio
import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from blockyard.core.errors import ConfigurationError, FencedError, OutOfBlocksError
from blockyard.runtime import supervisor, task_end
from blockyard.runtime.node_folder import NodeFolder, ServiceFolder, ServiceName
from blockyard.runtime.process_life import LockHolder, ProcessLife, holder_of
from blockyard.runtime.settings import NodeSettings
from blockyard.runtime.supervisor import Main, ServiceContext, run_service
from blockyard.testing.clock import FakeClock

NAME = ServiceName.REMOTE_TIER
WAIT_SECONDS = 10.0


pytestmark = pytest.mark.usefixtures("restored_logging")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ServiceFolder:
    """State folder of the service under test, set as its user would."""
    for name in [name for name in os.environ if name.startswith("BLOCKYARD_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("BLOCKYARD_NODE__FOLDER", str(tmp_path))
    return NodeFolder(tmp_path).service(NAME)


def run(main: Main, *arguments: str) -> int:
    return run_service(main, NAME, "A service for tests.", arguments)


def stop_myself() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


async def stopping(context: ServiceContext) -> None:
    stop_myself()
    await context.stop.wait()


async def never(_: ServiceContext) -> None:
    await asyncio.Event().wait()


# --- command line -------------------------------------------------------------------------------------------------
def test_help_names_the_service_and_where_settings_come_from(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        run(never, "--help")
    assert caught.value.code == 0
    text = capsys.readouterr().out
    assert "blockyard-remote-tier" in text
    assert "BLOCKYARD_CONFIG" in text


def test_checking_the_configuration_starts_nothing(folder: ServiceFolder, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(never, "--check-config") == 0
    assert capsys.readouterr().out == "configuration: ok\n"
    assert not folder.path.exists()


@pytest.mark.parametrize("arguments", [("--check-config",), ()])
def test_settings_with_which_main_could_not_start_are_refused_with_and_without_a_start(
    arguments: tuple[str, ...], folder: ServiceFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    def check(settings: NodeSettings) -> None:
        raise ConfigurationError("no such place", key="nats.url", node=settings.node.name)

    assert run_service(never, NAME, "A service for tests.", arguments, check=check) == 2
    assert "no such place (key=nats.url, node=node)" in capsys.readouterr().err
    assert not folder.path.exists()


def test_a_folder_with_too_long_a_path_is_found_without_a_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BLOCKYARD_NODE__FOLDER", str(tmp_path / ("long" * 25)))
    assert run(never, "--check-config") == 2
    assert "key=node.folder" in capsys.readouterr().err


@pytest.mark.parametrize("path", ["/dev/null", "/dev/null/state", "/proc/state", "/sys/fs/state"])
@pytest.mark.parametrize("arguments", [("--check-config",), ()])
def test_a_place_where_no_folder_can_be_made_is_refused_at_a_check_as_at_a_start(
    arguments: tuple[str, ...], path: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BLOCKYARD_NODE__FOLDER", path)
    assert run(never, *arguments) == 2
    assert "key=node.folder" in capsys.readouterr().err


def test_a_wrong_setting_is_named_on_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BLOCKYARD_G3__CAPACITY", "much")
    assert run(never) == 2
    text = capsys.readouterr().err
    assert "g3.capacity" in text
    assert text.count("\n") == 1


# --- life ---------------------------------------------------------------------------------------------------------
def test_a_service_runs_with_lock_and_epoch_until_it_is_told_to_stop(folder: ServiceFolder) -> None:
    seen: list[ServiceContext] = []

    async def main(context: ServiceContext) -> None:
        seen.append(context)
        assert holder_of(context.folder) == LockHolder(os.getpid(), socket.gethostname())
        await stopping(context)

    assert run(main) == 0
    (context,) = seen
    assert (context.service, context.folder) == (NAME, folder)
    assert int(folder.epoch.read_text()) == context.life.epoch
    assert holder_of(folder) is None


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_both_signals_stop_in_order(number: signal.Signals) -> None:
    async def main(context: ServiceContext) -> None:
        os.kill(os.getpid(), number)
        await context.stop.wait()

    assert run(main) == 0


def test_the_http_side_is_one_call_away(folder: ServiceFolder) -> None:
    async def main(context: ServiceContext) -> None:
        async with context.serve_http(0) as server:
            assert folder.read_http() == server.url
            await stopping(context)

    assert run(main) == 0
    assert folder.read_http() is None


def test_a_port_in_use_names_its_setting(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    async def main(context: ServiceContext) -> None:
        async with context.serve_http(port):
            pass

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = int(taken.getsockname()[1])
        assert run(main) == 2
    assert "key=http.remote_tier_port" in capsys.readouterr().err


def test_the_address_of_a_killed_life_is_withdrawn_at_the_next_start(folder: ServiceFolder) -> None:
    folder.create()
    folder.write_http("http://127.0.0.1:1")
    seen: list[str | None] = []

    async def main(context: ServiceContext) -> None:
        seen.append(context.folder.read_http())
        await stopping(context)

    assert run(main) == 0
    assert seen == [None]


def test_only_settings_of_blockyard_reach_a_service(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_SESSION_TOKEN", "HTTP_PROXY"):
        monkeypatch.setenv(name, "of somebody else")
    seen: list[set[str]] = []

    async def main(context: ServiceContext) -> None:
        seen.append(set(os.environ))
        await stopping(context)

    assert run(main) == 0
    assert not seen[0] & {"AWS_SESSION_TOKEN", "HTTP_PROXY"}


def test_a_running_service_is_not_started_twice(folder: ServiceFolder, capsys: pytest.CaptureFixture[str]) -> None:
    with ProcessLife.acquire(folder, FakeClock()):
        assert run(never) == 2
    assert f"pid={os.getpid()}" in capsys.readouterr().err


def test_work_beside_main_ends_with_it() -> None:
    ended: list[str] = []

    async def beside() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("beside")

    async def main(context: ServiceContext) -> None:
        context.start(beside(), "beside")
        await asyncio.sleep(0)
        ended.append("main")

    assert run(main) == 0
    assert ended == ["main", "beside"]


def test_main_that_does_not_stop_is_cancelled_after_the_grace_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "GRACE_SECONDS", 0.01)

    async def main(context: ServiceContext) -> None:
        stop_myself()
        await never(context)

    assert run(main) == 0


def test_a_second_signal_does_not_wait() -> None:
    async def main(context: ServiceContext) -> None:
        await stopping(context)
        stop_myself()
        await never(context)

    assert run(main) == 0


@pytest.fixture
def asked_again_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "GRACE_SECONDS", 0.01)
    monkeypatch.setattr(task_end, "AGAIN_SECONDS", 0.01)


async def deaf() -> None:
    """Misses its first cancellation, as a task inside a client library may."""
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.Event().wait()
    await asyncio.Event().wait()


@pytest.mark.usefixtures("asked_again_soon")
def test_work_beside_main_that_misses_a_cancellation_ends_too() -> None:
    async def main(context: ServiceContext) -> None:
        context.start(deaf(), "beside")
        await stopping(context)

    assert run(main) == 0


@pytest.mark.usefixtures("asked_again_soon")
@pytest.mark.parametrize("signals", [1, 2])
def test_main_that_misses_a_cancellation_ends_too(signals: int) -> None:
    async def main(_: ServiceContext) -> None:
        loop = asyncio.get_running_loop()
        for number in range(signals):
            loop.call_later(0.001 * number, stop_myself)
        await deaf()

    assert run(main) == 0


@pytest.mark.usefixtures("asked_again_soon")
def test_a_crash_is_not_held_up_by_a_main_that_misses_a_cancellation() -> None:
    async def beside() -> None:
        raise KeyError("beside")

    async def main(context: ServiceContext) -> None:
        context.start(beside(), "beside")
        await deaf()

    assert run(main) == 1


# --- crashes ------------------------------------------------------------------------------------------------------
def test_a_crash_of_main_is_logged_with_its_cause(folder: ServiceFolder, capsys: pytest.CaptureFixture[str]) -> None:
    async def main(_: ServiceContext) -> None:
        async with asyncio.TaskGroup():
            raise OutOfBlocksError("nothing left")

    assert run(main) == 1
    text = capsys.readouterr().err
    assert "crashed" in text
    assert "OutOfBlocksError: nothing left" in text
    assert holder_of(folder) is None


def test_a_crash_beside_main_ends_main(capsys: pytest.CaptureFixture[str]) -> None:
    async def beside() -> None:
        raise KeyError("beside")

    async def main(context: ServiceContext) -> None:
        context.start(beside(), "beside")
        await never(context)

    assert run(main) == 1
    assert "KeyError: 'beside'" in capsys.readouterr().err


def test_a_crash_in_a_callback_of_the_loop_ends_main(capsys: pytest.CaptureFixture[str]) -> None:
    async def main(context: ServiceContext) -> None:
        def broken() -> None:
            raise KeyError("callback")

        asyncio.get_running_loop().call_soon(broken)
        await never(context)

    assert run(main) == 1
    assert "KeyError: 'callback'" in capsys.readouterr().err


def test_an_error_in_a_task_of_a_library_is_logged_and_counted_only(capsys: pytest.CaptureFixture[str]) -> None:
    counts: list[float] = []

    async def main(context: ServiceContext) -> None:
        async def broken() -> None:
            raise KeyError("library")

        task = asyncio.create_task(broken())
        await asyncio.wait({task})
        del task
        counts.append(context.metrics.registry.get_sample_value("blockyard_unhandled_errors_total") or 0)

    assert run(main) == 0
    assert counts == [1]
    assert "KeyError: 'library'" in capsys.readouterr().err


def test_a_wrong_environment_found_by_main_is_a_sentence_and_no_trace(capsys: pytest.CaptureFixture[str]) -> None:
    async def main(_: ServiceContext) -> None:
        async with asyncio.TaskGroup():
            raise ConfigurationError("the bucket does not exist", key="g4.bucket")

    assert run(main) == 2
    text = capsys.readouterr().err
    assert "blockyard-remote-tier: the bucket does not exist (key=g4.bucket)" in text
    assert "Traceback" not in text


def test_a_life_that_was_fenced_ends_with_a_sentence_and_a_code_of_its_own(
    folder: ServiceFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    async def beside() -> None:
        raise FencedError("a later life of this node is known", lease="fenced")

    async def main(context: ServiceContext) -> None:
        context.start(beside(), "beside")
        await never(context)

    assert run(main) == 3
    text = capsys.readouterr().err
    assert "blockyard-remote-tier: a later life of this node is known (lease=fenced)" in text
    assert "Traceback" not in text
    assert "crashed" not in text
    assert holder_of(folder) is None


# --- the process that started it ----------------------------------------------------------------------------------
_SERVICE = """
import sys
from blockyard.runtime.node_folder import ServiceName
from blockyard.runtime.supervisor import run_service
async def main(context):
    print("up", flush=True)
    await context.stop.wait()
sys.exit(run_service(main, ServiceName.REMOTE_TIER, "x"))
"""
_PARENT = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", sys.argv[1], *sys.argv[2:]])
print(child.pid, flush=True)
child.wait()
"""


def test_a_service_ends_with_the_process_that_started_it_if_asked_to(folder: ServiceFolder) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _PARENT, _SERVICE, "--die-with-parent"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        process = os.pidfd_open(pid)
        try:
            assert parent.stdout.readline() == b"up\n"
            parent.kill()
            parent.wait()
            ended, _, _ = select.select([process], [], [], WAIT_SECONDS)
            assert ended
        finally:
            os.close(process)
    assert holder_of(folder) is None
