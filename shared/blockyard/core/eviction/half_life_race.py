"""Which half-life suits the present load: simulated caches race, one per half-life, over a sample of the blocks.

Each cache sees the uses of the sampled blocks, holds a share of the tier's capacity that is equal to the share of the
sample, and evicts by its own half-life. Hits are its score, older ones count less. The leader stays unless another is
better by more than one in a hundred, so near-equal ones do not take turns.
Uses are gathered and simulated in batches, in columns: a cache is cut down to its capacity after each.
Whether a block is sampled follows from its name, so every run of one load has the same race.
Threading: the owner of the table.
"""

from collections.abc import Iterable, Sequence
from typing import Final, final

import numpy as np
import numpy.typing as npt

from blockyard.core.eviction.tide_history import HALF_LIVES, History, keep_values

_MOST_SPARSE: Final = 64
_LEAST_BLOCKS: Final = 256
"""A simulated cache has at least so many blocks (or all of the tier), else chance decides the race."""
_BATCHES: Final = 8
"""Batches of uses per capacity of a simulated cache."""
_SPARE_BATCHES: Final = 4
"""Batches after which places that no cache uses any more are looked for."""
_LEAD: Final = 1.01
_DECAY: Final = 0.98
_HEATS: Final = 4
"""Decisions per capacity of blocks that entered."""
_SHORTEST_HEAT: Final = 64
_FIRST_LEADER: Final = 1
_BYTE_VALUES: Final = 256


@final
class HalfLifeRace:
    """Simulated caches and the leader among them."""

    def __init__(self, capacity: int) -> None:
        """Start a race for a tier of ``capacity`` blocks, led by the second half-life."""
        sparse = _MOST_SPARSE
        while sparse > 1 and capacity < sparse * _LEAST_BLOCKS:
            sparse //= 2
        self._sampled_bytes = bytes([value % sparse == 0 for value in range(_BYTE_VALUES)])
        self._capacity = max(1, capacity // sparse)
        self._batch = max(1, self._capacity // _BATCHES)
        places = len(HALF_LIVES) * self._capacity + _SPARE_BATCHES * self._batch
        self._place_of: dict[bytes, int] = {}
        self._names = [b""] * places
        self._free = list(range(places))
        self._held = np.zeros((len(HALF_LIVES), places), np.bool_)
        self._values = np.zeros((len(HALF_LIVES), places))
        self._depths = np.zeros(places, np.int64)
        """Places in their batch: of blocks that were used together, the later is the deeper."""
        self._names_used: list[bytes] = []
        self._histories: list[History] = []
        self._scores = np.zeros(len(HALF_LIVES))
        self._heat = max(_SHORTEST_HEAT, capacity // _HEATS)
        self._decide_at = 0
        self.leader = _FIRST_LEADER
        """Index of the half-life that orders the tier."""

    @property
    def half_life(self) -> float:
        """The leading one, in capacities of blocks that entered."""
        return HALF_LIVES[self.leader]

    def sample(self, names: Sequence[bytes]) -> list[bytes | None]:
        """Those of these blocks that take part, None for the others.

        Names are digests, so that their last bytes are evenly spread.
        """
        sampled = self._sampled_bytes
        return [name if sampled[name[-1]] else None for name in names]

    def use(self, names: Iterable[bytes], histories: Iterable[History], created: int) -> bool:
        """Sampled blocks were used, ``created`` blocks having entered the tier; True if another leads now.

        Names are in chain order, histories include this use.
        """
        self._names_used += names
        self._histories += histories
        if len(self._names_used) < self._batch:
            return False
        names, self._names_used = self._names_used, []
        histories, self._histories = self._histories, []
        for start in range(0, len(names), self._batch):
            self._simulate(names[start : start + self._batch], histories[start : start + self._batch])
        return self._decide(created)

    def _decide(self, created: int) -> bool:
        if created < self._decide_at:
            return False
        self._decide_at = created + self._heat
        best = int(self._scores.argmax())
        changed = bool(self._scores[best] > self._scores[self.leader] * _LEAD)
        self._scores *= _DECAY
        if changed:
            self.leader = best
        return changed

    def _simulate(self, names: Sequence[bytes], histories: Sequence[History]) -> None:
        """Hits of a batch in each cache, then the batch takes its places and what has the least worth leaves."""
        latest = dict(zip(names, range(len(names)), strict=True))
        places = np.array([self._place(name) for name in latest])
        # A block is in every cache from its first use in the batch on.
        hits = self._held[:, places].sum(axis=1) + (len(names) - len(latest))
        self._held[:, places] = True
        self._values[:, places] = keep_values([histories[index] for index in latest.values()])
        self._depths[places] = list(latest.values())
        # As long as everything fits, hits say nothing about what to evict.
        if any([self._cut(held, values) for held, values in zip(self._held, self._values, strict=True)]):
            self._scores += hits
        if len(self._free) < self._batch:
            self._free_places()

    def _place(self, name: bytes) -> int:
        place = self._place_of.get(name)
        if place is None:
            place = self._place_of[name] = self._free.pop()
            self._names[place] = name
        return place

    def _cut(self, held: npt.NDArray[np.bool_], values: npt.NDArray[np.float64]) -> bool:
        """Take the blocks of least value out of a cache, of equal ones the deeper, until it has its capacity.

        True if it had more.
        """
        places = np.flatnonzero(held)
        excess = len(places) - self._capacity
        if excess <= 0:
            return False
        worth = values[places]
        edge = np.partition(worth, excess - 1)[excess - 1]
        below, tied = places[worth < edge], places[worth == edge]
        deepest = np.argsort(-self._depths[tied], kind="stable")
        held[below] = False
        held[tied[deepest[: excess - len(below)]]] = False
        return True

    def _free_places(self) -> None:
        used = np.fromiter(self._place_of.values(), np.int64, len(self._place_of))
        for place in used[~self._held[:, used].any(axis=0)].tolist():
            del self._place_of[self._names[place]]
            self._free.append(place)
