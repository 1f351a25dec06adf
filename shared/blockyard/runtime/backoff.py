"""How long to wait before the next attempt: exponential, bounded, spread by jitter.

Invariants: waits lie between half of the step and the step; steps double up to the bound; ``reset`` starts over. With
a seed the waits are reproducible.
Threading: one owner.
"""

import random

from blockyard.core.errors import ConfigurationError


class Backoff:
    """Sequence of waits for one thing that is retried."""

    def __init__(self, first_seconds: float, max_seconds: float, *, seed: int | None = None) -> None:
        """Start with waits up to ``first_seconds``, growing to ``max_seconds``.

        Raises:
            ConfigurationError: not 0 < first <= max.
        """
        if not 0 < first_seconds <= max_seconds:
            raise ConfigurationError("wrong backoff", first_seconds=first_seconds, max_seconds=max_seconds)
        self._first_seconds = first_seconds
        self._max_seconds = max_seconds
        self._step_seconds = first_seconds
        self._random = random.Random(seed)

    def next_seconds(self) -> float:
        """Seconds to wait now; the next ones will be longer."""
        step = self._step_seconds
        self._step_seconds = min(2 * step, self._max_seconds)
        # Half fixed, half random: peers that failed together come back spread out, yet never at once.
        return step / 2 + self._random.random() * step / 2

    def reset(self) -> None:
        """Success: start over with the shortest wait."""
        self._step_seconds = self._first_seconds
