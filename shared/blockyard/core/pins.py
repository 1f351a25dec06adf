"""Who pins what, and until when: one table of pins per pool or per node.

A pin is a row (owner, blocks, deadline). Ends of a pin: release by its owner, its deadline, death of the owner (the
caller releases on behalf of the dead). Releasing an owner twice, or one that never pinned, is no error: the end of a
lease and the end of its request may come in any order.
Invariants: counts are sums over rows; a row releases its blocks exactly once; blocks that are not kept after their last
use and leave by the end of a pin are told to ``on_left`` in the same call.
Threading: the owner thread of the pools whose blocks are pinned.
"""

import heapq
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum, unique
from types import TracebackType
from typing import Final, Self, final

from blockyard.core.block_facts import BlockFacts
from blockyard.core.errors import KernelError
from blockyard.core.handles import ImmutableBlocks
from blockyard.core.vocabulary import Tier

NO_DEADLINE: Final = math.inf
"""For pins that only their owner ends, such as those of a job."""
_SLACK: Final = 64


@unique
class PinKind(Enum):
    """Why blocks are pinned."""

    LEASE = "lease"
    """A lookup's reservation for one request of one engine session."""
    JOB = "job"
    """An unsettled transfer reads the blocks."""


@dataclass(frozen=True, slots=True)
class PinOwner:
    """Holder of pins; ``name`` is unique within its kind."""

    kind: PinKind
    name: str


@dataclass(frozen=True, slots=True)
class PinRow:
    """One pin; ``deadline`` is on the monotonic clock, in seconds."""

    owner: PinOwner
    blocks: ImmutableBlocks
    tier: Tier
    deadline: float


@final
class PinTable:
    """All pins; releases what is left when its ``with`` block ends or ``close`` is called."""

    __slots__ = ("_compact_at", "_deadlines", "_on_left", "_rows", "_serial")

    def __init__(self, on_left: Callable[[Tier, list[BlockFacts]], None]) -> None:
        """Make an empty table; it tells ``on_left`` which blocks left the index of a tier, their rows being free."""
        self._on_left = on_left
        self._rows: dict[PinOwner, dict[int, PinRow]] = {}
        # (deadline, serial, owner); entries of pins that ended or were renewed are skipped when they come up, and
        # dropped when they are the most: a waiting request renews its lease at every step of its engine.
        self._deadlines: list[tuple[float, int, PinOwner]] = []
        self._serial = 0
        self._compact_at = _SLACK

    # --- counts ---------------------------------------------------------------------------------------------------
    @property
    def count(self) -> int:
        """Number of pins."""
        return sum(map(len, self._rows.values()))

    @property
    def remembered(self) -> int:
        """Entries in memory, for the bound."""
        return self.count + len(self._deadlines)

    def __contains__(self, owner: PinOwner) -> bool:
        """Whether the owner pins anything."""
        return owner in self._rows

    # --- pins -----------------------------------------------------------------------------------------------------
    def add(self, owner: PinOwner, blocks: ImmutableBlocks, deadline: float = NO_DEADLINE) -> None:
        """Keep ``blocks`` for ``owner`` beside what it pins already; the handle belongs to the table from now on.

        Raises:
            HandleConsumedError: the handle is used up.
            KernelError: the deadline is no time.
        """
        _require_time(deadline)
        row = PinRow(owner, blocks, blocks.tier, deadline)
        self._serial += 1
        self._rows.setdefault(owner, {})[self._serial] = row
        if deadline != NO_DEADLINE:
            heapq.heappush(self._deadlines, (deadline, self._serial, owner))
            if len(self._deadlines) > self._compact_at:
                self._compact()

    def _compact(self) -> None:
        live = [entry for entry in self._deadlines if entry[1] in self._rows.get(entry[2], ())]
        heapq.heapify(live)
        self._deadlines = live
        self._compact_at = 2 * len(live) + _SLACK

    def replace(self, owner: PinOwner, blocks: ImmutableBlocks, deadline: float = NO_DEADLINE) -> None:
        """Pin ``blocks`` for ``owner`` instead of what it pinned: a repeated reservation renews the lease.

        Raises as ``add`` does.
        """
        earlier = tuple(self._rows.get(owner, ()))
        self.add(owner, blocks, deadline)
        rows = self._rows[owner]
        self._end([rows.pop(serial) for serial in earlier])

    def transfer(self, owner: PinOwner, heir: PinOwner, deadline: float = NO_DEADLINE) -> int:
        """Make all pins of ``owner`` pins of ``heir`` with a new deadline; returns how many.

        Raises:
            KernelError: the deadline is no time.
        """
        _require_time(deadline)
        rows = self._rows.pop(owner, {})
        for row in rows.values():
            self.add(heir, row.blocks, deadline)
        return len(rows)

    def release(self, owner: PinOwner) -> int:
        """End all pins of ``owner``, the latest first; returns how many there were. Idempotent.

        A chain is mostly pinned from its head; from its head it would be put in order again with every block released.
        """
        rows = self._rows.pop(owner, {})
        self._end(reversed(rows.values()))
        return len(rows)

    def expire(self, now: float) -> tuple[PinOwner, ...]:
        """End every pin whose deadline is at or before ``now``; returns the owners, one entry per pin."""
        ended: list[PinRow] = []
        while self._deadlines and self._deadlines[0][0] <= now:
            _, serial, owner = heapq.heappop(self._deadlines)
            rows = self._rows.get(owner)
            row = rows.pop(serial, None) if rows else None
            if row is None:
                continue
            if not rows:
                del self._rows[owner]
            ended.append(row)
        self._end(ended)
        return tuple(row.owner for row in ended)

    def _end(self, rows: Iterable[PinRow]) -> None:
        left: dict[Tier, list[BlockFacts]] = {}
        for row in rows:
            facts = row.blocks.release()
            if facts:
                left.setdefault(row.tier, []).extend(facts)
        for tier, gone in left.items():
            self._on_left(tier, gone)

    def close(self) -> None:
        """End all pins. Idempotent."""
        for owner in list(self._rows):
            self.release(owner)

    def __enter__(self) -> Self:
        """Use the table within a block."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End all pins."""
        self.close()


def _require_time(deadline: float) -> None:
    if math.isnan(deadline):
        raise KernelError("a deadline is a time", deadline=deadline)
