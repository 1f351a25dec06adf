"""What keeps the command from its work ends it soon, with one sentence and never with a trace."""

import signal
import socket
import time
from pathlib import Path

import pytest

from blockyard.cli.exit_codes import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_START, EXIT_USAGE
from blockyard.testing.launcher import Launcher

pytestmark = pytest.mark.timeout(60)

FULL = Path("/dev/full")


@pytest.mark.parametrize("command", ["up", "demo"])
@pytest.mark.parametrize("after", [0.1, 0.25, 0.4, 0.6])
def test_interrupt_at_any_moment_of_the_start_leaves_no_trace(launcher: Launcher, command: str, after: float) -> None:
    with launcher.start(command) as run:
        time.sleep(after)
        run.send_signal(signal.SIGINT)
        _, stderr = run.communicate()
    assert run.returncode in ({EXIT_INTERRUPTED} if command == "demo" else {EXIT_INTERRUPTED, 0})
    assert stderr == ""


@pytest.mark.parametrize(
    "arguments", [("demo", "--seconds", "1"), ("demo", "--json", "--seconds", "1"), ("up",), ("--help",)]
)
def test_output_that_cannot_be_written_is_said_and_ends_the_run(launcher: Launcher, arguments: tuple[str, ...]) -> None:
    with FULL.open("w") as full, launcher.start(*arguments, stdout=full) as run:
        _, stderr = run.communicate()
    assert run.returncode == EXIT_FAILED
    assert stderr.splitlines()[-1].startswith("blockyard: ")
    assert "No space left on device" in stderr.splitlines()[-1]
    assert "Traceback" not in stderr


def test_nothing_can_be_said_where_both_outputs_are_full_and_yet_the_run_ends(launcher: Launcher) -> None:
    wrapper = ("sh", "-c", 'exec "$@" 2>/dev/full >/dev/full', "sh")
    with launcher.start("demo", wrapper=wrapper) as run:
        stdout, stderr = run.communicate()
    assert (run.returncode, stdout, stderr) == (EXIT_FAILED, "", "")


def test_reader_that_goes_away_ends_the_run_in_order(launcher: Launcher) -> None:
    with launcher.start("up") as run:
        assert run.stdout is not None
        run.stdout.readline()
        run.stdout.close()
        assert run.stderr is not None
        stderr = run.stderr.read()
    assert "Broken pipe" in stderr
    assert run.returncode == EXIT_FAILED
    assert "Traceback" not in stderr


@pytest.mark.parametrize("allowed", [40, 64])
def test_too_few_open_files_are_named_with_the_number_needed(launcher: Launcher, allowed: int) -> None:
    wrapper = ("sh", "-c", f'ulimit -n {allowed}; exec "$@"', "sh")
    with launcher.start("up", wrapper=wrapper) as run:
        _, stderr = run.communicate()
    assert run.returncode == EXIT_START
    assert f"allowed={allowed}, needed=512" in stderr
    assert "ulimit -n" in stderr


@pytest.mark.parametrize("variable", ["BLOCKYARD_REDIS__URL", "BLOCKYARD_G4__ENDPOINT_URL", "BLOCKYARD_NATS__URL"])
def test_own_server_that_does_not_answer_is_named_with_its_setting(launcher: Launcher, variable: str) -> None:
    scheme = {"BLOCKYARD_REDIS__URL": "redis", "BLOCKYARD_NATS__URL": "nats"}.get(variable, "http")
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{closed.getsockname()[1]}"
        began = time.monotonic()
        with launcher.start("up", environment={variable: f"{scheme}://{address}"}) as run:
            _, stderr = run.communicate()
    assert run.returncode == EXIT_START
    assert variable in stderr
    assert address in stderr
    assert time.monotonic() - began < 8


@pytest.mark.parametrize("command", ["up", "demo"])
def test_folder_with_a_name_that_cannot_be_shown_is_refused(launcher: Launcher, command: str) -> None:
    folder = launcher.temporary / "a\nb"
    folder.mkdir()
    with launcher.start(command, environment={"TMPDIR": str(folder)}) as run:
        _, stderr = run.communicate()
    folder.rmdir()
    assert run.returncode == EXIT_USAGE
    assert stderr.startswith("blockyard: the name of the folder")
    assert "TMPDIR" in stderr
    assert "Traceback" not in stderr
