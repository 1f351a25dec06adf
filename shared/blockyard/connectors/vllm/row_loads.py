"""Loads under way: from the allocation of their pages to the end that the engine is told.

Invariants: a load ends once, when the node says that no write can follow; rows that came whole are registered like
computed ones, except the one whose last token the engine computes again.
Only two kinds of loads end without that word: those of a node that went away and did not come back for half a minute
after their deadline, and all of them after a fault of ours. Their blocks go on to be computed, or to others. Before
that their guards are raised, and the node's worker compares guards before it writes a row: no row is begun any more,
least of all after the deadline. What is left is a row that was being written when the guards rose, by a worker that
stands still in the middle of it, later goes on, and has no block-manager to end it. That row may then be damaged in
the engine's memory; it is not stored, since these blocks are offered to the node only after it has said that nothing
writes into them any more.
Threading: the scheduler's thread.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Final, Protocol, final

from blockyard.connectors.engine_guards import EngineGuards
from blockyard.connectors.load_result import LoadResult
from blockyard.connectors.vllm.connector_counts import ConnectorCounts
from blockyard.connectors.vllm.node_calls import LoadEnded
from blockyard.connectors.vllm.row_stores import RowStores
from blockyard.connectors.vllm.rows import Rows
from blockyard.connectors.vllm.settings import ConnectorSettings
from blockyard.connectors.vllm.tracked_request import EngineFacts, TrackedRequest
from blockyard.core.cost import CostModel
from blockyard.core.vocabulary import Tier

_ORPHAN_SECONDS: Final = 30.0
"""How long after its deadline a load is given up whose node is gone; a node that is there ends its worker by then."""


class Loader(Protocol):
    """Who carries loads out."""

    def load(self, load: int, request: str, rows: Sequence[Rows], ttl_seconds: float) -> None:
        """Bring rows into their pages; ``LoadEnded`` follows."""
        ...

    def drop_load(self, load: int) -> bool:
        """Nobody waits for a load whose node is gone; False where its end is certain to be told all the same."""
        ...


@final
@dataclass(frozen=True, slots=True)
class _Load:
    tracked: TrackedRequest
    rows: tuple[Rows, ...]
    stop_row: int
    deadline: float


@final
@dataclass(frozen=True, slots=True)
class LoadOutcome:
    """What the engine has to be told of an ended load."""

    tracked: TrackedRequest
    failed: bool = False
    """All of the request is computed (several KV groups)."""
    invalid: frozenset[int] = frozenset()
    """Engine blocks that were not loaded (one KV group)."""


@final
class RowLoads:
    """Loads of one engine."""

    def __init__(
        self,
        settings: ConnectorSettings,
        facts: EngineFacts,
        guards: EngineGuards,
        loader: Loader,
        stores: RowStores,
        cost: CostModel,
        counts: ConnectorCounts,
        clock: Callable[[], float],
        *,
        by_worker: bool = True,
    ) -> None:
        """Begin with none, each to be carried out by ``loader``; the node's worker writes, or the ranks do."""
        self._by_worker = by_worker
        self._settings = settings
        self._facts = facts
        self._guards = guards
        self._loader = loader
        self._stores = stores
        self._cost = cost
        self._counts = counts
        self._clock = clock
        self._loads: dict[int, _Load] = {}
        self._planned: list[int] = []
        self._numbers = count(1)

    def __len__(self) -> int:
        """Loads under way."""
        return len(self._loads)

    def plan(self, tracked: TrackedRequest, external_tokens: int) -> None:
        """The engine allocated pages for this many tokens beyond the local ones."""
        facts = self._facts
        stop_row = (tracked.local_tokens + external_tokens) // facts.block_tokens
        first_row = tracked.local_tokens // facts.block_tokens
        parts = []
        for group, table in zip(facts.groups, tracked.tables, strict=True):
            pages = table.wanted(first_row, stop_row, tracked.local_tokens // group.engine_block_tokens)
            if pages is not None:
                parts.append(Rows.named(group.group, pages, tracked.request.block_hashes, facts.hashes_per_row))
        number = next(self._numbers)
        deadline = self._clock() + self._settings.load_timeout_ms / 1_000
        tracked.load = number
        self._loads[number] = _Load(tracked, tuple(parts), stop_row, deadline)
        self._planned.append(number)

    def begin(self) -> None:
        """Begin what was planned; the node has heard of the reuse of the pages."""
        for number in self._planned:
            load = self._loads[number]
            self._loader.load(number, load.tracked.request_id, load.rows, self._settings.load_timeout_ms / 1_000)
        self._planned.clear()

    def ended(self, end: LoadEnded) -> list[LoadOutcome]:
        """The node says that a load has ended; the outcome, if it was under way."""
        if end.load in self._loads:
            return [self._end(end.load, end.results, end.seconds)]
        self._stores.trust(end.load)
        return []

    def orphans(self) -> list[LoadOutcome]:
        """Outcomes of loads whose node is gone: nothing is begun long after their deadline, and nobody will tell us."""
        now = self._clock()
        overdue = [number for number, load in self._loads.items() if now >= load.deadline + _ORPHAN_SECONDS]
        return self._give_up([number for number in overdue if self._loader.drop_load(number)])

    def give_up(self) -> list[LoadOutcome]:
        """Outcomes of all loads, none of which is waited for any more."""
        return self._give_up(list(self._loads))

    def _give_up(self, numbers: list[int]) -> list[LoadOutcome]:
        outcomes = []
        for number in numbers:
            rows = self._loads[number].rows
            pages = {page for part in rows for page in part.blocks()}
            self._guards.raise_guards(list(pages))
            if self._by_worker:
                self._stores.distrust(number, pages)
            outcomes.append(self._end(number, [LoadResult.unknown(part.count) for part in rows], 0.0))
        return outcomes

    def _end(self, number: int, results: Sequence[LoadResult], seconds: float) -> LoadOutcome:
        load = self._loads.pop(number)
        tracked, facts = load.tracked, self._facts
        tracked.load = 0
        usable = [result.usable for result in results]
        whole = all(good == rows.count for good, rows in zip(usable, load.rows, strict=True))
        loaded = sum(usable) if whole or len(facts.groups) == 1 else 0
        asked = sum(rows.count for rows in load.rows)
        row_bytes = facts.row_bytes // len(facts.groups)
        self._counts.loaded(loaded, loaded * row_bytes, asked - loaded)
        invalid: set[int] = set()
        stop = load.stop_row
        if whole:
            sources = [source for result in results for source in result.sources if source is not None]
            self._cost.observe_load(max(sources, default=Tier.G2), loaded * row_bytes, seconds, loaded)
        else:
            tracked.declined = True
            if len(facts.groups) == 1:
                (rows,), (good,) = load.rows, usable
                stop = rows.first_row + good
                invalid = set(rows.part(good, rows.count).blocks())
        failed = not whole and len(facts.groups) > 1
        if tracked.finished:
            return LoadOutcome(tracked)
        if not failed:
            # The engine computes the last token of a prompt again, into its last block: that row is complete later.
            stop = min(stop, (tracked.request.num_tokens - 1) // facts.block_tokens)
            for rows in load.rows:
                self._stores.register(tracked, tracked.tables[rows.group], rows.group, rows.first_row, stop)
            tracked.next_row = [max(first, stop) for first in tracked.next_row]
        return LoadOutcome(tracked, failed, frozenset(invalid))
