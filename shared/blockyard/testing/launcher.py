"""Starts the ``blockyard`` command the way a user does, and finds out what a run left behind.

Threading: blocking calls, for tests without an event loop.
"""

import os
import subprocess
import sysconfig
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from blockyard.cli.child_process import child_environment

_COMMAND: Final = str(Path(sysconfig.get_path("scripts")) / "blockyard")
_GONE_SECONDS: Final = 10.0

RunningCommand = subprocess.Popen[str]


@dataclass(frozen=True, slots=True)
class Launcher:
    """Starts the command with a mark in its environment, by which all processes of the run are found again."""

    mark: str
    temporary: Path

    def start(
        self,
        *arguments: str,
        environment: Mapping[str, str] | None = None,
        stdout: int | IO[str] = subprocess.PIPE,
        wrapper: Sequence[str] = (),
    ) -> RunningCommand:
        """Start ``blockyard`` with these arguments in a session of its own.

        Args:
            arguments: what follows the name of the command.
            environment: variables to add, settings among them.
            stdout: where its output goes.
            wrapper: a program and arguments that run the command line behind them.
        """
        added = {"RUN_MARK": self.mark, "TMPDIR": str(self.temporary)} | dict(environment or {})
        return subprocess.Popen(
            [*wrapper, _COMMAND, *arguments],
            env=child_environment(os.environ, added),
            stdin=subprocess.DEVNULL,
            stdout=stdout,
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
