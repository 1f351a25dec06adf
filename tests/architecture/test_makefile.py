"""Installing works also for a user without a home."""

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
