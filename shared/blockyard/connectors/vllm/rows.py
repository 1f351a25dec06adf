"""Rows as the scheduler half names them: by the engine's own hashes, and by the blocks in which they lie.

Invariants: guards are those that the blocks had when the request got them; block 0 is the engine's filler, never a
block of anybody's.
Threading: values that nobody changes, made by the scheduler's thread and read by that of the client.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, final

from blockyard.connectors.engine_guards import EngineGuards, Guards, Numbers
from blockyard.core.engine_names import row_hashes
from blockyard.core.kv_groups import NO_PAGE
from blockyard.core.vocabulary import EngineBlockId, GroupId

FILLER: Final = 0


@final
@dataclass(frozen=True, slots=True)
class RowPages:
    """Pages of consecutive rows of one group, row by row, with their guards."""

    first_row: int
    rows: int
    pages: Numbers
    guards: Guards


@final
@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Consecutive rows of one group and where they lie; hashes as ``EngineNames.run`` takes them."""

    group: GroupId
    first_row: int
    hashes: list[bytes]
    pages: Numbers
    guards: Guards

    @classmethod
    def named(cls, group: int, pages: RowPages, block_hashes: Sequence[bytes], hashes_per_row: int) -> "Rows":
        """The rows that lie in these pages, under the names that the engine's block hashes give them."""
        hashes = row_hashes(block_hashes, hashes_per_row, pages.first_row, pages.first_row + pages.rows)
        return cls(GroupId(group), pages.first_row, hashes, pages.pages, pages.guards)

    @property
    def count(self) -> int:
        """Number of rows."""
        return len(self.hashes) - (self.first_row > 0)

    @property
    def per_row(self) -> int:
        """Pages of a row."""
        return len(self.pages) // self.count

    def blocks(self) -> set[EngineBlockId]:
        """The pages that the engine has a use for."""
        return {EngineBlockId(page) for page in self.pages.tolist() if page != NO_PAGE}

    def part(self, start: int, stop: int) -> "Rows":
        """Some of these rows, counted from the first."""
        inside = slice(start * self.per_row, stop * self.per_row)
        first_hash = start + (self.first_row > 0)
        hashes = self.hashes[max(0, first_hash - 1) if self.first_row + start else 0 : first_hash + stop - start]
        return Rows(self.group, self.first_row + start, hashes, self.pages[inside], self.guards[inside])

    def intact(self, guards: EngineGuards) -> list["Rows"]:
        """Stretches of rows all of whose blocks nobody got since."""
        kept = (self.pages != FILLER) & (guards.values(self.pages) == self.guards)
        if kept.all():
            return [self]
        whole = kept.reshape(-1, self.per_row).all(axis=1).tolist()
        return [self.part(start, stop) for start, stop in _stretches(whole)]


def _stretches(flags: Sequence[bool]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for index, flag in enumerate(flags):
        if not flag:
            continue
        if found and found[-1][1] == index:
            found[-1] = (found[-1][0], index + 1)
        else:
            found.append((index, index + 1))
    return found
