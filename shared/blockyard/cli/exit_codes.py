"""Exit codes of the ``blockyard`` command.

Threading: values only.
"""

from typing import Final

EXIT_OK: Final = 0
"""Done; ``up``: ended by Ctrl-C."""
EXIT_FAILED: Final = 1
"""A check of ``demo`` failed or was not reached, a process ended by itself, the output could not be written, or a node
did not answer what ``why`` and ``loads`` asked it."""
EXIT_USAGE: Final = 2
"""Wrong usage or settings."""
EXIT_START: Final = 3
"""Something did not start, also because time, disk or a system limit did not suffice."""
EXIT_INTERRUPTED: Final = 130
"""Interrupted: ``demo`` at any time, ``up`` while it was still loading: nothing had been started."""
EXIT_CODES_TEXT: Final = (
    "Exit codes: 0 done (up: ended by Ctrl-C); 1 a check failed or was not reached, a process ended by itself, a node "
    "does not answer or does not know the request, or the output cannot be written; 2 wrong usage or settings; "
    "3 something did not start, also for want of time, disk or open files; 130 interrupted (demo: at any time, up: "
    "while the command was still loading)."
)
