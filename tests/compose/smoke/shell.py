"""Programs that the smoke run starts: bounded in time, ended as whole groups, everything they say kept in one log.

Invariants: a program that outlives its time, or an interrupt of this process, is killed with all that it started in its
group. Threading: any thread.
"""

import os
import shlex
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, final

_TAIL_LINES: Final = 25


class SmokeError(Exception):
    """The run cannot go on; the message is for people."""


@final
@dataclass(frozen=True, slots=True)
class Done:
    """A program that has ended."""

    status: int
    out: str
    err: str

    @property
    def text(self) -> str:
        """Both streams."""
        return f"{self.out}\n{self.err}".strip()


@final
class Deadline:
    """Moment at which the whole run gives up."""

    def __init__(self, seconds: float) -> None:
        """Begin now."""
        self._end = time.monotonic() + seconds

    def within(self, seconds: float) -> float:
        """``seconds``, or what is left of the whole run if that is less.

        Raises:
            SmokeError: nothing is left.
        """
        left = self._end - time.monotonic()
        if left <= 0:
            raise SmokeError("the time of the run is over")
        return min(seconds, left)


@final
@dataclass(frozen=True, slots=True)
class Shell:
    """Starts programs with one environment and one log."""

    log: Path
    deadline: Deadline
    environment: Mapping[str, str] = field(default_factory=dict)
    folder: Path | None = None

    def with_environment(self, **more: str) -> "Shell":
        """The same with further variables."""
        return Shell(self.log, self.deadline, {**self.environment, **more}, self.folder)

    def attempt(self, *words: str | Path, seconds: float = 60.0, stdin: Path | None = None) -> Done:
        """Run a program to its end, whatever its status.

        Raises:
            SmokeError: it cannot be started, or takes too long.
        """
        command = [str(word) for word in words]
        with self.log.open("a") as log:
            log.write(f"$ {shlex.join(command)}\n")
            log.flush()
            done = self._run(command, self.deadline.within(seconds), stdin)
            log.write(f"{done.text}\n-> {done.status}\n")
        return done

    def run(self, *words: str | Path, seconds: float = 60.0, stdin: Path | None = None) -> str:
        """Run a program that has to succeed; returns what it wrote to its standard output.

        Raises:
            SmokeError: it failed; holds the end of what it said.
        """
        done = self.attempt(*words, seconds=seconds, stdin=stdin)
        if done.status != 0:
            tail = "\n".join(done.text.splitlines()[-_TAIL_LINES:])
            raise SmokeError(f"{shlex.join(map(str, words))} ended with status {done.status}:\n{tail}")
        return done.out

    def start(self, *words: str | Path) -> subprocess.Popen[bytes]:
        """Start a program that goes on; what it says goes to the log."""
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [str(word) for word in words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment(),
                cwd=self.folder,
                start_new_session=True,
            )

    def _run(self, command: Sequence[str], seconds: float, stdin: Path | None) -> Done:
        try:
            with open(stdin or os.devnull, "rb") as source:
                process = subprocess.Popen(
                    command,
                    stdin=source,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    env=self._environment(),
                    cwd=self.folder,
                    start_new_session=True,
                )
        except OSError as error:
            raise SmokeError(f"{command[0]} cannot be started: {error.strerror}") from error
        try:
            out, err = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            end_group(process)
            raise SmokeError(f"{shlex.join(command)} took more than {seconds:.0f} s") from None
        except BaseException:
            end_group(process)
            raise
        return Done(process.returncode, out.decode(errors="replace"), err.decode(errors="replace"))

    def _environment(self) -> dict[str, str]:
        return {**os.environ, **self.environment}


def end_group(process: subprocess.Popen[bytes]) -> None:
    """Kill a program and what it started in its group."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            stream.close()
