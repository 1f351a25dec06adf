"""Named rows without a table: what a policy under test may read.

Chains of rows are named with ``name_chain``, single blocks with ``name_block``; a row that was never named is the first
block of a chain of its own.
Threading: one thread.
"""

import hashlib
from collections.abc import Sequence
from typing import final

from blockyard.core.vocabulary import KEY_BYTES, ROOT_KEY, BlockId, ContentKey


@final
class NamedRows:
    """``RowColumns`` of ``capacity`` rows."""

    def __init__(self, capacity: int) -> None:
        """Name every row by its number, as a chain of one block in group 0."""
        self.capacity = capacity
        self.keys = [self._key_of(f"row {row}") for row in range(capacity)]
        self.parents = [ROOT_KEY] * capacity
        self.positions = [0] * capacity
        self.groups = [0] * capacity

    @staticmethod
    def _key_of(name: str) -> ContentKey:
        return ContentKey(hashlib.sha256(name.encode()).digest()[:KEY_BYTES])

    def name_chain(self, rows: Sequence[BlockId], *labels: str, parent: BlockId | None = None, group: int = 0) -> None:
        """Make the rows consecutive blocks of one chain, after the block in ``parent``.

        Labels name the blocks, so that a block can come back in another row; without them each is named by its row.
        """
        before = ROOT_KEY if parent is None else self.keys[parent]
        position = 0 if parent is None else self.positions[parent] + 1
        for index, row in enumerate(rows):
            self.keys[row] = self._key_of(labels[index] if labels else f"row {row}")
            self.parents[row], before = before, self.keys[row]
            self.positions[row] = position + index
            self.groups[row] = group

    def name_block(self, row: BlockId, group: int, label: str) -> None:
        """Make the row the last block of the chain ``label``, which has one letter per block."""
        self.keys[row] = self._key_of(label)
        self.parents[row] = self._key_of(label[:-1]) if label[:-1] else ROOT_KEY
        self.positions[row] = len(label) - 1
        self.groups[row] = group

    def keys_of(self, rows: Sequence[BlockId]) -> list[ContentKey]:
        """Content keys."""
        return [self.keys[row] for row in rows]

    def parents_of(self, rows: Sequence[BlockId]) -> list[ContentKey]:
        """Keys of the blocks before them."""
        return [self.parents[row] for row in rows]

    def positions_of(self, rows: Sequence[BlockId]) -> list[int]:
        """Positions in their chains."""
        return [self.positions[row] for row in rows]

    def groups_of(self, rows: Sequence[BlockId]) -> list[int]:
        """KV groups."""
        return [self.groups[row] for row in rows]
