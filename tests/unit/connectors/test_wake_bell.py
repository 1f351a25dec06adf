"""A bell that wakes an event loop from another thread."""

import asyncio
import subprocess
import sys
import threading
import time

import pytest

from blockyard.connectors.wake_bell import WakeBell


async def test_a_ring_of_another_thread_wakes_the_loop_that_waits() -> None:
    bell, heard = WakeBell(), asyncio.Event()
    bell.listen(asyncio.get_running_loop(), heard.set)
    ringing = threading.Thread(target=bell.ring)
    ringing.start()
    async with asyncio.timeout(10):
        await heard.wait()
    ringing.join()
    bell.ignore(asyncio.get_running_loop())


async def test_rings_before_the_loop_listens_are_heard_once() -> None:
    bell, heard, rung = WakeBell(), [0], asyncio.Event()

    def on_ring() -> None:
        heard[0] += 1
        rung.set()

    for _ in range(3):
        bell.ring()
    bell.listen(asyncio.get_running_loop(), on_ring)
    async with asyncio.timeout(10):
        await rung.wait()
    for _ in range(3):
        await asyncio.sleep(0)
    assert heard == [1]
    bell.ignore(asyncio.get_running_loop())
    bell.ring()


@pytest.mark.timeout(60)
def test_ringing_does_not_hand_the_interpreter_over() -> None:
    """A thread that is about to run gets no turn between two rings, however many there are."""
    bell, turns = WakeBell(), 0
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1_000)
    try:
        stop = threading.Event()

        def take_turns() -> None:
            nonlocal turns
            while not stop.is_set():
                turns += 1
                time.sleep(0.0001)  # wants the interpreter again at once

        other = threading.Thread(target=take_turns)
        other.start()
        before = turns
        for _ in range(10_000):
            bell.ring()
        during = turns - before
        stop.set()
        other.join()
    finally:
        sys.setswitchinterval(interval)
    assert during == 0


_ENDS_LATE = """
import weakref
from contextlib import asynccontextmanager
from blockyard.connectors.client_thread import ClientThread

class Owner:
    thread = None

def end():
    print("ended in time" if Owner.thread.stop(0.5) else "left behind")

@asynccontextmanager
async def connect():
    yield None

owner = Owner()
weakref.finalize(owner, end)
Owner.thread = ClientThread(connect, "test")
Owner.thread.start()
"""


def test_whoever_ends_its_thread_while_the_process_ends_is_heard() -> None:
    """An engine within its caller's process ends when that does; what it holds is finalized newest first."""
    ended = subprocess.run([sys.executable, "-c", _ENDS_LATE], capture_output=True, text=True, timeout=50, check=True)
    assert (ended.stdout.strip(), ended.stderr) == ("ended in time", "")
