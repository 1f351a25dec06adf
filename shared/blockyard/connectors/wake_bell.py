"""A bell that wakes an event loop from another thread, and leaves the interpreter with that thread.

Whatever writes to a socket gives the interpreter away, and a busy loop keeps it for milliseconds. This one system call
is made without letting go of it: the loop wakes at once and runs as soon as the ringing thread waits for something.
Invariants: ringing never blocks, never raises and is never lost; several rings may be heard as one.
Threading: any thread rings; the loop's thread listens. Linux only, like the memory files of engines.
"""

import asyncio
import ctypes
import os
import weakref
from collections.abc import Callable
from typing import Final, final

_libc: Final = ctypes.PyDLL(None)  # unlike CDLL it keeps the interpreter during a call
_eventfd_write: Final = _libc.eventfd_write
_eventfd_write.argtypes = (ctypes.c_int, ctypes.c_uint64)
_eventfd_write.restype = ctypes.c_int


@final
class WakeBell:
    """One bell; its descriptor lives as long as it does, so a late ring reaches nobody else's."""

    def __init__(self) -> None:
        """Begin unheard."""
        self._fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        # Not while the process ends: whoever ends its thread only then still rings, and no number is given away twice.
        weakref.finalize(self, os.close, self._fd).atexit = False

    def ring(self) -> None:
        """Wake the loop that listens, now or as soon as it does; a few hundred nanoseconds."""
        _eventfd_write(self._fd, 1)

    def listen(self, loop: asyncio.AbstractEventLoop, on_ring: Callable[[], None]) -> None:
        """Have the loop call ``on_ring`` after rings, from the loop's thread."""

        def heard() -> None:
            os.eventfd_read(self._fd)
            on_ring()

        loop.add_reader(self._fd, heard)

    def ignore(self, loop: asyncio.AbstractEventLoop) -> None:
        """Stop listening."""
        loop.remove_reader(self._fd)
