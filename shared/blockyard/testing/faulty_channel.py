"""Virtual time and a channel that loses, repeats, delays and reorders, all from one seed.

A simulation schedules callables; ``run_until`` executes them in order of time while nothing sleeps. The same seed gives
the same run.
Threading: one thread, no event loop.
"""

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from blockyard.testing.clock import FakeClock


class VirtualTime:
    """Callables by time, on a fake clock."""

    def __init__(self, seed: int) -> None:
        """Start at the fake clock's start; all chance comes from ``random``."""
        self.clock: Final = FakeClock()
        self.random: Final = random.Random(seed)
        self._later: list[tuple[float, int, Callable[[], None]]] = []
        self._scheduled = 0

    @property
    def now(self) -> float:
        """Monotonic seconds."""
        return self.clock.monotonic()

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        """Run ``action`` in ``seconds``; actions of equal time run in order of this call."""
        self._scheduled += 1
        heapq.heappush(self._later, (self.now + seconds, self._scheduled, action))

    def run_until(self, end: float) -> None:
        """Run everything scheduled up to ``end``, then stand there."""
        while self._later and self._later[0][0] <= end:
            when, _, action = heapq.heappop(self._later)
            self.clock.advance(max(0.0, when - self.now))
            action()
        self.clock.advance(max(0.0, end - self.now))


@dataclass(slots=True)
class Faults:
    """What may happen to one message."""

    loss: float = 0.0
    repeat: float = 0.0
    late: float = 0.0
    """Part of the messages that are delayed by up to ``late_seconds`` instead of ``usual_seconds``."""
    usual_seconds: float = 0.01
    late_seconds: float = 5.0


class FaultyChannel:
    """Carries calls from one side to the other; order is not kept."""

    def __init__(self, time: VirtualTime, faults: Faults) -> None:
        """Use ``faults``, which may be changed while the simulation runs."""
        self._time = time
        self.faults: Final = faults

    def carry(self, deliver: Callable[[], None]) -> None:
        """Deliver once, more than once, late, or never."""
        chance = self._time.random
        copies = 1 + (chance.random() < self.faults.repeat)
        for _ in range(copies):
            if chance.random() < self.faults.loss:
                continue
            late = chance.random() < self.faults.late
            longest = self.faults.late_seconds if late else self.faults.usual_seconds
            self._time.after(chance.uniform(0.0, longest), deliver)
