"""What an engine holds in G1 under which name: kept by the client so that it can be announced again.

A restarted block-manager knows nothing of an engine's rows until the engine sends its whole set. The engine goes on
registering and freeing blocks meanwhile, so the set is handed out run by run, each as it is at that moment. Rows are
announced with the guards that they were registered with: a row whose block was reused since cannot be stored any more.
Invariants: an engine block belongs to at most one row, and a row that loses one block is gone; runs are cut so that
each is one stretch of one chain and fits one call; a row that left the set, or was registered anew, is not handed out
any more.
Threading: owned by the client's event loop.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import final

from blockyard.core.chain_run import ChainRun
from blockyard.core.vocabulary import (
    ChainDigest,
    ContentKey,
    EngineBlockId,
    GroupId,
    Guard,
    TenantDigest,
    key_of,
)
from blockyard.wire.codec import MAX_PAGES_PER_CALL


@final
@dataclass(frozen=True, slots=True)
class RegisteredRun:
    """Rows of one chain and where they lie in G1: n × k pages, row by row, with their guards."""

    run: ChainRun
    tenant: TenantDigest
    group: GroupId
    pages: tuple[EngineBlockId, ...]
    guards: tuple[Guard, ...]


@final
@dataclass(frozen=True, slots=True)
class _Row:
    digest: ChainDigest
    parent: ContentKey
    position: int
    tenant: TenantDigest
    group: GroupId
    pages: tuple[EngineBlockId, ...]
    guards: tuple[Guard, ...]


class G1Set:
    """Registered rows of one engine."""

    def __init__(self) -> None:
        """Start empty."""
        self._rows: dict[EngineBlockId, _Row] = {}
        """Every row under its first page."""
        self._first_page: dict[EngineBlockId, EngineBlockId] = {}
        """Per page: the first one of its row."""
        self._unannounced: dict[EngineBlockId, _Row] = {}

    def __len__(self) -> int:
        """Number of registered rows."""
        return len(self._rows)

    def registered(self, blocks: Iterable[EngineBlockId]) -> set[EngineBlockId]:
        """Those of the blocks that belong to a row."""
        return {block for block in blocks if block in self._first_page}

    def noted_guards(self, blocks: Iterable[EngineBlockId]) -> tuple[list[EngineBlockId], list[Guard]]:
        """Those of the blocks that belong to a row, and the guards that they were registered with."""
        wanted = set(blocks)
        pages: list[EngineBlockId] = []
        guards: list[Guard] = []
        for first in self._first_pages(wanted):
            row = self._rows[first]
            if wanted.issuperset(row.pages):
                pages += row.pages
                guards += row.guards
            else:
                here = [index for index, page in enumerate(row.pages) if page in wanted]
                pages += [row.pages[index] for index in here]
                guards += [row.guards[index] for index in here]
        return pages, guards

    def blocks(self) -> Iterable[EngineBlockId]:
        """All blocks that belong to a row."""
        return self._first_page.keys()

    def add(self, registered: RegisteredRun) -> None:
        """Enter the rows of a run, which the caller announces; a row that held one of their blocks is gone."""
        for row in _rows_of(registered):
            self.discard(row.pages)
            first = row.pages[0]
            self._rows[first] = row
            self._first_page.update(dict.fromkeys(row.pages, first))

    def withdraw(self, registered: RegisteredRun) -> None:
        """Take back what ``add`` entered, as far as the blocks were not registered anew."""
        for row in _rows_of(registered):
            if self._rows.get(row.pages[0]) == row:
                self._forget(row.pages[0])

    def discard(self, blocks: Sequence[EngineBlockId]) -> None:
        """Forget the rows that these blocks belong to; unknown ones are ignored."""
        for first in self._first_pages(blocks):
            self._forget(first)

    def clear(self) -> None:
        """Forget everything."""
        self._rows.clear()
        self._first_page.clear()
        self._unannounced.clear()

    def announce_all(self) -> None:
        """Nobody knows of the set: ``next_run`` hands all of it out."""
        self._unannounced = dict(self._rows)

    def next_run(self, limit: int, page_limit: int = MAX_PAGES_PER_CALL) -> RegisteredRun | None:
        """At most ``limit`` rows that were not handed out yet, in order of registration; None when all were.

        They have at most ``page_limit`` pages together, unless one row alone has more.
        """
        rows: list[_Row] = []
        pages = 0
        for row in self._unannounced.values():
            pages += len(row.pages)
            if rows and (len(rows) == limit or pages > page_limit or not _follows(rows[-1], row)):
                break
            rows.append(row)
        for row in rows:
            del self._unannounced[row.pages[0]]
        return _run_of(rows) if rows else None

    def _first_pages(self, blocks: Iterable[EngineBlockId]) -> set[EngineBlockId]:
        """First pages of the rows that these blocks belong to."""
        return {first for block in blocks if (first := self._first_page.get(block)) is not None}

    def _forget(self, first: EngineBlockId) -> None:
        for page in self._rows.pop(first).pages:
            del self._first_page[page]
        self._unannounced.pop(first, None)


def _rows_of(registered: RegisteredRun) -> Iterator[_Row]:
    run, rows = registered.run, len(registered.run)
    pages_per_row = len(registered.pages) // rows if rows else 0
    for index in range(rows):
        places = slice(index * pages_per_row, (index + 1) * pages_per_row)
        yield _Row(
            digest=run.digest(index),
            parent=run.parent_of(index),
            position=run.first_position + index,
            tenant=registered.tenant,
            group=registered.group,
            pages=registered.pages[places],
            guards=registered.guards[places],
        )


def _follows(last: _Row, row: _Row) -> bool:
    return row.parent == key_of(last.digest) and (row.tenant, row.group) == (last.tenant, last.group)


def _run_of(rows: list[_Row]) -> RegisteredRun:
    first = rows[0]
    return RegisteredRun(
        run=ChainRun(b"".join(row.digest for row in rows), first.position, first.parent),
        tenant=first.tenant,
        group=first.group,
        pages=tuple(page for row in rows for page in row.pages),
        guards=tuple(guard for row in rows for guard in row.guards),
    )
