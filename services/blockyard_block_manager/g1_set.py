"""The G1 set of one engine: which of its memory holds which KV blocks.

An entry is a *row*: the pages (engine blocks) that together hold one block of one group. An engine may hold one content
in several rows; only the first copy and the loss of the last one are transitions that the outside hears of.
Invariants: a page belongs to at most one row, and a row that loses a page is gone; ``_copies`` counts exactly the rows
of a content.
Threading: owned by the event loop of the service.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from blockyard.core.block_name import BlockName
from blockyard.core.events import BlockScope
from blockyard.core.vocabulary import ContentKey, EngineBlockId, GroupId, Guard

GroupKey = tuple[ContentKey, GroupId]


@dataclass(frozen=True, slots=True)
class G1Row:
    """What some pages of an engine hold together, and the guard that each had when the row was complete."""

    pages: tuple[EngineBlockId, ...]
    guards: tuple[Guard, ...]
    name: BlockName
    scope: BlockScope

    @property
    def group_key(self) -> GroupKey:
        """What identifies the content within the engine."""
        return self.name.key, self.scope.group


@dataclass(frozen=True, slots=True)
class G1Change:
    """Transitions of a call: contents that became readable, and contents whose last copy went."""

    stored: tuple[G1Row, ...] = ()
    removed: tuple[G1Row, ...] = ()


class G1Set:
    """Contents of one engine's memory, as far as the engine registered them."""

    def __init__(self) -> None:
        """Start empty."""
        self._rows: dict[EngineBlockId, G1Row] = {}
        """By their first page."""
        self._pages: dict[EngineBlockId, EngineBlockId] = {}
        """First page of the row that a page belongs to."""
        self._copies: dict[GroupKey, int] = {}

    def __len__(self) -> int:
        """Rows."""
        return len(self._rows)

    def __iter__(self) -> Iterator[G1Row]:
        """All rows, oldest registration first."""
        return iter(tuple(self._rows.values()))

    @property
    def contents(self) -> frozenset[GroupKey]:
        """Distinct contents."""
        return frozenset(self._copies)

    def has(self, content: GroupKey) -> bool:
        """Whether any row has this content."""
        return content in self._copies

    def holds(self, row: G1Row) -> bool:
        """Whether this very row is current."""
        held = self._rows.get(row.pages[0])
        return held is row or held == row

    def registered(self, pages: Iterable[EngineBlockId]) -> set[EngineBlockId]:
        """Those of the pages that belong to a row."""
        return {page for page in pages if page in self._pages}

    def register(self, rows: Sequence[G1Row]) -> G1Change:
        """Enter complete rows; rows that any of their pages belonged to before are replaced."""
        before = {row.group_key for row in rows if row.group_key in self._copies}
        replaced = self._take(page for row in rows for page in row.pages)
        stored: dict[GroupKey, G1Row] = {}
        for row in rows:
            self._take(row.pages)  # the same page twice in one call: the last row counts
            key = row.group_key
            first = row.pages[0]
            self._rows[first] = row
            for page in row.pages:
                self._pages[page] = first
            self._copies[key] = self._copies.get(key, 0) + 1
            if key not in before:
                stored.setdefault(key, row)
        removed = tuple(row for row in _distinct(replaced) if row.group_key not in self._copies)
        return G1Change(tuple(row for key, row in stored.items() if key in self._copies), removed)

    def deregister(self, pages: Iterable[EngineBlockId]) -> G1Change:
        """Drop the rows of pages that the engine reuses or frees; unknown ones are ignored."""
        taken = self._take(pages)
        return G1Change(removed=tuple(row for row in _distinct(taken) if row.group_key not in self._copies))

    def shrink(self, most: int) -> int:
        """Drop up to ``most`` rows of a set that is of no use any more; returns how many are left."""
        self._take(list(islice(self._rows, most)))
        return len(self._rows)

    def _take(self, pages: Iterable[EngineBlockId]) -> list[G1Row]:
        taken: list[G1Row] = []
        for page in pages:
            first = self._pages.get(page)
            if first is None:
                continue
            row = self._rows.pop(first)
            for member in row.pages:
                del self._pages[member]
            taken.append(row)
            key = row.group_key
            left = self._copies[key] - 1
            if left:
                self._copies[key] = left
            else:
                del self._copies[key]
        return taken


def _distinct(rows: Iterable[G1Row]) -> list[G1Row]:
    return list({row.group_key: row for row in rows}.values())
