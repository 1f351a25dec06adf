"""What an error of the operating system means for a run.

Threading: values only.
"""

import errno
from typing import Final

from blockyard.cli.failures import SystemCallError, SystemLimitError
from blockyard.core.errors import BlockyardError, DiskFullError

_FULL: Final = (errno.ENOSPC, errno.EDQUOT)
_TOO_MANY_FILES: Final = (errno.EMFILE, errno.ENFILE)


def meaning_of(error: OSError) -> BlockyardError:
    """The typed error for one that nobody nearer to its cause expected."""
    reason = error.strerror or str(error)
    where = {} if error.filename is None else {"path": str(error.filename)}
    if error.errno in _FULL:
        return DiskFullError("the disk of the run is full", key="TMPDIR", **where, reason=reason)
    if error.errno in _TOO_MANY_FILES:
        return SystemLimitError("too few open files are allowed", limit="ulimit -n", **where, reason=reason)
    return SystemCallError(**where, reason=reason)
