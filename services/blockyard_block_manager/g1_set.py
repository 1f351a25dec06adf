"""The G1 set of one engine: which of its memory blocks hold which KV blocks.

An engine may hold one content key in several memory blocks; only the first copy and the loss of the last one are
transitions that the outside hears of.
Invariants: every memory block has at most one entry; ``_copies`` counts exactly the entries of a key.
Threading: owned by the event loop of the service.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from blockyard.core.block_name import BlockName
from blockyard.core.events import BlockScope
from blockyard.core.vocabulary import ContentKey, EngineBlockId, GroupId, Guard

GroupKey = tuple[ContentKey, GroupId]


@dataclass(frozen=True, slots=True)
class G1Block:
    """What one memory block of an engine holds, and the guard value it had when it was complete."""

    block: EngineBlockId
    guard: Guard
    name: BlockName
    scope: BlockScope

    @property
    def group_key(self) -> GroupKey:
        """What identifies the content within the engine."""
        return self.name.key, self.scope.group


@dataclass(frozen=True, slots=True)
class G1Change:
    """Transitions of a call: contents that became readable, and contents whose last copy went."""

    stored: tuple[G1Block, ...] = ()
    removed: tuple[G1Block, ...] = ()


class G1Set:
    """Contents of one engine's memory, as far as the engine registered them."""

    def __init__(self) -> None:
        """Start empty."""
        self._blocks: dict[EngineBlockId, G1Block] = {}
        self._copies: dict[GroupKey, int] = {}

    def __len__(self) -> int:
        """Memory blocks with an entry."""
        return len(self._blocks)

    def __iter__(self) -> Iterator[G1Block]:
        """All entries, oldest registration first."""
        return iter(tuple(self._blocks.values()))

    @property
    def contents(self) -> frozenset[GroupKey]:
        """Distinct contents."""
        return frozenset(self._copies)

    def holds(self, block: G1Block) -> bool:
        """Whether this very entry is current."""
        return self._blocks.get(block.block) == block

    def registered(self, blocks: Iterable[EngineBlockId]) -> set[EngineBlockId]:
        """Those of the memory blocks that have an entry."""
        return {block for block in blocks if block in self._blocks}

    def register(self, blocks: Sequence[G1Block]) -> G1Change:
        """Enter complete blocks; an entry that its memory block had before is replaced."""
        before = {entry.group_key for entry in blocks if entry.group_key in self._copies}
        replaced = self._take(entry.block for entry in blocks)
        stored: list[G1Block] = []
        for entry in blocks:
            self._take((entry.block,))  # the same memory block twice in one call: the last entry counts
            key = entry.group_key
            self._blocks[entry.block] = entry
            self._copies[key] = self._copies.get(key, 0) + 1
            if key not in before and self._copies[key] == 1:
                stored.append(entry)
        removed = tuple(entry for entry in _distinct(replaced) if entry.group_key not in self._copies)
        return G1Change(tuple(entry for entry in stored if entry.group_key in self._copies), removed)

    def deregister(self, blocks: Iterable[EngineBlockId]) -> G1Change:
        """Drop the entries of memory blocks that the engine reuses or frees; unknown ones are ignored."""
        taken = self._take(blocks)
        return G1Change(removed=tuple(entry for entry in _distinct(taken) if entry.group_key not in self._copies))

    def clear(self) -> G1Change:
        """Drop all entries."""
        removed = tuple(_distinct(self._blocks.values()))
        self._blocks.clear()
        self._copies.clear()
        return G1Change(removed=removed)

    def _take(self, blocks: Iterable[EngineBlockId]) -> list[G1Block]:
        taken: list[G1Block] = []
        for block in blocks:
            entry = self._blocks.pop(block, None)
            if entry is None:
                continue
            taken.append(entry)
            key = entry.group_key
            left = self._copies[key] - 1
            if left:
                self._copies[key] = left
            else:
                del self._copies[key]
        return taken


def _distinct(entries: Iterable[G1Block]) -> list[G1Block]:
    return list({entry.group_key: entry for entry in entries}.values())
