"""A run is alone on its machine, and takes away what runs have left that were killed, and nothing else."""

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.compose.smoke import podman
from tests.compose.smoke.isolation import ROOT
from tests.compose.smoke.run_folder import PREFIX, remove_dead, run_folder, the_only_run
from tests.compose.smoke.shell import SmokeError

HOLD = "import sys; print('held', flush=True); sys.stdin.read()"
"""A process that inherited a lock and lives until it is told to end."""


def test_the_folder_of_a_dead_run_is_removed(tmp_path: Path) -> None:
    left = tmp_path / f"{PREFIX}dead"
    (left / "podman/storage").mkdir(parents=True)
    assert remove_dead(tmp_path) == [left]
    assert not left.exists()


def test_the_folder_of_a_running_one_stays(tmp_path: Path) -> None:
    with run_folder(tmp_path) as folder:
        assert remove_dead(tmp_path) == []
        assert folder.path.exists()
    assert not folder.path.exists()


def test_a_folder_stays_while_a_process_of_its_run_lives(tmp_path: Path) -> None:
    """Its first process was killed, and the kernel has not yet ended the others."""
    left = tmp_path / f"{PREFIX}dying"
    left.mkdir()
    lock = os.open(left, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", HOLD], pass_fds=(lock,), stdin=pipe, stdout=pipe) as child:
        os.close(lock)
        assert remove_dead(tmp_path) == []
        child.communicate(timeout=20)
    assert remove_dead(tmp_path) == [left]


def test_nothing_else_is_removed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / f"{PREFIX}link").symlink_to("elsewhere")
    (tmp_path / f"{PREFIX}file").touch()
    (tmp_path / "blockyard-other").mkdir()
    assert remove_dead(tmp_path) == []
    assert len(list(tmp_path.iterdir())) == 4


def test_a_second_run_is_told_of_the_first_at_once() -> None:
    name = f"\0blockyard-test-{os.getpid()}"
    with the_only_run(name), pytest.raises(SmokeError, match="another run is in progress"), the_only_run(name):
        pass
    with the_only_run(name):
        pass


def test_a_second_program_ends_at_once_and_makes_nothing(tmp_path: Path) -> None:
    try:
        with the_only_run():
            done = second_program(tmp_path)
    except SmokeError:
        done = second_program(tmp_path)
    assert done.returncode == 1
    assert "another run is in progress" in done.stdout
    assert list(tmp_path.iterdir()) == []


def second_program(temporary: Path) -> subprocess.CompletedProcess[str]:
    """Start a run where there is one."""
    command = [sys.executable, "-m", "tests.compose.smoke", "--engine", "podman", "--seconds", "1"]
    return subprocess.run(
        command,
        cwd=ROOT,
        env=os.environ | {"TMPDIR": str(temporary)},
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )


def test_what_podman_wants_short_is_short_wherever_temporary_files_go() -> None:
    assert len(str(podman.STATE / "run")) <= 50
    assert podman.STATE.is_relative_to("/run")
