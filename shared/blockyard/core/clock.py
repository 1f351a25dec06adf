"""Time as a port: the core asks a Clock and never the operating system.

Invariants: ``monotonic`` never goes back; ``wall_ms`` is for logs and for the time part of epochs only, never for
deadlines. Threading: implementations are safe to call from any thread.
"""

import time
from typing import Protocol


class Clock(Protocol):
    """Source of time in seconds (monotonic) and milliseconds (wall)."""

    def monotonic(self) -> float:
        """Seconds from an arbitrary start; never goes back."""
        ...

    def wall_ms(self) -> int:
        """Milliseconds since the Unix epoch; may jump."""
        ...


class SystemClock:
    """The clock of this machine."""

    def monotonic(self) -> float:
        """Seconds of CLOCK_MONOTONIC."""
        return time.monotonic()

    def wall_ms(self) -> int:
        """Milliseconds of CLOCK_REALTIME."""
        return time.time_ns() // 1_000_000


class BootClock(SystemClock):
    """The clock of this machine, which goes on while the machine sleeps: for what others wait for meanwhile."""

    def monotonic(self) -> float:
        """Seconds of CLOCK_BOOTTIME."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)
