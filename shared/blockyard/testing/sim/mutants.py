"""How soon a simulation catches a system that breaks a rule on purpose.

Threading: one thread.
"""

from collections.abc import Callable

from blockyard.testing.sim.write_oracle import BrokenRuleError


def seeds_until_caught(run: Callable[[int], object], rules: tuple[str, ...], limit: int) -> int:
    """Number of seeds, from 0 on, until a run is stopped for breaking one of ``rules``; ``limit`` + 1 where none is.

    Runs that are stopped for something else count as seeds: a mistake may show in more than one way.
    """
    for seed in range(limit):
        try:
            run(seed)
        except BrokenRuleError as error:
            if str(error).split(":")[0] in rules:
                return seed + 1
    return limit + 1
