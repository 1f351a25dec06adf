"""What signals and missing packages mean while a program is still loading: the end, at once.

The first process of a container is immune to every signal that it does not handle, and loading takes a second: a stop
in that second would have no effect. So each console script calls this before it loads anything, and loads the program
itself after that; the program puts its own handlers in the place of these.
Invariants: importing this loads nothing that takes time. Threading: main thread only.
"""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

EXIT_CANNOT_START: Final = 2
"""What a program ends with when its settings, its folder or what is installed do not let it start."""
STOPPING: Final = (signal.SIGTERM, signal.SIGINT)
_SIGNALLED: Final = 128
"""Exit codes of a shell for what a signal ended begin here."""
_OURS: Final = "blockyard"


def end_on_signals() -> None:
    """From now on each of ``STOPPING`` ends the process with exit code 143 or 130: there is nothing to end in order."""
    for number in STOPPING:
        signal.signal(number, _end_at_once)


@contextmanager
def loading(program: str, extras: str, exit_code: int = EXIT_CANNOT_START) -> Iterator[None]:
    """Around the imports of a program: a package that is not installed ends it with one sentence instead of a trace.

    Args:
        program: its command.
        extras: what has to be installed for it, as pip takes it.
        exit_code: what it ends with then.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith(_OURS):
            raise
        sys.stderr.write(f"{program}: the package {error.name} is not installed: install {extras}\n")
        raise SystemExit(exit_code) from None


def _end_at_once(number: int, _frame: FrameType | None) -> None:
    # Not an exception: it could surface anywhere in a half-loaded module, and be reported there as its failure.
    os._exit(_SIGNALLED + number)
