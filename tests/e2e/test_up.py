"""``blockyard up`` leaves nothing behind, whatever way it ends."""

import os
import shutil
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from blockyard.cli.exit_codes import EXIT_FAILED
from blockyard.testing.launcher import Launcher, RunningCommand

pytestmark = pytest.mark.timeout(120)


def wait_for_line(run: RunningCommand, words: str) -> str:
    assert run.stdout is not None
    seen = []
    for line in run.stdout:
        seen.append(line)
        if words in line:
            return line
    pytest.fail(f"{words!r} did not appear in: {''.join(seen)}")


def test_interrupt_ends_everything_and_is_no_failure(launcher: Launcher) -> None:
    with launcher.start("up") as run:
        bus = wait_for_line(run, "KV events on NATS").split()[-1]
        sockets = [Path(wait_for_line(run, "engines of node").split(" connect to ")[1].strip()) for _ in "ab"]
        host, port = bus.removeprefix("nats://").split(":")
        with socket.create_connection((host, int(port)), timeout=5) as connection:
            assert connection.recv(4) == b"INFO"
        assert all(path.is_socket() for path in sockets)
        address = wait_for_line(run, "/docs").split()[-1]
        assert len(launcher.processes()) >= 3 + 2 * 4
        page = httpx.get(address, trust_env=False)
        assert page.status_code == httpx.codes.OK
        run.send_signal(signal.SIGINT)
        run.communicate()
    assert run.returncode == 0
    assert launcher.processes() == []
    assert list(launcher.temporary.iterdir()) == []


def test_interrupt_while_starting_ends_everything(launcher: Launcher) -> None:
    with launcher.start("up") as run:
        wait_for_line(run, "starting")
        run.send_signal(signal.SIGINT)
        run.communicate()
    assert run.returncode == 0
    assert launcher.processes() == []


def test_killed_supervisor_takes_everything_with_it(launcher: Launcher) -> None:
    with launcher.start("up") as run:
        wait_for_line(run, "/docs")
        run.kill()
        run.communicate()
    launcher.assert_nothing_left()


def test_end_of_a_service_ends_the_run_and_is_named(launcher: Launcher) -> None:
    with launcher.start("up") as run:
        wait_for_line(run, "/docs")
        (victim, *_) = [pid for pid in launcher.processes() if b"blockyard-remote-tier" in command_line(pid)]
        os.kill(victim, signal.SIGKILL)
        _, stderr = run.communicate()
    assert run.returncode == EXIT_FAILED
    assert "remote-tier ended with status -9" in stderr


def test_kept_run_that_is_killed_leaves_no_socket_in_shared_places(launcher: Launcher) -> None:
    with launcher.start("up", "--keep") as run:
        wait_for_line(run, "/docs")
        (server,) = [pid for pid in launcher.processes() if b"-master.port.grpc" in command_line(pid)]
        ports = [
            word.partition(b"=")[2].decode() for word in command_line(server).split(b"\0") if b".port.grpc=" in word
        ]
        sockets = [file for port in ports for file in Path("/tmp").glob(f"seaweedfs-*-grpc-{port}.sock")]
        (worker, *_) = [pid for pid in launcher.processes() if b"blockyard-remote-tier" in command_line(pid)]
        os.kill(worker, signal.SIGSTOP)
        run.kill()
        run.communicate()
    wait_until(lambda: not launcher.processes())
    assert len(sockets) == len(ports) == 5
    assert [file for file in sockets if file.exists()] == []
    (kept,) = launcher.temporary.iterdir()
    assert (kept / "logs" / "seaweedfs.log").exists()
    shutil.rmtree(kept)


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def command_line(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()
