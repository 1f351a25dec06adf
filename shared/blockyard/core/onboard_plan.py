"""State of one load: where each of its blocks comes from, what was tried, how it ended.

::

    SEEKING ──locator──► STAGING ──bytes in G2──► READY ──copied to G1──► DONE
       ▲                    │                       │
       ├──── next source ◄──┴─ source failed        ├─ copy failed ─► FAILED
       └────────────────────────────────────────────┘ copy in G2 damaged
    no source left, or deadline for slow stages ─────────────────────► FAILED

Slow stages (G3, G4) end in G2; only the last hop writes engine memory, so an expired load leaves no write behind.
Invariants: a source is tried at most once per block; DONE and FAILED are final; every block ends as one of them;
``_under_way`` counts the blocks that are SEEKING or STAGING.
Threading: owned by one thread; no clock, the caller says when time is up.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, unique
from typing import Final

from blockyard.core.errors import BlockStateError
from blockyard.core.vocabulary import Availability, ItemStatus, Tier


@unique
class ItemState(Enum):
    """Where one block of a load stands."""

    SEEKING = "seeking"
    """No local copy; the shared index is being asked."""
    STAGING = "staging"
    """A job brings it into G2."""
    READY = "ready"
    """It lies in G2, pinned by this load."""
    DONE = "done"
    FAILED = "failed"


_UNDER_WAY: Final = (ItemState.SEEKING, ItemState.STAGING)


@unique
class NextStep(Enum):
    """What to do for a block that is not in G2."""

    READ_G3 = "read_g3"
    SEEK_G4 = "seek_g4"
    READ_G4 = "read_g4"
    GIVE_UP = "give_up"


@dataclass(frozen=True, slots=True)
class LoadOutcome:
    """Answer to a load: per block its status and the tier its bytes came from (None where nothing was loaded)."""

    status: tuple[ItemStatus, ...]
    sources: tuple[Tier | None, ...]

    @property
    def usable(self) -> int:
        """Length of the run of OK blocks from the start: what serves as a prefix."""
        for index, status in enumerate(self.status):
            if status is not ItemStatus.OK:
                return index
        return len(self.status)


class OnboardPlan:
    """Progress of the blocks of one load."""

    __slots__ = ("_remote", "_sources", "_states", "_status", "_tried", "_under_way")

    def __init__(self, count: int) -> None:
        """Start with ``count`` blocks of which nothing is known."""
        self._states = [ItemState.SEEKING] * count
        self._status: list[ItemStatus | None] = [None] * count
        self._sources: list[Tier | None] = [None] * count
        self._tried: list[set[Tier]] = [set() for _ in range(count)]
        self._remote: list[Availability | None] = [None] * count
        self._under_way = count

    def __len__(self) -> int:
        """Number of blocks."""
        return len(self._states)

    def state(self, index: int) -> ItemState:
        """State of one block."""
        return self._states[index]

    def located(self, index: int, availability: Availability) -> None:
        """Keep the answer of the shared index for one block."""
        self._remote[index] = availability

    def next_step(self, index: int, *, in_g3: bool, remote_usable: bool) -> NextStep:
        """Choose the next source of a block that is not in G2: G3, then the shared store, each once."""
        self._must_be(index, ItemState.SEEKING, ItemState.STAGING)
        if in_g3 and Tier.G3 not in self._tried[index]:
            return NextStep.READ_G3
        if not remote_usable or Tier.G4 in self._tried[index]:
            return NextStep.GIVE_UP
        if self._remote[index] is None:
            return NextStep.SEEK_G4
        return NextStep.READ_G4 if self._remote[index] is Availability.G4 else NextStep.GIVE_UP

    def seeking(self, index: int) -> None:
        """The shared index is being asked."""
        self._must_be(index, ItemState.SEEKING, ItemState.STAGING)
        self._enter(index, ItemState.SEEKING)

    def staging(self, index: int, source: Tier) -> None:
        """A job of this load, or one it joined, brings the block from ``source`` into G2."""
        self._must_be(index, ItemState.SEEKING, ItemState.STAGING)
        self._enter(index, ItemState.STAGING)
        self._tried[index].add(source)
        self._sources[index] = source

    def ready(self, index: int, source: Tier | None = None) -> None:
        """The block lies in G2 and this load holds a pin on it."""
        self._must_be(index, ItemState.SEEKING, ItemState.STAGING)
        self._enter(index, ItemState.READY)
        if source is not None:
            self._sources[index] = source

    def source_failed(self, index: int, status: ItemStatus) -> None:
        """A stage failed; the first telling status is kept for the answer."""
        self._must_be(index, ItemState.SEEKING, ItemState.STAGING)
        if self._status[index] is None:
            self._status[index] = status

    def give_up(self, index: int, unless_known: ItemStatus) -> None:
        """No source is left; the status of the first failed source is answered, else ``unless_known``."""
        self._must_be(index, ItemState.SEEKING, ItemState.STAGING, ItemState.READY)
        self._enter(index, ItemState.FAILED)
        if self._status[index] is None:
            self._status[index] = unless_known
        self._sources[index] = None

    def expire(self) -> None:
        """Time for slow stages is over: what is not in G2 fails as TIMEOUT."""
        for index in self._in(ItemState.SEEKING, ItemState.STAGING):
            self.give_up(index, ItemStatus.TIMEOUT)

    @property
    def waiting(self) -> bool:
        """Whether some block is still on its way to G2."""
        return self._under_way > 0

    def ready_indexes(self) -> list[int]:
        """Blocks that the last hop copies, in order."""
        return self._in(ItemState.READY)

    def copied(self, indexes: Sequence[int], statuses: Iterable[ItemStatus]) -> None:
        """The last hop ended: one status per block of ``indexes``."""
        for index, status in zip(indexes, statuses, strict=True):
            self._must_be(index, ItemState.READY)
            self._status[index] = status
            if status is ItemStatus.OK:
                self._enter(index, ItemState.DONE)
            else:
                self._enter(index, ItemState.FAILED)
                self._sources[index] = None

    def start_over(self, index: int, status: ItemStatus) -> None:
        """The G2 copy proved damaged in the last hop: the block needs another source."""
        self._must_be(index, ItemState.READY)
        self._tried[index].add(Tier.G2)
        self._sources[index] = None
        self._enter(index, ItemState.SEEKING)
        self.source_failed(index, status)

    def remote_unknown(self, index: int) -> bool:
        """Whether the shared index could not answer for this block."""
        return self._remote[index] is Availability.UNKNOWN

    def outcome(self) -> LoadOutcome:
        """The answer; every block must be final.

        Raises:
            BlockStateError: a block is still on its way.
        """
        status: list[ItemStatus] = []
        for index, item in enumerate(self._status):
            self._must_be(index, ItemState.DONE, ItemState.FAILED)
            if item is None:
                raise BlockStateError("a final block has no status", index=index)
            status.append(item)
        return LoadOutcome(tuple(status), tuple(self._sources))

    def _enter(self, index: int, state: ItemState) -> None:
        self._under_way += (state in _UNDER_WAY) - (self._states[index] in _UNDER_WAY)
        self._states[index] = state

    def _in(self, *states: ItemState) -> list[int]:
        return [index for index, state in enumerate(self._states) if state in states]

    def _must_be(self, index: int, *states: ItemState) -> None:
        if self._states[index] not in states:
            raise BlockStateError("a block of a load is in another state", index=index, state=self._states[index].value)
