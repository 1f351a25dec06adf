"""Bounded queue of named work by priority: the most urgent first, of equals the one that came first.

Entries belong to lanes (what can go into one job together); a batch is taken from the lane of the most urgent entry.
When the queue is full, by entries or by bytes, the least urgent entry goes, of equals the oldest: under overload the
freshest work is worth most, and urgent work never yields to other work.
Invariants: a name is queued once; never more than the limits allow; every entry leaves once: taken, withdrawn or
dropped. A change costs a look-up; a batch, and each entry that is dropped, one look at every lane.
Threading: owned by one thread.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from itertools import islice
from typing import Final, Generic, NamedTuple, TypeVar, final

from blockyard.core.errors import ConfigurationError, KernelError
from blockyard.core.whole_numbers import is_some_whole, is_whole

Name = TypeVar("Name", bound=Hashable)
LaneKey = TypeVar("LaneKey", bound=Hashable)
Work = TypeVar("Work")


@final
@dataclass(frozen=True, slots=True)
class QueueLimits:
    """Most that may wait: entries, and bytes they stand for (0 = not counted)."""

    entries: int
    size_bytes: int = 0


@final
class _Lane(Generic[Name, LaneKey]):
    """Names of one lane by priority, each in order of arrival."""

    __slots__ = ("key", "names", "priorities")

    def __init__(self, key: LaneKey) -> None:
        self.key: Final = key
        self.names: Final[dict[int, dict[Name, None]]] = {}
        self.priorities: Final[list[int]] = []
        """Those that some entry has, rising."""

    def add(self, name: Name, priority: int) -> None:
        names = self.names.get(priority)
        if names is None:
            names = self.names[priority] = {}
            insort(self.priorities, priority)
        names[name] = None

    def remove(self, name: Name, priority: int) -> None:
        names = self.names[priority]
        del names[name]
        if not names:
            del self.names[priority]
            del self.priorities[bisect_left(self.priorities, priority)]

    def first(self, place: int) -> Name:
        """Oldest entry of the least (0) or the most urgent (-1) priority."""
        return next(iter(self.names[self.priorities[place]]))


class _Entry(NamedTuple, Generic[Name, LaneKey, Work]):
    work: Work
    lane: _Lane[Name, LaneKey]
    priority: int
    number: int
    size_bytes: int


@final
class WorkQueue(Generic[Name, LaneKey, Work]):
    """Waiting work; see the module text."""

    __slots__ = ("_entries", "_lanes", "_limits", "_numbers", "_size_bytes")

    def __init__(self, limits: QueueLimits) -> None:
        """Start empty.

        Raises:
            ConfigurationError: there is no room for one entry.
        """
        if not (is_whole(limits.entries, 1) and is_whole(limits.size_bytes)):
            raise ConfigurationError(
                "a queue holds at least one entry", limit=str(limits.entries), size_bytes=str(limits.size_bytes)
            )
        self._limits: Final = limits
        self._entries: Final[dict[Name, _Entry[Name, LaneKey, Work]]] = {}
        self._lanes: Final[dict[LaneKey, _Lane[Name, LaneKey]]] = {}
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
            KernelError: the name is queued already, or a number is none; nothing changed.
        """
        if not (is_some_whole(priority) and is_whole(size_bytes)):
            raise KernelError("no priority, or no size", priority=str(priority), size_bytes=str(size_bytes))
        if name in self._entries:
            raise KernelError("a name is queued once", name=str(name))
        self._enter(name, work, lane, priority, size_bytes)
        dropped: list[Work] = []
        limit, most_bytes = self._limits.entries, self._limits.size_bytes
        while len(self._entries) > limit or 0 < most_bytes < self._size_bytes:
            dropped.append(self._leave(self._least()))
        return dropped

    def raise_to(self, name: Name, priority: int) -> None:
        """Make an entry at least this urgent, behind those that are so already. Others stay as they are.

        Raises:
            KernelError: the priority is no integer; nothing changed.
        """
        if not is_some_whole(priority):
            raise KernelError("no priority", priority=str(priority))
        entry = self._entries.get(name)
        if entry is not None and entry.priority < priority:
            self._leave(name)
            self._enter(name, entry.work, entry.lane.key, priority, entry.size_bytes)

    def withdraw(self, name: Name) -> Work | None:
        """Take an entry out; None where none of this name waits."""
        return self._leave(name) if name in self._entries else None

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

        Raises:
            KernelError: the limit is no integer; nothing changed.
        """
        if not is_some_whole(limit):
            raise KernelError("no number of entries", limit=str(limit))
        open_lanes = [lane for lane in self._lanes if room_of is None or room_of(lane) > 0]
        if not open_lanes:
            return []
        chosen = min(open_lanes, key=self._urgency)
        most = limit if room_of is None else min(limit, room_of(chosen))
        taken: list[Work] = []
        while len(taken) < most and (lane := self._lanes.get(chosen)) is not None:
            urgent = lane.priorities[-1]
            if least_priority is not None and urgent < least_priority:
                break
            taken += [self._leave(name) for name in list(islice(lane.names[urgent], most - len(taken)))]
        return taken

    # --- inside -------------------------------------------------------------------------------------------------------
    def _enter(self, name: Name, work: Work, lane: LaneKey, priority: int, size_bytes: int) -> None:
        names = self._lanes.get(lane)
        if names is None:
            names = self._lanes[lane] = _Lane(lane)
        self._numbers += 1
        self._entries[name] = _Entry(work, names, priority, self._numbers, size_bytes)
        self._size_bytes += size_bytes
        names.add(name, priority)

    def _leave(self, name: Name) -> Work:
        entry = self._entries.pop(name)
        self._size_bytes -= entry.size_bytes
        entry.lane.remove(name, entry.priority)
        if not entry.lane.priorities:
            del self._lanes[entry.lane.key]
        return entry.work

    def _urgency(self, lane: LaneKey) -> tuple[int, int]:
        entry = self._entries[self._lanes[lane].first(-1)]
        return -entry.priority, entry.number

    def _least(self) -> Name:
        firsts = [lane.first(0) for lane in self._lanes.values()]
        return min(firsts, key=self._value) if len(firsts) > 1 else firsts[0]

    def _value(self, name: Name) -> tuple[int, int]:
        entry = self._entries[name]
        return entry.priority, entry.number
