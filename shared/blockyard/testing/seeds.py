"""Seeds of the simulations: how many, in which portions, and how a failing one is run alone.

``BLOCKYARD_SIM_SEEDS`` says how many seeds each simulation runs, 2,000 where it is not set; ``BLOCKYARD_SIM_SEED``
names a single one. A test takes a portion of them, so that none lasts long::

    @pytest.mark.parametrize("seeds", seed_batches(), ids=str)
    def test_something(seeds: SeedBatch) -> None:
        run_seeds(seeds, check_one_seed)

Threading: values only.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, final

from blockyard.core.errors import ConfigurationError

COUNT_VARIABLE: Final = "BLOCKYARD_SIM_SEEDS"
SINGLE_VARIABLE: Final = "BLOCKYARD_SIM_SEED"
_DEFAULT_COUNT: Final = 2_000
_BATCH: Final = 20


@final
@dataclass(frozen=True, slots=True)
class SeedBatch:
    """Neighbouring seeds that one test item runs."""

    first: int
    count: int

    def __iter__(self) -> Iterator[int]:
        """Each seed, in order."""
        return iter(range(self.first, self.first + self.count))

    def __str__(self) -> str:
        """What names the test item."""
        return f"seed{self.first}" if self.count == 1 else f"seeds{self.first}-{self.first + self.count - 1}"


def seed_batches(size: int = _BATCH) -> list[SeedBatch]:
    """All seeds of this run, in portions of ``size``.

    Raises:
        ConfigurationError: a variable holds no number that makes sense.
    """
    single = os.environ.get(SINGLE_VARIABLE)
    if single is not None:
        return [SeedBatch(_number(SINGLE_VARIABLE, single, least=0), 1)]
    count = _number(COUNT_VARIABLE, os.environ.get(COUNT_VARIABLE, str(_DEFAULT_COUNT)), least=1)
    return [SeedBatch(first, min(size, count - first)) for first in range(0, count, size)]


def run_seeds(seeds: SeedBatch, check: Callable[[int], object]) -> None:
    """Call ``check`` with each seed; an exception leaves with the name of its seed and how to run that one alone."""
    for seed in seeds:
        try:
            check(seed)
        except Exception as error:
            error.add_note(f"seed {seed}; it alone: {SINGLE_VARIABLE}={seed} pytest FILE_OF_THIS_TEST")
            raise


def _number(variable: str, text: str, least: int) -> int:
    if not text.isdecimal() or int(text) < least:
        raise ConfigurationError(f"{variable} is a whole number, {least} or more", value=text)
    return int(text)
