"""What a run on podman could leave on the machine, looked for after it has ended."""

import contextlib
from pathlib import Path
from typing import Final

from tests.compose.smoke.podman import STATE

_GROUPS: Final = Path("/sys/fs/cgroup")
_PARENT: Final = "libpod_parent"


def remove_groups() -> None:
    """Remove the control groups that podman makes and never removes; those that are in use stay."""
    for folder in _groups():
        for inner in sorted(folder.rglob("*"), reverse=True):
            if inner.is_dir():
                with contextlib.suppress(OSError):
                    inner.rmdir()
        with contextlib.suppress(OSError):
            folder.rmdir()


def remove_mount_point() -> None:
    """Remove the folder on which parts of a run mount what podman needs while it runs: outside of them it is empty."""
    with contextlib.suppress(FileNotFoundError):
        STATE.rmdir()


def leftovers(folder: Path) -> list[str]:
    """Everything that still names the folder of the run, and control groups of containers."""
    found = [f"folder {path}" for path in (folder, STATE) if path.exists()]
    found += [
        f"mount {line.split()[1]}"
        for line in Path("/proc/mounts").read_text().splitlines()
        if str(folder) in line or str(STATE) in line
    ]
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if str(folder).encode() in (process / "cmdline").read_bytes():
                found.append(f"process {process.name}")
    return found + [f"control group {group}" for group in _groups()]


def _groups() -> list[Path]:
    return [path for depth in ("", "*/") for path in _GROUPS.glob(f"{depth}{_PARENT}")]
