"""How often blocks were used lately: a count-min sketch with ageing, as in TinyLFU (Einziger, Friedman, Manes 2017).

Four rows of small counters; a key has one counter in each, and its estimate is the least of the four. Keys are digests,
so the four indexes are four different parts of the key: they are independent, and two keys that share one counter
hardly ever share the others. A counter stops at 15. When ten uses per key of the capacity were counted, all counters
are halved, so that what was hot long ago cools down; with four counters per key in each row an average one stands
at 2.5 by then.
The capacity is the number of keys in use over the time that shall be remembered (the history), not the size of a tier:
a sketch of the size of a tier is worn out before it has learned anything.
Invariants: an estimate is never below the true number of uses since the last halving, up to 15.
Threading: one owner.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Final, final

import numpy as np
import numpy.typing as npt

from blockyard.core.errors import KernelError
from blockyard.core.stored_key import StoredKey
from blockyard.core.whole_numbers import is_whole

MOST_COUNTED: Final = 15
"""Where a counter stops."""
_ROWS: Final = 4
_KEY_BYTES: Final = 4 * _ROWS
_USES_PER_KEY: Final = 10
_COUNTERS_PER_KEY: Final = 4
_LARGEST: Final = 1 << 30
_BATCH: Final = 128
"""Keys counted at once: even if all of them share a counter, that does not overflow its byte before it is cut."""


@final
class FrequencySketch:
    """Approximate number of uses per key, in 16 bytes per key of the capacity."""

    __slots__ = ("_counters", "_limit", "_mask", "_offsets", "_uses", "halvings")

    def __init__(self, capacity: int) -> None:
        """Make a sketch for a history of ``capacity`` keys.

        Raises:
            KernelError: the capacity is not positive, or beyond what an index can name.
        """
        if not is_whole(capacity, 1, _LARGEST):
            raise KernelError("a sketch is for 1 to 2^30 keys", capacity=str(capacity))
        width = _COUNTERS_PER_KEY << (capacity - 1).bit_length()
        self._mask = np.uint32(width - 1)
        self._offsets = np.arange(_ROWS, dtype=np.int64) * width
        self._counters = np.zeros(_ROWS * width, np.uint8)
        self._limit = _USES_PER_KEY * capacity
        self._uses = 0
        self.halvings = 0
        """So many times all counters were halved: estimates that were taken before are too high since."""

    def touch(self, keys: Sequence[StoredKey]) -> None:
        """Count one use per occurrence.

        Raises:
            KernelError: a key has another length than 16 bytes; nothing was counted.
        """
        _require_lengths(keys)
        left = Counter(keys)
        while left:
            once = list(left)
            batches = (once[start : start + _BATCH] for start in range(0, len(once), _BATCH))
            if not sum([self._count(self._indexes(batch)) for batch in batches]):
                # All of these are counted to the end, and who stands here more often is one of them.
                break
            left = left - Counter(once) if len(once) < left.total() else Counter()

    def estimate(self, keys: Sequence[StoredKey]) -> list[int]:
        """Uses of each key, aligned with ``keys``: 0 to 15, never too low; raises like ``touch``."""
        _require_lengths(keys)
        counts: list[int] = self._counters[self._indexes(keys)].min(axis=1).tolist()
        return counts

    def _indexes(self, keys: Sequence[StoredKey]) -> npt.NDArray[np.int64]:
        parts = np.frombuffer(b"".join(keys), dtype="<u4").reshape(-1, _ROWS)
        return (parts & self._mask) + self._offsets

    def _count(self, indexes: npt.NDArray[np.int64]) -> int:
        """One use of each key; returns of how many the estimate rose."""
        counters = self._counters
        moved = int(np.count_nonzero(counters[indexes].min(axis=1) < MOST_COUNTED))
        np.add.at(counters, indexes, np.uint8(1))
        counters[indexes] = np.minimum(counters[indexes], MOST_COUNTED)
        self._uses += moved
        if self._uses >= self._limit:
            self._halve()
        return moved

    def _halve(self) -> None:
        """Halve all counters; what odd ones lose by rounding is no use any more either."""
        lost = int(np.count_nonzero(self._counters & 1)) // _ROWS
        self._counters >>= 1
        self._uses = max(0, self._uses - lost) // 2
        self.halvings += 1


def _require_lengths(keys: Sequence[StoredKey]) -> None:
    # Of several wrong ones the lengths may add up, and the bytes of one would count for another.
    if set(map(len, keys)) - {_KEY_BYTES}:
        raise KernelError(
            "a key has 16 bytes", keys=len(keys), longest=max(map(len, keys)), shortest=min(map(len, keys))
        )
