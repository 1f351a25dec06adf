"""Open files: servers and services of a run inherit the limit of the command.

Threading: called once, at the start of a run.
"""

import contextlib
import resource
from typing import Final

from blockyard.cli.failures import SystemLimitError

NEEDED_OPEN_FILES: Final = 512
"""The object store takes most: about 110 in a quiet run, more with connections."""
_WANTED_OPEN_FILES: Final = 4_096


def require_open_files() -> None:
    """Raise the own limit as far as allowed and sensible.

    Raises:
        SystemLimitError: it stays too low for a run.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if resource.RLIM_INFINITY in (soft, hard) and soft in (resource.RLIM_INFINITY, hard):
        return
    wanted = _WANTED_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, _WANTED_OPEN_FILES)
    if soft < wanted:
        # Some systems allow less than they say; what was there may suffice.
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
    if soft < NEEDED_OPEN_FILES:
        raise SystemLimitError(
            "a run needs more open files than are allowed", limit="ulimit -n", allowed=soft, needed=NEEDED_OPEN_FILES
        )
