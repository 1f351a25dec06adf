"""Processes that stand still for a while: their sockets accept, nothing answers.

The signal is only on its way when ``kill`` returns: threads that run on another processor go on until they take it, and
what is asked in that moment may still be answered. So the body starts when every thread has stopped.
Threading: blocks for a moment.
"""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from blockyard.core.errors import DeadlineExceededError

_WAIT_SECONDS: Final = 10.0
_POLL_SECONDS: Final = 0.001
_STANDING: Final = frozenset("TtZX")
"""Stopped, or no longer there at all."""


@contextmanager
def frozen(leader: int) -> Iterator[None]:
    """With all processes of the group of ``leader`` stopped.

    Raises:
        DeadlineExceededError: they do not stop.
    """
    os.killpg(leader, signal.SIGSTOP)
    try:
        deadline = time.monotonic() + _WAIT_SECONDS
        while not all(state in _STANDING for state in _states(leader)):
            if time.monotonic() > deadline:
                raise DeadlineExceededError("a process does not stop", process=leader)
            time.sleep(_POLL_SECONDS)
        yield
    finally:
        with suppress(ProcessLookupError):
            os.killpg(leader, signal.SIGCONT)


def _states(leader: int) -> Iterator[str]:
    """State of every thread of the group, as the kernel names it."""
    for process in Path("/proc").glob("[0-9]*"):
        if _fields(process / "stat")[2:3] == [str(leader)]:
            for thread in process.glob("task/*/stat"):
                yield from _fields(thread)[:1]


def _fields(stat: Path) -> list[str]:
    """State, parent, group and so on; empty if it has ended."""
    try:
        return stat.read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []
