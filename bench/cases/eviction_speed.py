"""What the order of eviction costs: block accesses per second with TIDE and LRU, against LRU in an ``OrderedDict``.

A recorded load is replayed in rows that a policy orders, without a pool: rows are granted from a list and found in a
dictionary, and the policy gets the batches that a pool would give it. The other side is the same replay with the barest
policy that Python allows, an ``OrderedDict`` of rows without checks. ``bare`` tells the whole replay apart from all
that: an ``OrderedDict`` of keys and nothing else, which is no order behind a port and has no bar.
LRU must have the same hits on all sides.
"""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Final

from bench.errors import WrongBytesError
from bench.measure import Contest, Measure
from bench.replay.trace import Trace, load
from blockyard.core.eviction.base import PolicyFactory, RowColumns
from blockyard.core.eviction.lru import LruPolicy
from blockyard.core.eviction.tide import TidePolicy
from blockyard.core.vocabulary import ROOT_KEY, BlockId, ContentKey

_TIDE_BAR, _TIDE_STRETCH = 0.35, 1.0
_AGENTS, _CHAT = "agentic_coding_a", "mooncake_conversation"
_REQUESTS: Final = {_AGENTS: 2000, _CHAT: 6000}
"""The first so many are replayed: about 390,000 and 140,000 blocks."""
_SHARE: Final = 0.2
"""Capacity, as a share of the different blocks of the whole trace."""
_AGAINST: Final = "an OrderedDict in its place"
_AGAINST_BARE: Final = "a bare loop over an OrderedDict"


def run(case: str) -> Iterator[Measure]:
    """Block accesses per second of TIDE and LRU in batches, prompts of agents (226 blocks) and of chats (23)."""
    for name in (_AGENTS, _CHAT):
        trace = load(name).head(_REQUESTS[name])
        capacity = load(name).capacity(_SHARE)
        _check(trace, capacity)
        bars = (_TIDE_BAR, _TIDE_STRETCH) if name == _AGENTS else (None, None)
        yield _contest(f"tide.{name}", trace, capacity, TidePolicy, bars).run(case)
        yield _contest(f"lru.{name}", trace, capacity, LruPolicy, (None, None)).run(case)
        yield _against_bare(f"bare.{name}", trace, capacity).run(case)


def _against_bare(measure: str, trace: Trace, capacity: int) -> Contest:
    return Contest(
        measure=measure,
        unit="blocks",
        ours=lambda: _accesses(trace, policy_hits(trace, capacity, TidePolicy)),
        theirs=lambda: _accesses(trace, bare_hits(trace, capacity)),
        against=_AGAINST_BARE,
    )


def _contest(
    measure: str,
    trace: Trace,
    capacity: int,
    make_policy: PolicyFactory,
    bars: tuple[float | None, float | None],
) -> Contest:
    bar, stretch = bars
    return Contest(
        measure=measure,
        unit="blocks",
        ours=lambda: _accesses(trace, policy_hits(trace, capacity, make_policy)),
        theirs=lambda: _accesses(trace, policy_hits(trace, capacity, OrderedDictLru)),
        against=_AGAINST,
        bar=bar,
        stretch=stretch,
    )


def _accesses(trace: Trace, hits: int) -> float:
    if not hits:
        raise WrongBytesError("a replay without a hit measures nothing")
    return trace.references


class OrderedDictLru:
    """The port without checks: rows in an ``OrderedDict``, the tail of a batch before its head."""

    def __init__(self, columns: RowColumns) -> None:
        """Make an empty order; the columns are of no use."""
        self._rows: OrderedDict[BlockId, None] = OrderedDict()

    def __len__(self) -> int:
        """Number of rows."""
        return len(self._rows)

    def __iter__(self) -> Iterator[BlockId]:
        """Rows in eviction order."""
        return iter(self._rows)

    def touch(self, blocks: Sequence[BlockId]) -> None:
        """Nothing."""

    def insert(self, blocks: Sequence[BlockId]) -> None:
        """Behind all others, the last row first."""
        rows = self._rows
        for row in reversed(blocks):
            rows[row] = None

    def remove(self, blocks: Sequence[BlockId]) -> None:
        """Take rows out."""
        rows = self._rows
        for row in blocks:
            del rows[row]

    def take(self, count: int) -> list[BlockId]:
        """The oldest rows."""
        rows = self._rows
        return [rows.popitem(last=False)[0] for _ in range(count)]

    def put_back(self, blocks: Sequence[BlockId]) -> None:
        """In front of all others, in the given order."""
        for row in reversed(blocks):
            self._rows[row] = None
            self._rows.move_to_end(row, last=False)

    def forget(self, blocks: Sequence[BlockId]) -> None:
        """Nothing."""


class _Columns:
    """What a policy reads, for rows that are named by plain lists."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.keys = [ROOT_KEY] * capacity
        self.parents = [ROOT_KEY] * capacity
        self.positions = [0] * capacity

    def keys_of(self, rows: Sequence[BlockId]) -> list[ContentKey]:
        keys = self.keys
        return [keys[row] for row in rows]

    def parents_of(self, rows: Sequence[BlockId]) -> list[ContentKey]:
        parents = self.parents
        return [parents[row] for row in rows]

    def positions_of(self, rows: Sequence[BlockId]) -> list[int]:
        positions = self.positions
        return [positions[row] for row in rows]

    def groups_of(self, rows: Sequence[BlockId]) -> list[int]:
        return [0] * len(rows)


def _check(trace: Trace, capacity: int) -> None:
    hits = {policy_hits(trace, capacity, LruPolicy), policy_hits(trace, capacity, OrderedDictLru)}
    if hits != {bare_hits(trace, capacity)}:
        raise WrongBytesError("the sides do not store the same blocks")


def policy_hits(trace: Trace, capacity: int, make_policy: PolicyFactory) -> int:
    """Hits of the trace in rows that a policy alone orders."""
    columns = _Columns(capacity)
    policy = make_policy(columns)
    row_of: dict[ContentKey, BlockId] = {}
    free = [BlockId(row) for row in range(capacity)]
    hits = 0
    for request in trace.requests:
        keys = request[:capacity]
        rows = list(map(row_of.get, keys))
        found = rows.index(None) if None in rows else len(rows)
        hits += found
        held = [row for row in rows if row is not None]
        policy.touch(held)
        policy.remove(held)
        if len(held) < len(rows):
            fresh = [position for position, row in enumerate(rows) if row is None]
            victims = policy.take(len(fresh) - len(free))
            for row in victims:
                del row_of[columns.keys[row]]
            policy.forget(victims)
            free += victims
            granted = [free.pop() for _ in fresh]
            for row, position in zip(granted, fresh, strict=True):
                row_of[keys[position]] = row
                columns.keys[row] = keys[position]
                columns.parents[row] = keys[position - 1] if position else ROOT_KEY
                columns.positions[row] = position
            policy.touch(granted)
            policy.insert(granted)
        policy.insert(held)
    return hits


def bare_hits(trace: Trace, capacity: int) -> int:
    """The same with LRU in an ``OrderedDict``."""
    row_of: OrderedDict[ContentKey, int] = OrderedDict()
    free = list(range(capacity))
    hits = 0
    for request in trace.requests:
        keys = request[:capacity]
        rows: list[int] = []
        for key in keys:
            row = row_of.pop(key, None)
            if row is None:
                break
            rows.append(row)
        hits += len(rows)
        for _ in range(len(keys) - len(rows)):
            rows.append(free.pop() if free else row_of.popitem(last=False)[1])
        for key, row in zip(reversed(keys), reversed(rows), strict=True):
            row_of[key] = row
    return hits
