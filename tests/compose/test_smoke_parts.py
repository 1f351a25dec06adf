"""Parts of the smoke run that can be tested without starting anything."""

import os
import time
from pathlib import Path

import pytest
from tests.compose.smoke import checks, leftovers, tools
from tests.compose.smoke.package_index import local_folders, settings
from tests.compose.smoke.shell import Deadline, Shell, SmokeError

LISTED = """\
:env:.find-links='/srv/wheels'
:env:.disable-pip-version-check='1'
global.constraint='/etc/constraints.txt'
global.extra-index-url='file:///srv/more/simple https://mirror.internal/simple'
global.find-links='/elsewhere'
global.timeout='20'
"""


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path / "log", Deadline(20.0))


def test_variables_of_pip_win_and_what_would_restrict_a_build_stays_out() -> None:
    assert settings(LISTED) == {
        "find-links": "/srv/wheels",
        "extra-index-url": "file:///srv/more/simple https://mirror.internal/simple",
        "timeout": "20",
    }


def test_folders_of_an_index_are_mounted_whole(tmp_path: Path) -> None:
    (tmp_path / "simple").mkdir()
    (tmp_path / "wheels").mkdir()
    named = [f"file://{tmp_path}/simple https://mirror.internal/simple", f"{tmp_path}/wheels", "/not/there"]
    assert list(local_folders(named)) == [tmp_path, tmp_path / "wheels"]


def test_a_failed_program_is_named_with_the_end_of_what_it_said(shell: Shell) -> None:
    with pytest.raises(SmokeError, match="ended with status 3:\nlast words"):
        shell.run("sh", "-c", "echo last words >&2; exit 3")
    assert "last words" in shell.log.read_text()


def test_a_program_that_takes_too_long_is_killed_with_its_children(shell: Shell, tmp_path: Path) -> None:
    began = time.monotonic()
    with pytest.raises(SmokeError, match="took more than"):
        shell.run("sh", "-c", f"sleep 600 & echo $! > {tmp_path}/child; wait", seconds=0.5)
    assert time.monotonic() - began < 10
    child = Path(f"/proc/{(tmp_path / 'child').read_text().strip()}/stat")
    while alive(child):
        assert time.monotonic() - began < 20
        time.sleep(0.01)


def alive(status: Path) -> bool:
    """Whether a process runs; one that nobody has collected yet does not."""
    try:
        return status.read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_program_that_is_not_there_is_named(shell: Shell) -> None:
    with pytest.raises(SmokeError, match="no-such-program cannot be started"):
        shell.run("no-such-program")


def test_nothing_is_started_after_the_deadline(tmp_path: Path) -> None:
    with pytest.raises(SmokeError, match="the time of the run is over"):
        Shell(tmp_path / "log", Deadline(0.0)).run("true")


def test_what_a_machine_lacks_is_told_by_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    absent = tools.missing()
    assert {"podman", "runc", "debootstrap", "util-linux"} <= set(absent)
    assert ("root" in absent) is (os.geteuid() != 0)
    assert len(absent) == len(set(absent))


def test_a_folder_that_is_left_is_found(tmp_path: Path) -> None:
    assert f"folder {tmp_path}" in leftovers.leftovers(tmp_path)
    assert leftovers.leftovers(tmp_path / "gone") == leftovers.leftovers(tmp_path / "gone too")


@pytest.mark.parametrize(
    ("tier", "blocks"),
    [("G2", 595), ("G3", 0), ("G4", 12)],
)
def test_what_an_engine_says_is_read(tier: str, blocks: int) -> None:
    line = "engine-b: 472 requests, 4428 blocks: 468 in G1, loaded and verified from G2 595, G3 0, G4 12, 33 computed"
    assert checks.verified(line, tier) == blocks
    assert checks.verified("engine-b: waits for its node", tier) == 0


def test_nobody_answers_where_nobody_listens() -> None:
    assert checks.get("http://127.0.0.1:9/")[0] == 0
