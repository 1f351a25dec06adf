"""Starts the ``blockyard`` command the way a user does, and finds out what a run left behind.

Threading: blocking calls, for tests without an event loop.
"""

import os
import subprocess
import sysconfig
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from blockyard.cli.child_process import child_environment

_COMMAND: Final = str(Path(sysconfig.get_path("scripts")) / "blockyard")
_GONE_SECONDS: Final = 10.0

RunningCommand = subprocess.Popen[str]


@dataclass(frozen=True, slots=True)
class Launcher:
    """Starts the command with a mark in its environment, by which all processes of the run are found again."""

    mark: str
    temporary: Path

    def start(self, *arguments: str) -> RunningCommand:
        """Start ``blockyard`` with these arguments in a session of its own."""
        added = {"RUN_MARK": self.mark, "TMPDIR": str(self.temporary)}
        return subprocess.Popen(
            [_COMMAND, *arguments],
            env=child_environment(os.environ, added),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def processes(self) -> list[int]:
        """Every living process of the run."""
        needle = f"RUN_MARK={self.mark}".encode()
        entries = (entry for entry in Path("/proc").iterdir() if entry.name.isdigit())
        return [int(entry.name) for entry in entries if needle in _environment(entry)]

    def assert_nothing_left(self) -> None:
        """No process, no file in the folder for temporary files; given a moment, for runs that were killed."""
        deadline = time.monotonic() + _GONE_SECONDS
        while (self.processes() or any(self.temporary.iterdir())) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert self.processes() == []
        assert list(self.temporary.iterdir()) == []


def _environment(process: Path) -> bytes:
    try:
        return (process / "environ").read_bytes()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return b""
