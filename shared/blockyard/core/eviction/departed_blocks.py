"""Histories of blocks that have left the tier, found by name: a table of fixed size, in columns.

A name belongs to a bucket, and a bucket is a ring that keeps the last sixteen of its own that left. So how many others
leave before a block is forgotten differs from bucket to bucket, by a quarter or so. A block costs 16 bytes: half of
its name, which tells it apart well enough, and a reference to a history that blocks share.
Invariants: a mark stands in one place at most; a place without a mark has no history.
Threading: the owner thread of the table of rows.
"""

from collections.abc import Sequence
from itertools import compress
from typing import Final, final

import numpy as np
import numpy.typing as npt

from blockyard.core.eviction.tide_history import NEVER_USED, History

_WAYS: Final = 16
"""Blocks of a bucket."""
_NOBODY: Final = 0
_SOMEBODY: Final = 1
"""Set in every mark, so that none is ``_NOBODY``."""
_HALF: Final = np.dtype("<i8")
"""Of a name: the first is its mark, the other leads to its bucket."""


@final
class DepartedBlocks:
    """Histories of the blocks that left last, ``limit`` of them in all."""

    __slots__ = ("_anybody", "_buckets", "_histories", "_marks", "_next")

    def __init__(self, limit: int) -> None:
        """Make an empty table; ``limit`` is rounded up to whole buckets."""
        buckets = max(1, -(-limit // _WAYS))
        self._buckets = np.int64(buckets)
        # Written at once: memory that is met for the first time later holds up a call by tens of milliseconds.
        self._marks = np.full((buckets, _WAYS), 0, np.int64)
        self._histories = np.full(buckets * _WAYS, None, np.object_)
        self._next = np.full(buckets, 0, np.int64)
        """Place of each ring that is written next, modulo its size."""
        self._anybody = False
        """Whether a block has left ever; not while a tier fills."""

    def leave(self, names: Sequence[bytes], histories: Sequence[History | None]) -> None:
        """These blocks have left; of one without a history there is nothing to remember.

        Names are digests of 16 bytes. None is in the table: whoever enters the tier comes back first.
        """
        if not all(histories):
            names, histories = list(compress(names, histories)), list(filter(None, histories))
        if not names:
            return
        self._anybody = True
        marks, buckets = self._places_of(names)
        order = buckets.argsort(kind="stable")
        buckets = buckets[order]
        before_in_bucket = np.arange(len(buckets)) - buckets.searchsorted(buckets)
        ways = (self._next[buckets] + before_in_bucket) % _WAYS
        places = buckets * _WAYS + ways
        # Where more leave at once than a ring holds, the last assignment to a place is the one that stays.
        self._marks.reshape(-1)[places] = marks[order]
        self._histories[places] = np.fromiter(histories, np.object_, len(histories))[order]
        self._next[buckets] = ways + 1

    def come_back(self, names: Sequence[bytes]) -> list[History]:
        """Histories of blocks that enter, in order; ``NEVER_USED`` where nothing is known. They are forgotten here."""
        histories = [NEVER_USED] * len(names)
        if not self._anybody:
            return histories
        marks, buckets = self._places_of(names)
        found = (self._marks.take(buckets, axis=0) == marks[:, np.newaxis]).reshape(-1).nonzero()[0]
        if len(found):
            known = found // _WAYS
            places = buckets[known] * _WAYS + found % _WAYS
            for index, history in zip(known.tolist(), self._histories[places].tolist(), strict=True):
                histories[index] = history
            self._marks.reshape(-1)[places] = _NOBODY
            self._histories[places] = None
        return histories

    def _places_of(self, names: Sequence[bytes]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Marks and buckets."""
        halves = np.frombuffer(b"".join(names), _HALF)
        return halves[::2] | _SOMEBODY, halves[1::2] % self._buckets
