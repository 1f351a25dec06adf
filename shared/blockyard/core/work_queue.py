"""Bounded queue of named work by priority: the most urgent first, of equals the one that came first.

Entries belong to lanes (what can go into one job together); a batch is taken from the lane of the most urgent entry.
When the queue is full, by entries or by bytes, the least urgent entry goes, of equals the oldest: under overload the
freshest work is worth most, and urgent work never yields to other work.
Invariants: a name is queued once; never more than the limits allow; every entry leaves once: taken, withdrawn or
dropped. A change costs O(log n), amortised: what left stays in the heaps until it comes up or is most of them.
Threading: owned by one thread.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush
from typing import Final, Generic, TypeVar, final

from blockyard.core.errors import ConfigurationError, KernelError

Name = TypeVar("Name", bound=Hashable)
LaneKey = TypeVar("LaneKey", bound=Hashable)
Work = TypeVar("Work")

_LEAST_SWEEP: Final = 64


@final
@dataclass(frozen=True, slots=True)
class QueueLimits:
    """Most that may wait: entries, and bytes they stand for (0 = not counted)."""

    entries: int
    size_bytes: int = 0


@dataclass(slots=True, eq=False)
class _Entry(Generic[Name, LaneKey, Work]):
    name: Name
    work: Work
    lane: LaneKey
    priority: int
    number: int
    size_bytes: int


_Heap = list[tuple[int, int, "_Entry[Name, LaneKey, Work]"]]
"""Entries behind what they are ordered by; an entry is live where the queue still has it with that priority."""


@final
class WorkQueue(Generic[Name, LaneKey, Work]):
    """Waiting work; see the module text."""

    __slots__ = ("_best", "_entries", "_limits", "_numbers", "_size_bytes", "_worst")

    def __init__(self, limits: QueueLimits) -> None:
        """Start empty.

        Raises:
            ConfigurationError: there is no room for one entry.
        """
        if limits.entries < 1:
            raise ConfigurationError("a queue holds at least one entry", limit=limits.entries)
        self._limits: Final = limits
        self._entries: dict[Name, _Entry[Name, LaneKey, Work]] = {}
        self._best: dict[LaneKey, _Heap[Name, LaneKey, Work]] = {}
        self._worst: _Heap[Name, LaneKey, Work] = []
        self._numbers = 0
        self._size_bytes = 0

    # --- reading ------------------------------------------------------------------------------------------------------
    def __len__(self) -> int:
        """Entries waiting."""
        return len(self._entries)

    def __contains__(self, name: object) -> bool:
        """Whether work of this name waits."""
        return name in self._entries

    @property
    def size_bytes(self) -> int:
        """Bytes that the entries stand for."""
        return self._size_bytes

    def get(self, name: Name) -> Work | None:
        """Work of this name; None where none waits."""
        entry = self._entries.get(name)
        return None if entry is None else entry.work

    def all_work(self) -> list[Work]:
        """Work of all entries, in no order."""
        return [entry.work for entry in self._entries.values()]

    # --- changing -----------------------------------------------------------------------------------------------------
    def put(self, name: Name, work: Work, *, lane: LaneKey, priority: int = 0, size_bytes: int = 0) -> list[Work]:
        """Add an entry.

        Returns:
            Work that was dropped to make room; the new one itself where everything waiting is more urgent.

        Raises:
            KernelError: the name is queued already; nothing changed.
        """
        if name in self._entries:
            raise KernelError("a name is queued once", name=str(name))
        self._numbers += 1
        self._enter(_Entry(name, work, lane, priority, self._numbers, size_bytes))
        dropped: list[Work] = []
        while self._too_full():
            dropped.append(self._leave(self._least()).work)
        return dropped

    def raise_to(self, name: Name, priority: int) -> None:
        """Make an entry at least this urgent; among its new equals it stands where it came. Others stay as they are."""
        entry = self._entries.get(name)
        if entry is not None and entry.priority < priority:
            self._leave(entry)
            self._enter(replace(entry, priority=priority))

    def withdraw(self, name: Name) -> Work | None:
        """Take an entry out; None where none of this name waits."""
        entry = self._entries.get(name)
        return None if entry is None else self._leave(entry).work

    def take(
        self,
        limit: int,
        *,
        least_priority: int | None = None,
        room_of: Callable[[LaneKey], int] | None = None,
    ) -> list[Work]:
        """Take the most urgent entries of one lane, the most urgent first; perhaps none.

        Args:
            limit: most entries.
            least_priority: entries below this priority stay.
            room_of: most entries that may go of a lane now; lanes without room are passed over.
        """
        heads = [head for lane in list(self._best) if (head := self._head(lane)) is not None]
        if room_of is not None:
            heads = [head for head in heads if room_of(head.lane) > 0]
        if not heads:
            return []
        lane = min(heads, key=lambda entry: (-entry.priority, entry.number)).lane
        most = limit if room_of is None else min(limit, room_of(lane))
        taken: list[Work] = []
        while len(taken) < most:
            entry = self._head(lane)
            if entry is None or (least_priority is not None and entry.priority < least_priority):
                break
            taken.append(self._leave(entry).work)
        return taken

    # --- inside -------------------------------------------------------------------------------------------------------
    def _too_full(self) -> bool:
        too_many = len(self._entries) > self._limits.entries
        return too_many or 0 < self._limits.size_bytes < self._size_bytes

    def _enter(self, entry: _Entry[Name, LaneKey, Work]) -> None:
        self._entries[entry.name] = entry
        self._size_bytes += entry.size_bytes
        heappush(self._best.setdefault(entry.lane, []), (-entry.priority, entry.number, entry))
        heappush(self._worst, (entry.priority, entry.number, entry))

    def _leave(self, entry: _Entry[Name, LaneKey, Work]) -> _Entry[Name, LaneKey, Work]:
        del self._entries[entry.name]
        self._size_bytes -= entry.size_bytes
        self._sweep()
        return entry

    def _live(self, entry: _Entry[Name, LaneKey, Work]) -> bool:
        return self._entries.get(entry.name) is entry

    def _head(self, lane: LaneKey) -> _Entry[Name, LaneKey, Work] | None:
        heap = self._best.get(lane, [])
        while heap and not self._live(heap[0][2]):
            heappop(heap)
        if not heap:
            self._best.pop(lane, None)
            return None
        return heap[0][2]

    def _least(self) -> _Entry[Name, LaneKey, Work]:
        while not self._live(self._worst[0][2]):
            heappop(self._worst)
        return self._worst[0][2]

    def _sweep(self) -> None:
        """Rebuild the heaps where most of what they hold has left."""
        if len(self._worst) <= max(_LEAST_SWEEP, 4 * len(self._entries)):
            return
        self._best.clear()
        for entry in self._entries.values():
            self._best.setdefault(entry.lane, []).append((-entry.priority, entry.number, entry))
        for heap in self._best.values():
            heapify(heap)
        self._worst = [(entry.priority, entry.number, entry) for entry in self._entries.values()]
        heapify(self._worst)
