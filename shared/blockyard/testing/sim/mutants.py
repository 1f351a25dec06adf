"""How soon a simulation catches a system that breaks a rule on purpose.

Threading: one thread.
"""

from collections.abc import Callable

from blockyard.testing.sim.write_oracle import BrokenRuleError


def seeds_until_caught(run: Callable[[int], object], rule: str, limit: int) -> int:
    """Number of seeds, from 0 on, until a run is stopped for breaking ``rule``; ``limit`` + 1 where none is.

    Runs that are stopped for something else count as seeds: a mistake may show in more than one way.
    """
    for seed in range(limit):
        try:
            run(seed)
        except BrokenRuleError as error:
            if str(error).startswith(f"{rule}:"):
                return seed + 1
    return limit + 1
