"""A stand-in for the base image, where no registry can be reached: Debian and its Python, put together by debootstrap.

It is what ``python:3.11-slim-bookworm`` is, as far as the Dockerfile is concerned: the same release of Debian, Python
3.11 as ``python3`` and without byte code, certificates. Making it takes a minute, so it is kept between runs.
"""

import hashlib
import os
import shutil
from pathlib import Path
from typing import Final

from tests.compose.smoke.shell import Shell

_PACKAGES: Final = ("python3", "python3-venv", "ca-certificates")
_RELEASE: Final = "bookworm"
_REMOVED: Final = (
    *("var/cache/apt/archives", "var/lib/apt/lists", "usr/share/doc", "usr/share/man"),
    "usr/lib/python3*/**/__pycache__",
)
_MAKE_SECONDS: Final = 420.0


def base_archive(shell: Shell, work: Path) -> Path:
    """The file system of the base image as one archive, made unless an earlier run has left it.

    Args:
        shell: runs the programs.
        work: folder of this run, for the making of it.
    """
    recipe = hashlib.sha256(" ".join((_RELEASE, *_PACKAGES, *_REMOVED)).encode()).hexdigest()[:12]
    kept = _cache(work) / f"base-{recipe}.tar"
    if kept.exists():
        return kept
    root = work / "base"
    packages = ",".join(_PACKAGES)
    shell.run(
        *("debootstrap", "--variant=minbase", f"--include={packages}", _RELEASE, root),
        seconds=_MAKE_SECONDS,
    )
    for pattern in _REMOVED:
        for folder in list(root.glob(pattern)):
            shutil.rmtree(folder)
    fresh = kept.with_suffix(f".{os.getpid()}")
    shell.run("tar", "--one-file-system", "-C", root, "-cf", fresh, ".", seconds=120.0)
    fresh.replace(kept)
    for old in set(kept.parent.glob("base-*.tar")) - {kept}:
        old.unlink()
    shutil.rmtree(root)
    return kept


def _cache(work: Path) -> Path:
    """Folder that outlives the run; the folder of the run where there is none to be written."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = home / "blockyard-compose-smoke"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return work
    return folder if os.access(folder, os.W_OK) else work
