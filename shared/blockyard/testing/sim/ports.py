"""Ports between simulated processes: one that loses, repeats, delays and reorders, and one that only ends.

Threading: one thread.
"""

from dataclasses import dataclass
from typing import Final

from blockyard.testing.sim.world import Process, Section, SimWorld


@dataclass(slots=True)
class PortFaults:
    """What may happen to one message; changed while a simulation runs."""

    loss: float = 0.0
    repeat: float = 0.0
    late: float = 0.0
    """Part of the messages that take up to ``late_seconds`` instead of ``usual_seconds``."""
    usual_seconds: float = 0.01
    late_seconds: float = 5.0

    def end(self) -> None:
        """From now on everything arrives once and in time."""
        self.loss = self.repeat = self.late = 0.0


class LossyPort:
    """Carries messages in any order, once, more than once, late or never; but to the life they were sent to only.

    A new process is reached by new connections alone: what an earlier one was sent went with its socket.
    """

    def __init__(self, world: SimWorld, faults: PortFaults) -> None:
        """Use ``faults``, which others may share."""
        self._world = world
        self.faults: Final = faults

    def send(self, receiver: Process, message: Section) -> None:
        """Have a process run what a message makes it do."""
        chance, faults, life = self._world.random, self.faults, receiver.life
        for _ in range(1 + (chance.random() < faults.repeat)):
            if chance.random() < faults.loss:
                continue
            late = chance.random() < faults.late
            delay = chance.uniform(0.0, faults.late_seconds if late else faults.usual_seconds)
            self._world.after(delay, lambda: receiver.run(message) if receiver.life == life else None)


class StreamPort:
    """Carries messages in order while it is open, as a socket does; what was under way at its end never arrives."""

    def __init__(self, world: SimWorld, longest_seconds: float = 0.02) -> None:
        """Start open."""
        self._world = world
        self._longest_seconds = longest_seconds
        self._arrives_at: dict[Process, float] = {}
        self.open = True

    def send(self, receiver: Process, message: Section) -> None:
        """Have a process run what a message makes it do, after all messages before it."""
        now = self._world.now
        arrival = now + self._world.random.uniform(0.0, self._longest_seconds)
        arrival = self._arrives_at[receiver] = max(arrival, self._arrives_at.get(receiver, now))
        life = receiver.life
        self._world.after(arrival - now, lambda: receiver.run(message) if self.open and receiver.life == life else None)

    def close(self) -> None:
        """Lose what is under way. Idempotent."""
        self.open = False
