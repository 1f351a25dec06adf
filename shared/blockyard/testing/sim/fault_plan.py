"""Which process dies or stands still at which step: every pair of such faults in turn, at steps drawn from the seed.

Threading: one thread.
"""

from collections.abc import Sequence
from enum import Enum, unique
from functools import partial
from itertools import product

from blockyard.testing.sim.world import Process, SimWorld


@unique
class Fault(Enum):
    """What happens to a process."""

    KILL = "kill"
    FREEZE = "freeze"


def plan_pair(world: SimWorld, processes: Sequence[Process], steps: int, longest_freeze_seconds: float) -> None:
    """Plan two faults within the first ``steps`` steps: pair after pair with the seed, the steps by chance.

    With n processes the pairs repeat every (2n)² seeds.
    """
    single = list(product(processes, Fault))
    pairs = list(product(single, single))
    for process, fault in pairs[world.seed % len(pairs)]:
        step = world.random.randint(1, steps)
        seconds = world.random.uniform(0.05, longest_freeze_seconds)
        world.plan(step, process.kill if fault is Fault.KILL else partial(process.freeze, seconds))
