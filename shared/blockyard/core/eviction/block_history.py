"""What a policy remembers of blocks that have left: a number by name, for a bounded number of blocks.

The oldest memory is lost first. Names and numbers are plain values, of which the garbage collector walks nothing.
Invariants: no more than ``capacity`` names are kept; the queue of names is at most twice as long.
Threading: the owner thread of the table.
"""

from collections import deque
from collections.abc import Iterable
from typing import Final, final

from blockyard.core.stored_key import StoredKey

_VALUE_BITS: Final = 64
_VALUE_MASK: Final = (1 << _VALUE_BITS) - 1


@final
class BlockHistory:
    """Names of blocks that left, each with a number below 2^64."""

    __slots__ = ("_capacity", "_first", "_known", "_queue")

    def __init__(self, capacity: int) -> None:
        """Start without memories."""
        self._capacity = capacity
        self._known: dict[StoredKey, int] = {}
        """Place in the queue, counted from the start of all times, and number."""
        self._queue: deque[StoredKey] = deque()
        self._first = 0

    def __len__(self) -> int:
        """Names remembered."""
        return len(self._known)

    def add(self, names: Iterable[StoredKey], numbers: Iterable[int]) -> None:
        """Remember blocks that left just now, the first one longest ago."""
        known, queue = self._known, self._queue
        for name, number in zip(names, numbers, strict=True):
            known[name] = (self._first + len(queue)) << _VALUE_BITS | number
            queue.append(name)
        self._trim()

    def recall(self, name: StoredKey) -> int | None:
        """The number of a block that is back, which is forgotten here; None where nothing is known."""
        found = self._known.pop(name, None)
        return None if found is None else found & _VALUE_MASK

    def _trim(self) -> None:
        known, queue = self._known, self._queue
        while len(known) > self._capacity:
            self._drop_first()
        if len(queue) > 2 * self._capacity:
            # Memories that were recalled left holes.
            kept = [name for place, name in enumerate(queue, self._first) if self._stands(name, place)]
            queue.clear()
            self._first = 0
            numbers = [known[name] & _VALUE_MASK for name in kept]
            known.clear()
            self.add(kept, numbers)

    def _drop_first(self) -> None:
        name = self._queue.popleft()
        if self._stands(name, self._first):
            del self._known[name]
        self._first += 1

    def _stands(self, name: StoredKey, place: int) -> bool:
        return self._known.get(name, -1) >> _VALUE_BITS == place
