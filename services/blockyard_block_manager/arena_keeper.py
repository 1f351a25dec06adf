"""The descriptor of the arena: kept here without mapping it, so that host memory outlives its worker.

Invariants: at most one descriptor is open; every attach of another process gets it with the arena's facts; a change of
arena is announced to those who wait. Threading: one event loop.
"""

import asyncio
import os
from types import TracebackType
from typing import Self

from blockyard.wire.worker_channel import ArenaInfo


class ArenaKeeper:
    """Holder of the arena's descriptor; closes it at the end of its ``with`` block."""

    def __init__(self) -> None:
        """Hold nothing."""
        self._info: ArenaInfo | None = None
        self._fd: int | None = None
        self.known = asyncio.Event()
        """Set while an arena is held."""

    @property
    def info(self) -> ArenaInfo | None:
        """Facts of the arena that is held."""
        return self._info

    @property
    def fds(self) -> tuple[int, ...]:
        """Its descriptor, to travel with a message; empty where none is held."""
        return () if self._fd is None else (self._fd,)

    def keep(self, info: ArenaInfo, fd: int) -> None:
        """Take a descriptor over; an earlier one is closed."""
        self.close()
        self._info, self._fd = info, fd
        self.known.set()

    def close(self) -> None:
        """Let go of the arena. Idempotent."""
        self.known.clear()
        self._info = None
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def __enter__(self) -> Self:
        """Use as a context."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()
