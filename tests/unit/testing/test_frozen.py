"""A group of processes stands still from the first moment of the body on, with all its threads, and goes on after."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from blockyard.core.errors import DeadlineExceededError
from blockyard.testing import frozen as module
from blockyard.testing.frozen import frozen

BUSY = """
import hashlib, os, threading

def work():
    while True:
        hashlib.sha256(bytes(1 << 16))  # without the lock of the interpreter

os.fork()
for _ in range(3):
    threading.Thread(target=work, daemon=True).start()
os.write(1, b"%d\\n" % os.getpid())  # one write: both share the pipe, and an unbuffered print makes two
threading.Event().wait()
"""
THREADS = 2 * 4


@pytest.fixture
def group() -> Iterator[tuple[int, list[int]]]:
    """Leader of a group of two processes with busy threads, and both of them."""
    with subprocess.Popen([sys.executable, "-c", BUSY], start_new_session=True, stdout=subprocess.PIPE) as leader:
        assert leader.stdout is not None
        try:
            members = sorted(int(leader.stdout.readline()) for _ in range(2))
            yield leader.pid, members
        finally:
            os.killpg(leader.pid, signal.SIGKILL)


def states(members: list[int]) -> list[str]:
    stats = [stat for member in members for stat in Path(f"/proc/{member}/task").glob("*/stat")]
    return [stat.read_text().rpartition(")")[2].split()[0] for stat in stats]


def test_all_threads_stand_still_and_go_on(group: tuple[int, list[int]]) -> None:
    leader, members = group
    for _ in range(5):
        with frozen(leader):
            assert states(members) == ["T"] * THREADS
        assert states(members) != ["T"] * THREADS


def test_a_process_that_does_not_stop_is_named(group: tuple[int, list[int]], monkeypatch: pytest.MonkeyPatch) -> None:
    leader, _ = group
    monkeypatch.setattr(module, "_WAIT_SECONDS", 0.0)
    monkeypatch.setattr(module, "_STANDING", frozenset())
    with pytest.raises(DeadlineExceededError, match=f"process={leader}"), frozen(leader):
        pytest.fail("it has not stopped")
