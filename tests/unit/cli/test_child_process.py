"""A child never outlives the command, whatever way the command ends."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from blockyard.cli.child_process import ChildProcess, ChildSpec, child_environment
from blockyard.core.errors import ServerStartError, UnsupportedOperationError

SLEEPER = (sys.executable, "-S", "-c", "import sys, time; print('up', flush=True); time.sleep(60)")
STUBBORN = (
    sys.executable,
    "-S",
    "-c",
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(60)",
)


def spec(tmp_path: Path, command: tuple[str, ...]) -> ChildSpec:
    return ChildSpec("child", command, tmp_path / "child.log")


def wait_for_text(file: Path, text: str) -> None:
    deadline = time.monotonic() + 10
    while not (file.exists() and text in file.read_text()):
        assert time.monotonic() < deadline, f"{text!r} did not appear"
        time.sleep(0.005)


def wait_for_end(pid: int) -> None:
    """Wait for the end of a process that is not our child."""
    deadline = time.monotonic() + 10
    while Path(f"/proc/{pid}").exists():
        assert time.monotonic() < deadline, f"process {pid} still runs"
        time.sleep(0.005)


def test_child_has_a_session_of_its_own_and_ends_on_request(tmp_path: Path) -> None:
    with ChildProcess(spec(tmp_path, SLEEPER)) as child:
        assert os.getsid(child.pid) == child.pid
        assert child.exit_code is None
    assert child.exit_code == -signal.SIGTERM


def test_child_that_ignores_the_request_is_killed(tmp_path: Path) -> None:
    child = ChildProcess(spec(tmp_path, STUBBORN))
    wait_for_text(tmp_path / "child.log", "up")
    child.stop(grace_seconds=0.05)
    assert child.exit_code == -signal.SIGKILL


async def test_waiting_for_the_end_leaves_the_loop_free(tmp_path: Path) -> None:
    child = ChildProcess(spec(tmp_path, SLEEPER))
    assert not await child.wait_async(0.01)
    child.send(signal.SIGKILL)
    assert await child.wait_async(10)
    assert child.exit_code == -signal.SIGKILL


def test_child_dies_with_a_killed_parent(tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(
        "import sys, time\n"
        "from pathlib import Path\n"
        "from blockyard.cli.child_process import ChildProcess, ChildSpec\n"
        f"child = ChildProcess(ChildSpec('child', {SLEEPER!r}, Path({str(tmp_path / 'child.log')!r})))\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child_pid = int(parent.stdout.readline())
        assert Path(f"/proc/{child_pid}").exists()
        parent.kill()
    wait_for_end(child_pid)


def test_program_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(ServerStartError, match="/no/such/program"):
        ChildProcess(spec(tmp_path, ("/no/such/program",)))


def test_children_start_from_the_main_thread_only(tmp_path: Path) -> None:
    caught: list[UnsupportedOperationError] = []

    def start() -> None:
        try:
            ChildProcess(spec(tmp_path, SLEEPER))
        except UnsupportedOperationError as error:
            caught.append(error)

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    assert len(caught) == 1


def test_settings_of_the_parent_do_not_leak_into_children() -> None:
    base = {"PATH": "/bin", "BLOCKYARD_G2__CAPACITY": "1GiB", "blockyard_g2__capacity": "2GiB", "HOME": "/home/x"}
    added = {"BLOCKYARD_NODE__NAME": "a"}
    assert child_environment(base, added) == {"PATH": "/bin", "HOME": "/home/x", "BLOCKYARD_NODE__NAME": "a"}
