"""A clock that stands still until a test moves it.

Invariants: ``monotonic`` moves only by ``advance`` and never back; the wall clock may be stepped on its own, as the
real one may.
Threading: values; move it from one thread.
"""

from blockyard.core.errors import KernelError


class FakeClock:
    """Implements ``core.clock.Clock``."""

    def __init__(self, monotonic: float = 1_000.0, wall_ms: int = 1_700_000_000_000) -> None:
        """Start at these times."""
        self._monotonic = monotonic
        self._wall_ms = wall_ms

    def monotonic(self) -> float:
        """Seconds; moved by ``advance``."""
        return self._monotonic

    def wall_ms(self) -> int:
        """Milliseconds since the Unix epoch; moved by ``advance`` and ``step_wall``."""
        return self._wall_ms

    def advance(self, seconds: float) -> None:
        """Let time pass on both clocks.

        Raises:
            KernelError: time does not go back.
        """
        if seconds < 0:
            raise KernelError("a monotonic clock does not go back", seconds=seconds)
        self._monotonic += seconds
        self._wall_ms += round(seconds * 1_000)

    def step_wall(self, milliseconds: int) -> None:
        """Set the wall clock forward or back, as an administrator or time service may."""
        self._wall_ms += milliseconds
