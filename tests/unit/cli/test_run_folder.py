"""The folder of a run is private, and gone after it in every way a run can end."""

import socket
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from blockyard.cli import janitor
from blockyard.cli.run_folder import RunFolder
from blockyard.core.errors import ConfigurationError


def wait_until_gone(*paths: Path) -> None:
    deadline = time.monotonic() + 10
    while any(path.exists() for path in paths):
        assert time.monotonic() < deadline, f"still there: {paths}"
        time.sleep(0.005)


def test_folder_is_private_and_short() -> None:
    with RunFolder() as folder:
        assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700
        assert len(str(folder.path / "a" / "offload-worker" / "channel.sock").encode()) < 100


def test_folder_is_short_where_the_usual_place_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TMPDIR", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", "/x" * 40)
    with RunFolder() as folder:
        assert folder.path.parent == Path("/tmp")


def test_a_place_that_cannot_hold_the_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match=r"TMPDIR.*file"):
        RunFolder(tmp_path / "file")


@pytest.mark.parametrize("place", ["/proc/x", "/nowhere", "/dev/null"])
def test_a_place_of_the_users_choice_is_never_exchanged_for_another(
    monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """The library goes to /tmp without a word where TMPDIR cannot be used."""
    monkeypatch.setenv("TMPDIR", place)
    monkeypatch.setattr(tempfile, "tempdir", None)
    with pytest.raises(ConfigurationError, match=rf"TMPDIR.*folder={place}"):
        RunFolder()


def test_no_usable_place_at_all_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TMPDIR", raising=False)

    def nowhere() -> str:
        raise FileNotFoundError(2, "No usable temporary directory found")

    monkeypatch.setattr(tempfile, "gettempdir", nowhere)
    with pytest.raises(ConfigurationError, match="No usable temporary directory"):
        RunFolder()


def test_a_path_with_a_line_break_removes_nothing_else(tmp_path: Path) -> None:
    """The janitor must never take the first half of a name for a name."""
    parent = tmp_path / "half\nremove other"
    parent.mkdir()
    bystander = tmp_path / "half"
    bystander.mkdir()
    with RunFolder(parent) as folder:
        path = folder.path
    assert not path.exists()
    assert bystander.exists()


def test_everything_is_removed_at_the_end(tmp_path: Path) -> None:
    stray = tmp_path / "stray.sock"
    stray.touch()
    with RunFolder(tmp_path) as folder:
        (folder.folder("data") / "file").write_text("x")
        folder.add_outside(stray)
    assert list(tmp_path.iterdir()) == []


def test_kept_folder_stays(tmp_path: Path) -> None:
    with RunFolder(tmp_path, keep=True) as folder:
        (folder.path / "file").write_text("x")
    assert (folder.path / "file").read_text() == "x"


def test_everything_is_removed_when_the_run_is_killed(tmp_path: Path) -> None:
    stray = tmp_path / "stray.sock"
    stray.touch()
    script = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from blockyard.cli.run_folder import RunFolder\n"
        "folder = RunFolder(Path(sys.argv[1]))\n"
        "folder.add_outside(Path(sys.argv[1]) / 'stray.sock')\n"
        "(folder.logs / 'x.log').write_text('x')\n"
        "print(folder.path, flush=True)\n"
        "time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        path = Path(run.stdout.readline().strip())
        assert path.exists()
        run.kill()
    wait_until_gone(path, stray)


@pytest.mark.parametrize("name", ["a\nb", "a\x1bb", "a\udcffb"])
def test_a_name_that_cannot_be_shown_is_refused_and_named(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.delenv("TMPDIR", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", f"/tmp/{name}")
    with pytest.raises(ConfigurationError, match="TMPDIR") as caught:
        RunFolder()
    assert str(caught.value).isprintable()


def test_strays_are_removed_from_a_kept_run_that_is_killed(tmp_path: Path) -> None:
    stray = tmp_path / "stray.sock"
    stray.touch()
    script = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from blockyard.cli.run_folder import RunFolder\n"
        "folder = RunFolder(Path(sys.argv[1]), keep=True)\n"
        "folder.add_stray(Path(sys.argv[1]) / 'stray.sock')\n"
        "print(folder.path, flush=True)\n"
        "time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        path = Path(run.stdout.readline().strip())
        run.kill()
    wait_until_gone(stray)
    assert path.exists()


def test_a_socket_that_another_run_serves_by_now_is_left_alone(tmp_path: Path) -> None:
    stray = tmp_path / "stray.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(stray))
        listener.listen()
        assert not janitor.remove(str(stray))
        assert stray.exists()
    assert janitor.remove(str(stray))
    assert not stray.exists()
