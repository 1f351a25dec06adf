"""Hints about what will be wanted again, under any eviction policy: rows in three bands, the first of which goes first.

1. *Expendable*: the session is over, or the time of a hint. In the order in which they became so, the tail of a batch
   before its head.
2. Normal: in the order of the policy.
3. *Kept*: hinted with a priority. The lowest priority first, among equals the one that became inactive first, the tail
   of a batch before its head.

A hint is about the block in a row and ends when that leaves. A use of an expendable block makes it normal again; a kept
one stays kept until its time is over. Nothing is pinned: when the other bands are empty, kept rows go as well.
Invariants: each row of the order stands in one band. Without hints every call is one call of the policy; until the
first hint there are no columns.
Threading: the owner thread of the table.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Final, final

from blockyard.core.clock import Clock
from blockyard.core.errors import KernelError
from blockyard.core.eviction.base import CheckedPolicy, EvictionPolicy
from blockyard.core.eviction.row_heap import RowHeap
from blockyard.core.eviction.row_rings import RowRings
from blockyard.core.vocabulary import BlockId
from blockyard.core.whole_numbers import is_time, is_whole

HIGHEST_PRIORITY: Final = 100
LONGEST_SECONDS: Final = 1 << 32
"""Of a hint with an end; who wants more wants none."""
_NORMAL: Final = 0
_EXPENDABLE: Final = 1
_KEPT: Final = 2
_TICKS_PER_SECOND: Final = 1_000_000


@final
@dataclass(frozen=True, slots=True)
class Retention:
    """That blocks are worth keeping, how much, and for how long.

    Raises:
        KernelError: the priority is not 1 to 100, or the time is not positive or above ``LONGEST_SECONDS``.
    """

    priority: int
    """1 to 100; higher ones stay longer."""
    ttl_seconds: float | None = None
    """After so long the blocks are expendable; None: never."""

    def __post_init__(self) -> None:
        """Refuse what has no meaning."""
        if not is_whole(self.priority, 1, HIGHEST_PRIORITY):
            raise KernelError("a priority is 1 to 100", priority=str(self.priority))
        if self.ttl_seconds is not None and not is_time(self.ttl_seconds, LONGEST_SECONDS):
            raise KernelError("a hint lasts longer than no time, and ends", ttl_seconds=str(self.ttl_seconds))


@final
class RetentionBands:
    """An eviction policy with a band before it and one behind it."""

    __slots__ = (
        "_apart",
        "_capacity",
        "_clock",
        "_hinted",
        "_inner",
        "_kept",
        "_place",
        "_priority",
        "_spent",
        "_until",
        "_wanted",
    )

    def __init__(self, inner: EvictionPolicy, capacity: int, clock: Clock) -> None:
        """Put bands around an empty policy for rows 0 to ``capacity - 1``."""
        self._inner = inner
        self._clock = clock
        self._capacity = capacity
        self._make_columns(0)
        self._hinted = 0
        """Rows whose band is not the normal one."""
        self._apart = 0
        """Rows that stand in one of the other bands."""

    def _make_columns(self, capacity: int) -> None:
        self._spent = RowRings(capacity)
        self._kept = RowHeap(capacity)
        self._until = RowHeap(capacity)
        """Kept rows by the end of their time."""
        self._priority = bytearray(capacity)
        self._wanted = bytearray(capacity)
        """Band of the block in each row."""
        self._place = bytearray(capacity)
        """Band in which the row stands; none or the policy's is 0."""

    def __len__(self) -> int:
        """Number of rows held."""
        return len(self._inner) + self._apart

    def __iter__(self) -> Iterator[BlockId]:
        """Rows in eviction order, as of now."""
        self._expire()
        return chain(self._spent.rows(), self._inner, self._kept)

    # --- hints --------------------------------------------------------------------------------------------------------
    def keep(self, blocks: Sequence[BlockId], idle: Sequence[BlockId], retention: Retention) -> None:
        """Keep these rows, in chain order, of which the ``idle`` ones are in the order. The latest hint counts."""
        self._expect_hints()
        self._until.discard(blocks)
        if retention.ttl_seconds is not None:
            end = self._ticks(self._clock.monotonic() + retention.ttl_seconds)
            self._until.push(reversed(blocks), [end] * len(blocks))
        for row in blocks:
            self._priority[row] = retention.priority
        self._move(blocks, idle, _KEPT)

    def spend(self, blocks: Sequence[BlockId], idle: Sequence[BlockId]) -> None:
        """These rows, in chain order, will not be wanted again; the ``idle`` ones are in the order."""
        self._expect_hints()
        self._until.discard(blocks)
        self._move(blocks, idle, _EXPENDABLE)

    # --- the policy ---------------------------------------------------------------------------------------------------
    def touch(self, blocks: Sequence[BlockId]) -> None:
        """Count the use; what is in use is not expendable."""
        self._inner.touch(blocks)
        if self._hinted:
            self._want([row for row in blocks if self._wanted[row] == _EXPENDABLE], _NORMAL)

    def insert(self, blocks: Sequence[BlockId]) -> None:
        """Put each row into its band."""
        if not self._hinted:
            self._inner.insert(blocks)
            return
        if any(map(self._place.__getitem__, blocks)) or len(set(blocks)) != len(blocks):
            raise KernelError("a row is in the order already, or named twice", rows=len(blocks))
        wanted = self._wanted
        self._inner.insert([row for row in blocks if wanted[row] == _NORMAL])
        spent = [row for row in reversed(blocks) if wanted[row] == _EXPENDABLE]
        kept = [row for row in reversed(blocks) if wanted[row] == _KEPT]
        self._spent.append(spent)
        self._kept.push(kept, [self._priority[row] for row in kept])
        self._stand(spent, _EXPENDABLE)
        self._stand(kept, _KEPT)

    def remove(self, blocks: Sequence[BlockId]) -> None:
        """Take rows out of their bands."""
        if not self._apart:
            self._inner.remove(blocks)
            return
        if len(set(blocks)) != len(blocks):
            raise KernelError("a row is named twice", rows=len(blocks))
        apart = [row for row in blocks if self._place[row]]
        self._inner.remove([row for row in blocks if not self._place[row]])
        self._spent.unlink(apart)
        self._kept.discard(apart)
        self._stand(apart, _NORMAL)

    def take(self, count: int) -> list[BlockId]:
        """Remove and return rows, band by band."""
        self._expire()
        if not self._apart:
            return self._inner.take(count)
        spent = self._spent.take(count)
        normal = self._inner.take(count - len(spent))
        kept = self._kept.take(count - len(spent) - len(normal))
        self._stand(spent, _NORMAL)
        self._stand(kept, _NORMAL)
        return spent + normal + kept

    def put_back(self, blocks: Sequence[BlockId]) -> None:
        """Put rows first in their bands, in the given order."""
        if not self._hinted:
            self._inner.put_back(blocks)
            return
        wanted = self._wanted
        self._inner.put_back([row for row in blocks if wanted[row] == _NORMAL])
        spent = [row for row in blocks if wanted[row] == _EXPENDABLE]
        kept = [row for row in blocks if wanted[row] == _KEPT]
        self._spent.prepend(spent)
        self._kept.restore(kept, [self._priority[row] for row in kept])
        self._stand(spent, _EXPENDABLE)
        self._stand(kept, _KEPT)

    def forget(self, blocks: Sequence[BlockId]) -> None:
        """The next blocks in these rows are not hinted."""
        self._inner.forget(blocks)
        if self._hinted:
            self._until.discard(blocks)
            self._want(blocks, _NORMAL)

    # --- checks -------------------------------------------------------------------------------------------------------
    def violations(self) -> list[str]:
        """What contradicts the invariants of the bands and of the policy, for checks."""
        broken = self._inner.violations() if isinstance(self._inner, CheckedPolicy) else []
        broken += [*self._spent.violations(), *self._kept.violations(), *self._until.violations()]
        if broken:
            return broken
        # An order that goes in circles is cut off: there are no more rows than these.
        normal = list(islice(self._inner, self._capacity + 1))
        if not len(set(normal)) == len(normal) == len(self._inner):
            return ["the policy counts other rows than it shows"]
        if not all(0 <= row < self._capacity for row in normal):
            return ["the policy shows a row that there is not"]
        wanted, place = self._wanted, self._place
        spent, kept = list(self._spent.rows()), self._kept.ranks()
        rules = {
            "the number of hinted rows is wrong": self._hinted == len(wanted) - wanted.count(_NORMAL),
            "the number of rows in bands is wrong": self._apart == len(place) - place.count(_NORMAL),
            "not exactly the expendable rows stand in their band": sorted(spent) == _rows_of(place, _EXPENDABLE),
            "not exactly the kept rows stand in their band": sorted(kept) == _rows_of(place, _KEPT),
            "a row stands in another band than it is hinted for": all(
                band in (_NORMAL, wanted[row]) for row, band in enumerate(place)
            ),
            "the policy holds a row of a band": not (place and any(wanted[row] or place[row] for row in normal)),
            "a kept row stands by another priority than its own": all(
                0 < rank == self._priority[row] for row, rank in kept.items()
            ),
            "time runs for a row that is not kept": all(wanted[row] == _KEPT for row in self._until.ranks()),
        }
        return [rule for rule, holds in rules.items() if not holds]

    # --- inside -------------------------------------------------------------------------------------------------------
    def _expect_hints(self) -> None:
        if not self._place:
            self._make_columns(self._capacity)

    def _expire(self) -> None:
        """What was to be kept until now is expendable."""
        if not len(self._until):
            return
        over = self._until.take(len(self._until), below=self._ticks(self._clock.monotonic()) + 1)
        idle = [row for row in over if self._place[row]]
        # They come tail first; a batch is given in chain order.
        self._move(over, idle[::-1], _EXPENDABLE)

    def _move(self, blocks: Sequence[BlockId], idle: Sequence[BlockId], band: int) -> None:
        self.remove(idle)
        self._want(blocks, band)
        self.insert(idle)

    def _want(self, rows: Sequence[BlockId], band: int) -> None:
        wanted = self._wanted
        for row in rows:
            self._hinted += (band != _NORMAL) - (wanted[row] != _NORMAL)
            wanted[row] = band

    def _stand(self, rows: Sequence[BlockId], band: int) -> None:
        place = self._place
        for row in rows:
            self._apart += (band != _NORMAL) - (place[row] != _NORMAL)
            place[row] = band

    @staticmethod
    def _ticks(seconds: float) -> int:
        return round(seconds * _TICKS_PER_SECOND)


def _rows_of(column: bytearray, band: int) -> list[BlockId]:
    return [BlockId(row) for row, value in enumerate(column) if value == band]
