"""Standard streams that are there and take every text, whoever started the command.

A descriptor 0, 1 or 2 that was closed by the caller is given to the next file or socket that is opened, and what is
meant for the terminal lands in it. So closed ones are opened on the null device before anything else. A stream that
cannot be written (full disk, closed pipe) is given up with one sentence.
Threading: called at the start and at the end, main thread.
"""

import contextlib
import os
import sys
from io import TextIOWrapper
from typing import Final

from blockyard.cli.exit_codes import EXIT_FAILED, EXIT_OK
from blockyard.cli.failures import OutputError
from blockyard.core.errors import BlockyardError

_STANDARD: Final = (0, 1, 2)


def require_standard_streams() -> None:
    """Open the standard descriptors that are closed, and the Python files that belong to them."""
    for descriptor in _STANDARD:
        try:
            os.fstat(descriptor)
        except OSError:
            # The lowest free number is given out: all lower ones are open by now.
            os.open(os.devnull, os.O_RDWR)
    if sys.stdin is None:
        sys.stdin = os.fdopen(0, "r", closefd=False)
    if sys.stdout is None:
        sys.stdout = os.fdopen(1, "w", closefd=False)
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", closefd=False)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            # Names of folders hold any character; an old terminal does not know them all.
            stream.reconfigure(errors="backslashreplace")


def complain(error: BlockyardError) -> None:
    """One sentence on stderr, if that can be written at all."""
    with contextlib.suppress(OSError):
        sys.stderr.write(f"blockyard: {error}\n")
        sys.stderr.flush()


def flush_standard_streams(code: int) -> int:
    """Write what is still buffered; the exit code, which is a failure when that cannot be done."""
    try:
        sys.stdout.flush()
    except OSError as error:
        if code == EXIT_OK:
            complain(OutputError(reason=error.strerror or str(error)))
            code = EXIT_FAILED
        _give_up(1)
    try:
        sys.stderr.flush()
    except OSError:
        code = code or EXIT_FAILED
        _give_up(2)
    return code


def _give_up(descriptor: int) -> None:
    """Let the interpreter's own last flush end in the null device."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, descriptor)
    os.close(null)
