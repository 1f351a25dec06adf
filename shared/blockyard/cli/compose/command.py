"""Runs docker compose, or what is used in its place, on one project.

Invariants: every command has a time limit, and none is left running; an error says which command it was and how its
output ended. Standard output is never part of an error: it may hold secrets.
Threading: one event loop, in the main thread.
"""

import asyncio
import os
import shlex
import signal
from collections.abc import Sequence
from contextlib import suppress
from io import FileIO
from pathlib import Path
from typing import Final, final

from blockyard.cli.failures import ComposeError
from blockyard.core.errors import ConfigurationError

_USUAL_SECONDS: Final = 60.0
_TAIL_CHARACTERS: Final = 2_000


@final
class ComposeCommand:
    """The command with everything that says which project is meant."""

    def __init__(self, words: Sequence[str], files: Sequence[Path], project: str, profile: str) -> None:
        """Use ``words`` on ``files``; an empty ``project`` leaves the name to the files."""
        named = ("--project-name", project) if project else ()
        placed = (word for file in files for word in ("--file", str(file)))
        self._words = (*words, *placed, *named, "--profile", profile)

    def line(self, *arguments: str) -> str:
        """The command line, to be shown."""
        return shlex.join((*self._words, *arguments))

    async def run(self, *arguments: str, limit_seconds: float = _USUAL_SECONDS) -> str:
        """Run to the end; what it wrote to its standard output.

        Raises:
            ConfigurationError: there is no such program.
            ComposeError: it failed, or took longer than the limit.
        """
        with _memory_file("output") as output, _memory_file("errors") as errors:
            status = await self._status(arguments, output, errors, limit_seconds)
            if status:
                tail = _text_of(errors).strip()[-_TAIL_CHARACTERS:]
                raise ComposeError(f"{self.line(*arguments)} ended with status {status}; end of its output:\n{tail}\n")
            return _text_of(output)

    async def _status(self, arguments: Sequence[str], output: FileIO, errors: FileIO, limit_seconds: float) -> int:
        """How it ended."""
        try:
            process = await asyncio.create_subprocess_exec(
                *(*self._words, *arguments),
                stdin=asyncio.subprocess.DEVNULL,
                # No pipes: their end does not come as long as anything that the command has started holds them.
                stdout=output,
                stderr=errors,
                # Ctrl-C is for this process, which then ends what it has started.
                start_new_session=True,
            )
        except OSError as error:
            reason = error.strerror or str(error)
            raise ConfigurationError(
                "the program cannot be run", key="--compose-command", program=self._words[0], reason=reason
            ) from error
        try:
            async with asyncio.timeout(limit_seconds):
                return await process.wait()
        except TimeoutError:
            raise ComposeError(f"{self.line(*arguments)} did not end within {limit_seconds:g} s.") from None
        finally:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()


def _memory_file(name: str) -> FileIO:
    return FileIO(os.memfd_create(name, os.MFD_CLOEXEC), "r+")


def _text_of(file: FileIO) -> str:
    """All of it; the position stays, because whoever still writes has the same."""
    return os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0).decode(errors="replace")
