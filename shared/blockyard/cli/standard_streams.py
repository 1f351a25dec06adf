"""Standard streams that are there, whoever started the command.

A descriptor 0, 1 or 2 that was closed by the caller is given to the next file or socket that is opened, and what is
meant for the terminal lands in it. So closed ones are opened on the null device before anything else.
Threading: called once, at the start.
"""

import os
import sys
from typing import Final

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
