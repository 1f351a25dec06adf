"""Rows as the scheduler half names them: by the engine's own hashes, and by the blocks in which they lie.

Threading: frozen values.
"""

from dataclasses import dataclass
from typing import final

from blockyard.core.vocabulary import EngineBlockId, GroupId, Guard


@final
@dataclass(frozen=True, slots=True)
class Rows:
    """Consecutive rows of one group and where they lie; hashes as ``BlockNames.run`` takes them."""

    group: GroupId
    first_row: int
    hashes: list[bytes]
    pages: list[EngineBlockId]
    guards: list[Guard]

    @property
    def count(self) -> int:
        """Number of rows."""
        return len(self.hashes) - (self.first_row > 0)

    def part(self, start: int, stop: int) -> "Rows":
        """Some of these rows, counted from the first."""
        per_row = len(self.pages) // self.count
        inside = slice(start * per_row, stop * per_row)
        first_hash = start + (self.first_row > 0)
        hashes = self.hashes[max(0, first_hash - 1) if self.first_row + start else 0 : first_hash + stop - start]
        return Rows(self.group, self.first_row + start, hashes, self.pages[inside], self.guards[inside])
