"""A node that tests script: it remembers what the connector orders, and answers when the test says so.

Threading: one.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from blockyard.connectors.engine_guards import EngineGuards, Numbers
from blockyard.connectors.load_result import LoadResult
from blockyard.connectors.slot_calls import StoreGrant
from blockyard.connectors.vllm.node_calls import (
    LoadEnded,
    LookupAnswered,
    News,
    NodeState,
    RowsAnnounced,
    StoresSettled,
)
from blockyard.connectors.vllm.rows import Rows
from blockyard.connectors.vllm.slot_orders import SlotsGranted
from blockyard.core.vocabulary import Availability, BlockId, EngineBlockId, Generation, ItemStatus, LoadId, Tier
from blockyard.wire.connector_channel import RequestDecision


@dataclass
class ScriptedSlots:
    """Grants what it has, remembers the rest; the test says when loads are staged."""

    news: deque[News]
    free: list[int] = field(default_factory=list)
    generation: int = 0
    grants: int = 0
    committed: list[tuple[list[BlockId], Rows, int]] = field(default_factory=list)
    """Slots, rows and shards."""
    aborted: list[BlockId] = field(default_factory=list)
    staging: dict[int, tuple[Rows, ...]] = field(default_factory=dict)
    closed: list[LoadId] = field(default_factory=list)

    def reserve(self, count: int) -> None:
        taken, self.free = self.free[:count], self.free[count:]
        self.generation += 1
        self.grants += 1
        generations = (Generation(self.generation),) * len(taken)
        self.news.append(SlotsGranted(1, StoreGrant(self.grants, tuple(map(BlockId, taken)), generations)))

    def commit(self, life: int, grant: int, slots: Sequence[BlockId], rows: Rows, shards: int) -> None:
        self.committed.append((list(slots), rows, shards))

    def abort(self, life: int, grant: int, slots: Sequence[BlockId]) -> None:
        self.aborted += slots

    def stage(self, load: int, request: str, rows: Sequence[Rows], ttl_seconds: float) -> None:
        self.staging[load] = tuple(rows)

    def close_loads(self, life: int, loads: Sequence[LoadId]) -> None:
        self.closed += loads


@dataclass
class ScriptedNode:
    """Remembers what the connector orders; the test answers."""

    news: deque[News] = field(default_factory=deque)
    alive: bool = True
    connected: bool = True
    lookups: list[tuple[str, int, int]] = field(default_factory=list)
    """Request, attempt, rows."""
    reserved: list[str] = field(default_factory=list)
    released: list[str] = field(default_factory=list)
    loads: dict[int, tuple[str, tuple[Rows, ...]]] = field(default_factory=dict)
    registered: list[Rows] = field(default_factory=list)
    """Stretches of rows that were whole when they were announced."""
    tickets: list[int] = field(default_factory=list)
    guards: EngineGuards | None = None
    orders: list[str] = field(default_factory=list)
    """Names of orders that concern blocks, in order."""
    flushed: int = 0
    """Orders that are certain to have begun."""
    deregistered: list[EngineBlockId] = field(default_factory=list)
    decisions: list[RequestDecision] = field(default_factory=list)
    resets: int = 0
    closed: bool = False
    holds: Any = None
    """Per group, the number of rows that it holds from the start: lookups are answered at once. None: by hand."""
    settles: bool = True
    """No store of what is registered is wanted."""
    slots: ScriptedSlots = field(init=False)

    def __post_init__(self) -> None:
        self.slots = ScriptedSlots(self.news)

    def lookup(self, request: str, attempt: int, hashes: list[bytes], wait_seconds: float) -> None:
        self.lookups.append((request, attempt, len(hashes)))
        if self.holds is not None:
            self.answer(request, attempt, tuple(self._found(len(hashes), have) for have in self.holds))

    def answer(self, request: str, attempt: int, found: tuple[tuple[Availability, ...], ...] | None) -> None:
        self.news.append(LookupAnswered(request, attempt, found, 0.001))

    def reserve(self, request: str, hashes: list[bytes]) -> None:
        self.reserved.append(request)

    def release(self, request: str) -> None:
        self.released.append(request)

    def load(self, load: int, request: str, rows: Sequence[Rows], ttl_seconds: float) -> None:
        self.orders.append("load")
        self.loads[load] = (request, tuple(rows))

    def drop_load(self, load: int) -> bool:
        return not (self.alive and self.connected)

    def end_load(self, load: int, bad_row: int | None = None) -> None:
        """End a load: all rows there, or those from ``bad_row`` of each part on damaged."""
        _, parts = self.loads.pop(load)
        results = []
        for rows in parts:
            good = rows.count if bad_row is None else bad_row
            bad = rows.count - good
            results.append(
                LoadResult((ItemStatus.OK,) * good + (ItemStatus.CORRUPT,) * bad, (Tier.G2,) * good + (None,) * bad)
            )
        self.news.append(LoadEnded(load, tuple(results), 0.01))

    def register(self, rows: Rows, ticket: int) -> None:
        self.orders.append("register")
        assert self.guards is not None
        self.registered += rows.intact(self.guards)
        self.tickets.append(ticket)
        self.news.append(RowsAnnounced(rows.count))
        if self.settles:
            self.news.append(StoresSettled(ticket))

    def settle(self) -> None:
        """No store is wanted or under way any more."""
        self.news.extend(StoresSettled(ticket) for ticket in self.tickets)

    def deregister(self, blocks: Sequence[Numbers]) -> None:
        self.orders.append("deregister")
        self.deregistered += [block for part in blocks for block in part.tolist()]

    def reset(self) -> None:
        self.resets += 1

    def report(self, decisions: Sequence[RequestDecision]) -> None:
        self.decisions += decisions

    def flush(self) -> None:
        self.flushed = len(self.orders)

    def close(self) -> None:
        self.closed = True

    def goes(self) -> None:
        """The connection is lost."""
        self.connected = False
        self.news.append(NodeState(connected=False, loading=True))

    def comes_back(self) -> None:
        """And made anew."""
        self.connected = True
        self.news.append(NodeState(connected=True, loading=True))

    def switch_loading(self, loading: bool) -> None:
        self.news.append(NodeState(connected=True, loading=loading))

    @staticmethod
    def _found(rows: int, have: Any) -> tuple[Availability, ...]:
        held = set(range(have)) if isinstance(have, int) else set(have)
        return tuple(Availability.G2 if row in held else Availability.MISS for row in range(rows))
