"""Whole runs of the command, and what they leave behind."""

import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from blockyard.testing.launcher import Launcher


@pytest.fixture
def launcher(request: pytest.FixtureRequest) -> Iterator[Launcher]:
    """A launcher; the test fails if its run leaves anything."""
    # Not below the folder of the test runner: that is too deep for the paths of unix sockets.
    # Its name has what servers give a meaning in their configurations and arguments.
    with tempfile.TemporaryDirectory(prefix="b y,ü'\"\\u-") as temporary:
        launcher = Launcher(f"{os.getpid()}-{request.node.name}", Path(temporary))
        yield launcher
        try:
            launcher.assert_nothing_left()
        finally:
            for pid in launcher.processes():
                os.kill(pid, signal.SIGKILL)
