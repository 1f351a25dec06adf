"""Virtual time and the processes in it, all from one seed.

Work is cut into *sections*, each of which a process runs without interruption, as an event loop does. Between any two
sections, so before each step of the whole world, a process may die or stand still: ``plan`` says at which step. One
that stands still keeps what arrives and what falls due until it goes on; what a dead one was to do is gone with it.
The same seed gives the same run.
Threading: one thread, no event loop.
"""

import heapq
import random
from collections.abc import Callable
from typing import Final

from blockyard.core.clock import Clock
from blockyard.core.errors import KernelError
from blockyard.testing.clock import FakeClock

Section = Callable[[], None]


class SimWorld:
    """A scheduler on a clock of its own."""

    def __init__(self, seed: int) -> None:
        """Start with nothing to do; all chance comes from ``random``."""
        self.seed: Final = seed
        self.random: Final = random.Random(seed)
        self.steps = 0
        """Sections that processes have run or were about to run."""
        self._clock = FakeClock()
        self._later: list[tuple[float, int, Section]] = []
        self._scheduled = 0
        self._planned: dict[int, list[Section]] = {}
        self.on_section_end: Section = lambda: None
        """Called when a section is over: for what must hold between any two."""

    @property
    def clock(self) -> Clock:
        """The time of all processes."""
        return self._clock

    @property
    def now(self) -> float:
        """Monotonic seconds."""
        return self._clock.monotonic()

    def step_wall(self, milliseconds: int) -> None:
        """Set the wall clock forward or back, as an administrator or time service may."""
        self._clock.step_wall(milliseconds)

    def after(self, seconds: float, action: Section) -> None:
        """Run ``action`` in ``seconds``; actions of equal time run in the order of these calls."""
        self._scheduled += 1
        heapq.heappush(self._later, (self.now + seconds, self._scheduled, action))

    def plan(self, step: int, fault: Section) -> None:
        """Let something happen right before a step that has not come."""
        self._planned.setdefault(step, []).append(fault)

    def run(self, seconds: float) -> None:
        """Run everything that falls due within so much time, then stand at its end."""
        end = self.now + seconds
        while self._later and self._later[0][0] <= end:
            when, _, action = heapq.heappop(self._later)
            self._clock.advance(max(0.0, when - self.now))
            action()
        self._clock.advance(max(0.0, end - self.now))

    def step(self) -> None:
        """A process is about to run a section: count it, and let happen what is planned for this moment."""
        self.steps += 1
        for fault in self._planned.pop(self.steps, ()):
            fault()


class Process:
    """Lives of one process, one after the other."""

    def __init__(self, world: SimWorld, name: str) -> None:
        """Start as dead; ``start`` begins the first life."""
        self.world: Final = world
        self.name: Final = name
        self.life = 0
        self.alive = False
        self.frozen = False
        self.on_death: Final[list[Section]] = []
        """What others do when a life ends, at once: they are its kernel."""
        self._freezes = 0
        self._kept: list[Section] = []

    # --- work ---------------------------------------------------------------------------------------------------------
    def run(self, section: Section) -> None:
        """Run a section now, or when the process goes on; a dead process runs nothing."""
        self.world.step()
        if not self.alive:
            return
        if self.frozen:
            self._kept.append(section)
            return
        section()
        self.world.on_section_end()

    def after(self, seconds: float, section: Section) -> None:
        """Run a section in ``seconds``, if this life still goes on then."""
        life = self.life

        def due() -> None:
            if life == self.life:
                self.run(section)

        self.world.after(seconds, due)

    # --- lives --------------------------------------------------------------------------------------------------------
    def start(self) -> None:
        """Begin a life.

        Raises:
            KernelError: the earlier one goes on.
        """
        if self.alive:
            raise KernelError("a process has one life at a time", process=self.name)
        self.life += 1
        self.alive, self.frozen = True, False
        self._freezes = 0
        self._kept.clear()
        self.started()

    def kill(self) -> None:
        """End the present life at once, also one that stands still. Harmless for a dead process."""
        if self.alive:
            self.alive = self.frozen = False
            self._kept.clear()
            self.died()
            for seen in self.on_death:
                seen()

    def freeze(self, seconds: float) -> None:
        """Stand still for so long. Harmless for a dead process; the latest end counts."""
        if self.alive:
            life, self.frozen = self.life, True
            self._freezes += 1
            self.world.after(seconds, lambda: self._thaw(life))

    def _thaw(self, life: int) -> None:
        if life != self.life or not self.alive:
            return
        self._freezes -= 1
        if self._freezes:
            return
        self.frozen = False
        kept, self._kept = self._kept, []
        for section in kept:
            self.run(section)

    def started(self) -> None:
        """A life has begun."""

    def died(self) -> None:
        """The life has ended."""
