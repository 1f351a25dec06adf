"""TIDE: LRFU over chains with the half-life that suits the present load.

Blocks are ordered by how often they were used, older uses counting less (``tide_history``). How fast they fade is not
a setting: four half-lives race in simulated caches (``half_life_race``), and the leader orders the tier (``run_heap``).
With the shortest it is LRU, tail first; with the longest it counts uses. Blocks that left are remembered until about
four times the capacity has left after them (``departed_blocks``), so a block that comes back is known.
The policy is deterministic: names of blocks and the order of calls decide.
Time of a call: linear in its rows; a change of leader is linear in the tier. Threading: the owner thread of the table.
"""

from collections.abc import Iterator, Sequence
from math import nan
from typing import Final, cast, final

from blockyard.core.eviction.base import RowColumns
from blockyard.core.eviction.departed_blocks import DepartedBlocks
from blockyard.core.eviction.half_life_race import HalfLifeRace
from blockyard.core.eviction.row_keys import keys_of
from blockyard.core.eviction.run_heap import RunHeap
from blockyard.core.eviction.tide_history import (
    NEVER_USED,
    History,
    decay,
    used_again,
    used_once,
)
from blockyard.core.vocabulary import BlockId

_REMEMBERED: Final = 4
"""Blocks that left and are remembered, in capacities."""


@final
class TidePolicy:
    """TIDE over rows 0 to ``capacity - 1``."""

    __slots__ = (
        "_capacity",
        "_columns",
        "_created",
        "_departed",
        "_histories",
        "_order",
        "_race",
        "_racing",
    )

    def __init__(self, columns: RowColumns) -> None:
        """Make an empty order for the rows of a table."""
        capacity = self._capacity = columns.capacity
        self._columns = columns
        self._histories: list[History | None] = [None] * capacity
        self._departed = DepartedBlocks(_REMEMBERED * capacity)
        self._race = HalfLifeRace(capacity)
        self._racing: list[bytes | None] = [None] * capacity
        """Names of the rows whose blocks take part in the race."""
        self._order = RunHeap(columns, self._histories, self._race.leader)
        self._created = 0

    def __len__(self) -> int:
        """Number of rows held."""
        return len(self._order)

    def __iter__(self) -> Iterator[BlockId]:
        """Rows in eviction order."""
        return self._order.rows()

    @property
    def half_life(self) -> float:
        """By which the rows are ordered now, in capacities of blocks that entered."""
        return self._race.half_life

    def touch(self, blocks: Sequence[BlockId]) -> None:
        """Count one use of each; what was not known enters."""
        histories = self._histories
        now = self._created / self._capacity
        once = known = history = used_once(now)
        known_at = nan
        decayed: tuple[float, ...] = ()
        for row in blocks:
            before = histories[row]
            if before is not known:
                if before is None:
                    self._enter(blocks)
                    before = cast("History", histories[row])
                known = before
                if known is NEVER_USED:
                    history = once
                else:
                    if known[0] != known_at:
                        known_at = known[0]
                        decayed = decay(now - known_at)
                    history = used_again(known, now, decayed)
            histories[row] = history
        if self._race_on(blocks):
            self._order.rank_by(self._race.leader)

    def insert(self, blocks: Sequence[BlockId]) -> None:
        """Take rows in as one run."""
        if not all(map(self._histories.__getitem__, blocks)):
            self._find_stored(blocks)
        self._order.insert(blocks)

    def remove(self, blocks: Sequence[BlockId]) -> None:
        """Take rows out of the order."""
        self._order.remove(blocks)

    def take(self, count: int) -> list[BlockId]:
        """Remove and return the rows of least value."""
        return self._order.take(count)

    def put_back(self, blocks: Sequence[BlockId]) -> None:
        """Put rows in front of all others, in the given order."""
        self._order.put_back(blocks)

    def forget(self, blocks: Sequence[BlockId]) -> None:
        """Remember the blocks by name instead of by row."""
        known = self._histories
        self._departed.leave(keys_of(self._columns, blocks), list(map(known.__getitem__, blocks)))
        for row in blocks:
            known[row] = None

    def _enter(self, blocks: Sequence[BlockId]) -> None:
        """Blocks without a history enter the tier: with the history that is remembered of them."""
        entering = self._unknown(blocks)
        names = keys_of(self._columns, entering)
        self._know(entering, names, self._departed.come_back(names))
        self._created += len(entering)

    def _find_stored(self, blocks: Sequence[BlockId]) -> None:
        """Of stored blocks that were found nothing is known: as if they had been used once, now."""
        found = self._unknown(blocks)
        names = keys_of(self._columns, found)
        self._departed.come_back(names)
        self._know(found, names, [used_once(self._created / self._capacity)] * len(found))

    def _unknown(self, blocks: Sequence[BlockId]) -> list[BlockId]:
        histories = self._histories
        return [row for row in dict.fromkeys(blocks) if histories[row] is None]

    def _know(self, rows: Sequence[BlockId], names: Sequence[bytes], histories: Sequence[History]) -> None:
        known, racing = self._histories, self._racing
        for row, history, name in zip(rows, histories, self._race.sample(names), strict=True):
            known[row] = history
            racing[row] = name

    def _race_on(self, blocks: Sequence[BlockId]) -> bool:
        """Show the sampled blocks to the race; True if another half-life leads now."""
        racing = self._racing
        sampled = list(filter(racing.__getitem__, blocks))
        if not sampled:
            return False
        names = [cast("bytes", racing[row]) for row in sampled]
        histories = [cast("History", self._histories[row]) for row in sampled]
        return self._race.use(names, histories, self._created)
