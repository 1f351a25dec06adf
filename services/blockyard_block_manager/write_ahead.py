"""Which blocks G2 gives up next, and which of them still have to reach G3 for that: the look ahead of write-back.

::

    next victims of G2:  clean  clean  given up │ not written ...        ◄── up to the high mark
                         └── may go now ────────┘    └── to be written while there is time

A block is *clean* when G3 holds it, and *given up* when it was refused or failed there: neither holds anybody up.
Looking costs time for every block up to the high mark, so it comes only after as many blocks came, left or were used as
can have brought the reserve below its low mark. Loads take the slots of a whole prompt at once, so a reserve that they
have used up is doubled, within bounds.
Invariants: what is given up is in G2, and is not asked for again before it was used again or
reconsidered; looking changes no order.
Threading: owned by the event loop of the service. No await.
"""

from collections.abc import Iterable
from typing import final

from blockyard.core.block_facts import BlockFacts
from blockyard.core.vocabulary import ContentKey, GroupId, Tier
from blockyard.core.watermarks import Reserve, Watermarks
from blockyard_block_manager.node_tables import NodeTables

_RESERVE_SHARE = 64
"""G2 keeps 1/64 of its slots, at least one job's worth, free or clean."""
_LARGEST_RESERVE = 16_384
"""Blocks; at most half of G2. All of them are looked at in one go."""


@final
class WriteAhead:
    """The order in which G2 gives up blocks, and what of it is not written."""

    def __init__(self, tables: NodeTables, job_blocks: int) -> None:
        """Look at G2 of ``tables``; a job has at most ``job_blocks``."""
        self._tables = tables
        self._job_blocks = job_blocks
        self._given_up: set[tuple[ContentKey, GroupId]] = set()
        self._next_to_go: set[tuple[ContentKey, GroupId]] = set()
        """What is to be written and was not used since that was said."""
        self._reserve: Reserve | None = None
        self._marks = Watermarks(1, 1)
        self._until_look = 0
        """Blocks that may come, leave or be used before the reserve is looked at."""

    def look_again(self) -> None:
        """The reserve has proved too small, or not all of what is to be written could be asked for."""
        self._until_look = 0

    def give_up(self, blocks: Iterable[tuple[ContentKey, GroupId]]) -> None:
        """These blocks will not be written; those that have left G2 meanwhile need not be known."""
        self._given_up.update(block for block in blocks if self._tables.name_in_g2(*block) is not None)

    def reconsider(self, blocks: Iterable[tuple[ContentKey, GroupId]]) -> None:
        """Those of these blocks that were given up may be written after all."""
        again = self._given_up.intersection(blocks)
        self._given_up -= again
        self._until_look -= len(again)

    def take_back(self, blocks: Iterable[tuple[ContentKey, GroupId]]) -> None:
        """These blocks left G2, or were used: what was said of them is over."""
        for block in blocks:
            self._given_up.discard(block)
            self._next_to_go.discard(block)
            self._until_look -= 1

    def ended(self, keys: Iterable[ContentKey], group: GroupId) -> None:
        """Copies of these blocks, tail first, are over and hold them no more: those that were next to go are so again.

        Whoever reads a block holds it, and a block that was held goes last.
        """
        first = [key for key in keys if (key, group) in self._next_to_go]
        self._next_to_go.difference_update((key, group) for key in first)
        self._tables.pool(Tier.G2).put_first(first, group)

    def clear(self) -> None:
        """G3 is empty: everything may be written again."""
        self._given_up.clear()
        self._until_look = 0

    def spare(self, limit: int) -> int:
        """Slots of G2, up to ``limit``, that can be granted without losing a block that is still to be written."""
        spare = min(self._tables.pool(Tier.G2).free, limit)
        for block in self._tables.next_victims(Tier.G2, limit - spare):
            if not self._may_go(block):
                break
            spare += 1
        return spare

    def lost(self, blocks: Iterable[BlockFacts]) -> int:
        """These blocks leave G2 for others; returns how many were still to be written."""
        count = sum(not self._may_go(block) for block in blocks)
        if count:
            self._widen()
        return count

    def due(self, most: int) -> list[tuple[ContentKey, GroupId]]:
        """Up to ``most`` blocks to write now so that the reserve is whole again, the first victim first."""
        if self._until_look > 0 or not self._tables.has(Tier.G2):
            return []
        reserve, marks = self._open_reserve(), self._marks
        level = self.spare(marks.high)
        refill = reserve.wanted(level, marks.high) > 0
        # What is asked for now is on its way into the reserve.
        self._until_look = max(1, (marks.high if refill else level) - marks.low)
        if not refill:
            return []
        victims = self._tables.next_victims(Tier.G2, marks.high - self._tables.pool(Tier.G2).free)
        due = [(block.key, block.group) for block in victims if not self._may_go(block)]
        if len(due) > most:
            del due[most:]
            self.look_again()
        self._next_to_go.update(due)
        return due

    # --- inside -------------------------------------------------------------------------------------------------------
    def _may_go(self, block: BlockFacts) -> bool:
        given_up = (block.key, block.group) in self._given_up
        return given_up or self._tables.holds(Tier.G3, [block.key], block.group)[0]

    def _widen(self) -> None:
        self._open_reserve()
        high = min(2 * self._marks.high, self._tables.pool(Tier.G2).capacity // 2, _LARGEST_RESERVE)
        if high > self._marks.high:
            self._marks = Watermarks(high // 2, high)
            self._reserve = Reserve(self._marks)
            self._until_look = 0

    def _open_reserve(self) -> Reserve:
        if self._reserve is None:
            self._marks = Watermarks.of(self._tables.pool(Tier.G2).capacity, _RESERVE_SHARE, self._job_blocks)
            self._reserve = Reserve(self._marks)
        return self._reserve
