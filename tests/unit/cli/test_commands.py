"""Usage of the command: help, wrong settings, signals."""

import asyncio
import os
import signal
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from blockyard.cli.commands import app
from blockyard.cli.exit_codes import EXIT_OK, EXIT_USAGE
from blockyard.cli.failures import RunInterruptedError
from blockyard.cli.until_signal import run_until_signal


@pytest.mark.parametrize("arguments", [["--help"], ["up", "--help"], ["demo", "--help"]])
def test_help_explains(arguments: list[str]) -> None:
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == EXIT_OK
    assert "Usage: blockyard" in result.stdout or "Usage: root" in result.stdout


def test_test_only_switch_is_not_advertised() -> None:
    assert "unsafe" not in CliRunner().invoke(app, ["demo", "--help"]).stdout


@pytest.mark.parametrize("command", ["up", "demo"])
def test_unknown_setting_is_named_with_the_nearest_known_one(command: str) -> None:
    result = CliRunner().invoke(app, [command], env={"BLOCKYARD_G2__CAPACTY": "1GiB"})
    assert result.exit_code == EXIT_USAGE
    assert "BLOCKYARD_G2__CAPACITY" in result.stderr


def test_help_loads_no_client_of_a_server() -> None:
    """Loading them takes half a second, before anything is said or started."""
    program = (
        "import sys, blockyard.cli.commands, blockyard.cli.up, blockyard.cli.local_demo\n"
        "loaded = {'aioboto3', 'botocore', 'obstore', 'redis', 'nats', 'fastapi'} & set(sys.modules)\n"
        "sys.exit(','.join(loaded) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_what_is_told_when_a_signal_comes_is_told_once_and_the_run_ends() -> None:
    told = []

    async def work() -> None:
        asyncio.get_running_loop().call_soon(os.kill, os.getpid(), signal.SIGHUP)
        await asyncio.Event().wait()

    with pytest.raises(RunInterruptedError):
        run_until_signal(work(), lambda: told.append("stopping"))
    assert told == ["stopping"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_ends_a_run_in_order(number: signal.Signals) -> None:
    cleaned = []

    async def work() -> None:
        asyncio.get_running_loop().call_soon(os.kill, os.getpid(), number)
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.append(number)

    with pytest.raises(RunInterruptedError):
        run_until_signal(work())
    assert cleaned == [number]


def test_result_of_a_run_comes_back() -> None:
    async def work() -> int:
        return 7

    assert run_until_signal(work()) == 7


def test_handlers_of_before_are_back_after_a_run() -> None:
    before = signal.getsignal(signal.SIGINT)

    async def work() -> None:
        assert signal.getsignal(signal.SIGINT) is not before

    run_until_signal(work())
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize("value", ["nan", "0.5", "-inf", "inf", "1e9"])
def test_a_time_limit_out_of_bounds_names_the_bounds(value: str) -> None:
    result = CliRunner().invoke(app, ["demo", "--seconds", value])
    assert result.exit_code == EXIT_USAGE
    assert "from 1 to 86400" in result.stderr


def test_help_of_the_proof_run_names_time_disk_and_exit_codes() -> None:
    text = " ".join(CliRunner().invoke(app, ["demo", "--help"]).stdout.split())
    for words in ("about a minute", "1.8 GiB", "TMPDIR", "Exit codes: 0 done", "3 something did not start"):
        assert words in text


def test_entry_point_loads_next_to_nothing_before_an_interrupt_ends_it() -> None:
    program = (
        "import sys, blockyard.cli.main\n"
        "sys.exit(','.join({'typer', 'rich', 'pydantic', 'asyncio', 'msgspec', 'numpy'} & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--compose", "c.yml", "--keep"], "no meaning with --compose (key=--keep)"),
        (["--compose", "c.yml", "--unsafe-skip-verification"], "key=--unsafe-skip-verification"),
        (["--project", "p"], "no meaning without --compose (key=--project)"),
        (["--compose-command", "podman compose"], "key=--compose-command"),
        (["--compose", "c.yml", "--compose-command", "'"], "not a command line"),
        (["--compose", "c.yml", "--compose-command", " "], "names no program"),
        (["--compose", "c.yml", "--compose-command", "/nowhere/docker compose"], "cannot be run"),
    ],
)
def test_options_that_do_not_go_together_are_refused(arguments: list[str], words: str) -> None:
    result = CliRunner().invoke(app, ["demo", *arguments])
    assert result.exit_code == EXIT_USAGE
    assert words in result.stderr


def test_help_says_what_an_interrupt_means() -> None:
    text = " ".join(CliRunner().invoke(app, ["up", "--help"]).stdout.split())
    assert "exit code 0, or 130 in the first moment, while the command itself is still loading" in text
    assert "130 interrupted (demo: at any time, up: while the command was still loading)" in text


def test_help_of_the_proof_run_says_what_a_stack_has_to_be() -> None:
    text = " ".join(CliRunner().invoke(app, ["demo", "--help"]).stdout.split())
    assert "node a is down, two blocks are damaged" in text
    for words in ("profile demo", "deploy/compose.proof.yml", "do not replay by themselves"):
        assert words in text
