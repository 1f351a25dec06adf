"""The folder of a run: one run at a time on a machine, and nothing stays of one that was killed.

Invariants: a run holds its folder locked until its last process has ended, so that only folders of the dead are taken
away. Which run is the only one is told by an abstract socket, which the kernel forgets with its process.
Threading: none.
"""

import fcntl
import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

from tests.compose.smoke.shell import SmokeError

PREFIX: Final = "blockyard-smoke-"
_ONLY_ONE: Final = "\0blockyard-compose-smoke"


@final
@dataclass(frozen=True, slots=True)
class RunFolder:
    """A folder that is there for one run."""

    path: Path
    lock: int
    """Descriptor that holds it; whoever inherits it holds it too."""


@contextmanager
def the_only_run(name: str = _ONLY_ONE) -> Iterator[None]:
    """Be the only run on this machine.

    Raises:
        SmokeError: there is another one.
    """
    with closing(socket.socket(socket.AF_UNIX)) as mark:
        try:
            mark.bind(name)
        except OSError:
            raise SmokeError("another run is in progress on this machine; wait for its end, or stop it") from None
        yield


@contextmanager
def run_folder(parent: Path | None = None) -> Iterator[RunFolder]:
    """Make a folder below ``parent``, or where temporary files go, and remove it at the end."""
    path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
    lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield RunFolder(path, lock)
    finally:
        shutil.rmtree(path)
        os.close(lock)


def remove_dead(parent: Path | None = None) -> list[Path]:
    """Remove the folders of this user's runs that were killed; returns them."""
    folders = Path(tempfile.gettempdir() if parent is None else parent).glob(f"{PREFIX}*")
    return [folder for folder in folders if _remove_if_dead(folder)]


def _remove_if_dead(folder: Path) -> bool:
    try:
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        if os.fstat(lock).st_uid != os.geteuid():
            return False
        with suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder)
            return True
        return False
    finally:
        os.close(lock)
