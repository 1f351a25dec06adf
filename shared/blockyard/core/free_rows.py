"""Rows that may be granted: first returned, first granted, so that a slot rests as long as possible.

The queue is a ring of integers: four bytes per row, nothing for the garbage collector to visit.
Invariants: a row stands here at most once. Rows taken from the middle are struck off in one pass at the next use, so
that recovery may take thousands of them one page at a time.
Threading: the owner thread of the table.
"""

from array import array
from collections.abc import Iterator, Sequence
from typing import cast, final

import numpy as np
import numpy.typing as npt

from blockyard.core.vocabulary import BlockId


@final
class FreeRows:
    """A queue of rows that also gives named ones."""

    __slots__ = ("_first", "_queued", "_ring", "_struck", "_struck_rows")

    def __init__(self, capacity: int) -> None:
        """Start with the rows 0 to ``capacity - 1``."""
        self._ring = array("i", range(capacity))
        self._first = 0
        self._queued = capacity
        self._struck = bytearray()
        self._struck_rows = 0

    def __len__(self) -> int:
        """Number of rows."""
        return self._queued - self._struck_rows

    def __iter__(self) -> Iterator[BlockId]:
        """Rows in the order of their grants."""
        return iter(cast("list[BlockId]", self._in_order().tolist()))

    def pop(self, count: int) -> list[BlockId]:
        """Take the ``count`` rows that go first; there are that many."""
        if not count:
            return []
        self._strike_off()
        ring, first, end = self._ring, self._first, self._first + count
        rows = cast("list[BlockId]", ring[first:end].tolist())
        if end >= len(ring):
            end -= len(ring)
            rows += cast("list[BlockId]", ring[:end].tolist())
        self._first = end
        self._queued -= count
        return rows

    def push(self, rows: Sequence[BlockId]) -> None:
        """Put rows behind all others."""
        if not rows:
            return
        self._strike_off()
        ring, added = self._ring, array("i", rows)
        start = (self._first + self._queued) % len(ring)
        end = start + len(added)
        if end <= len(ring):
            ring[start:end] = added
        else:
            fit = len(ring) - start
            ring[start:] = added[:fit]
            ring[: end - len(ring)] = added[fit:]
        self._queued += len(added)

    def remove(self, rows: Sequence[BlockId]) -> None:
        """Take these rows, all of which are here."""
        if not rows:
            return
        if not self._struck:
            self._struck = bytearray(len(self._ring))
        for row in rows:
            self._struck[row] = 1
        self._struck_rows += len(rows)

    def _in_order(self) -> npt.NDArray[np.int32]:
        order = np.roll(np.frombuffer(self._ring, dtype=np.int32), -self._first)[: self._queued]
        return order[np.frombuffer(self._struck, dtype=np.uint8)[order] == 0] if self._struck else order

    def _strike_off(self) -> None:
        if self._struck:
            left = self._in_order()
            self._first, self._queued = 0, len(left)
            self._ring[: len(left)] = array("i", left.tobytes())
            self._struck = bytearray()
            self._struck_rows = 0
