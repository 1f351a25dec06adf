"""Rows that a clear has cut off: their entries stand in the index for a while, and count no more.

A clear decides at one moment, whatever the number of blocks; that their entries go, row by row, is left to sweeps.
Until then each reader of the index asks whether the row that it finds is cut off.
Invariants: a row is marked exactly while an index has an entry for it that counts no more; ``left`` is their number.
Threading: the owner thread of the table.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar, cast, final, overload

import numpy as np
import numpy.typing as npt

from blockyard.core.vocabulary import BlockId, ContentKey

Other = TypeVar("Other")


@final
class CutRows:
    """Marks of rows 0 to ``capacity - 1``, and how far sweeps have come."""

    __slots__ = ("_next", "_view", "left", "marks")

    def __init__(self, capacity: int) -> None:
        """No row is cut off."""
        self.marks = bytearray(capacity)
        self._view = np.frombuffer(self.marks, dtype=np.uint8)
        self._next = 0
        self.left = 0

    def add(self, chosen: npt.NDArray[np.bool_]) -> None:
        """Cut off the rows chosen here, none of which is."""
        self._view[chosen] = 1
        self._next = 0
        self.left += int(np.count_nonzero(chosen))

    def next_rows(self, most: int) -> list[BlockId]:
        """Marked rows in ascending order, at most so many and at least one, as long as there are any."""
        while self.left:
            window = self._view[self._next : self._next + most]
            found = np.flatnonzero(window) + self._next
            if len(found):
                return cast("list[BlockId]", found.tolist())
            self._next += most
        return []

    def remove(self, rows: Iterable[BlockId]) -> None:
        """The entries of these marked rows are gone."""
        for row in rows:
            self.marks[row] = 0
            self.left -= 1


@final
class SoundIndex(Mapping[ContentKey, BlockId]):
    """Index of a group without the entries of rows that are cut off."""

    __slots__ = ("_index", "_marks")

    def __init__(self, index: Mapping[ContentKey, BlockId], marks: bytearray) -> None:
        """Read through both."""
        self._index = index
        self._marks = marks

    def __getitem__(self, key: ContentKey) -> BlockId:
        """Row of a key."""
        row = self._index[key]
        if self._marks[row]:
            raise KeyError(key)
        return row

    @overload
    def get(self, key: ContentKey, /) -> BlockId | None: ...

    @overload
    def get(self, key: ContentKey, /, default: BlockId | Other) -> BlockId | Other: ...

    def get(self, key: ContentKey, /, default: object = None) -> object:
        """Row of a key, or the default."""
        row = self._index.get(key)
        return default if row is None or self._marks[row] else row

    def __contains__(self, key: object) -> bool:
        """Whether a key counts."""
        row = cast("Mapping[object, BlockId]", self._index).get(key)
        return row is not None and not self._marks[row]

    def __iter__(self) -> Iterator[ContentKey]:
        """Keys that count."""
        return (key for key, row in self._index.items() if not self._marks[row])

    def __len__(self) -> int:
        """Number of keys that count; looks at all."""
        return sum(1 for _ in self)
