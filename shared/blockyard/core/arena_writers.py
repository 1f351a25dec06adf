"""Processes of engines that may write the arena: who they are, and when one certainly writes no more under old grants.

An *attachment* is one claim of one rank process on one arena. From its attach on the process issues nothing that it was
told before, so a new attachment of the same process ends the earlier one, as its death does::

    record of an earlier life ──► INHERITED ─┐
    attach ──► ATTACHED ──connection ended──► DETACHED ─┴─ attached again │ proven dead │ arena replaced ──► ended

Time ends nothing: a process that stands still may go on at any moment. One that neither attaches nor dies for
``patience_seconds`` is *overdue*; the cure is another arena, which it has never seen.
Invariants: an attachment ends exactly once; numbers are never given twice.
Threading: one owner thread. No I/O; whoever asks the system for proof of death reports it here.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum, unique
from typing import Final, Generic, NewType, TypeVar, final

from blockyard.core.clock import Clock
from blockyard.core.errors import KernelError
from blockyard.core.vocabulary import EngineId

AttachmentId = NewType("AttachmentId", int)
"""One claim of a rank process on the arena; counted from 1 within a life of the block-manager."""

PATIENCE_SECONDS: Final = 10.0
"""How long a writer may be away before the arena is given up for it."""

Thing = TypeVar("Thing")


@final
@dataclass(frozen=True, slots=True, order=True)
class RankId:
    """One rank of one engine."""

    engine: EngineId
    dp_rank: int
    rank: int

    def of_engine(self, engine: EngineId, dp_rank: int) -> bool:
        """Whether it belongs to this engine."""
        return (self.engine, self.dp_rank) == (engine, dp_rank)


@final
@dataclass(frozen=True, slots=True, order=True)
class RankProcess:
    """One life of the process of a rank, so that another process with its number is not taken for it.

    Attributes:
        rank: which rank it is.
        pid: process number, as the block-manager sees it.
        started: start of the process, in clock ticks since the machine started.
        boot: id of that start of the machine.
        namespace: number of the space of process numbers in which ``pid`` counts.
    """

    rank: RankId
    pid: int
    started: int
    boot: str
    namespace: int


@unique
class WriterState(Enum):
    """Where the relation to a writer stands."""

    INHERITED = "inherited"
    """Known from an earlier life of the block-manager; what it was granted then is not known."""
    ATTACHED = "attached"
    DETACHED = "detached"
    """Its connection ended; the process may live on."""


@final
@dataclass(frozen=True, slots=True)
class Writer:
    """An attachment that has not ended."""

    attachment: AttachmentId
    process: RankProcess
    state: WriterState
    since: float
    """Monotonic time at which it came into this state."""


@final
class ArenaWriters:
    """All attachments that have not ended."""

    def __init__(self, clock: Clock, *, patience_seconds: float = PATIENCE_SECONDS) -> None:
        """Start without writers."""
        self._clock = clock
        self._patience_seconds = patience_seconds
        self._writers: dict[AttachmentId, Writer] = {}
        self._last = 0

    def __len__(self) -> int:
        """Attachments that have not ended."""
        return len(self._writers)

    def __iter__(self) -> Iterator[Writer]:
        """Attachments that have not ended, oldest first."""
        return iter(tuple(self._writers.values()))

    def of(self, engine: EngineId, dp_rank: int) -> tuple[Writer, ...]:
        """Attachments of an engine, whatever their state."""
        return tuple(writer for writer in self if writer.process.rank.of_engine(engine, dp_rank))

    def find(self, attachment: AttachmentId) -> Writer | None:
        """An attachment; None once it has ended."""
        return self._writers.get(attachment)

    def attached(self, engine: EngineId, dp_rank: int, ranks: int) -> bool:
        """Whether each rank of an engine is attached, by exactly one process."""
        there = [writer.process.rank.rank for writer in self.of(engine, dp_rank) if _is_attached(writer)]
        return sorted(there) == list(range(ranks))

    @property
    def inherited(self) -> tuple[Writer, ...]:
        """Writers of earlier lives whose grants nobody knows: nothing may be granted before they have ended."""
        return tuple(writer for writer in self if writer.state is WriterState.INHERITED)

    def overdue(self, awaited: Collection[AttachmentId]) -> tuple[Writer, ...]:
        """Writers whose end is wanted and has not come in time.

        Args:
            awaited: attachments whose end somebody waits for; inherited ones are always waited for.
        """
        latest = self._clock.monotonic() - self._patience_seconds
        return tuple(
            writer
            for writer in self
            if not _is_attached(writer)
            and writer.since <= latest
            and (writer.state is WriterState.INHERITED or writer.attachment in awaited)
        )

    # --- changes ------------------------------------------------------------------------------------------------------
    def inherit(self, process: RankProcess) -> AttachmentId:
        """A process that an earlier life of the block-manager gave the arena."""
        return self._enter(process, WriterState.INHERITED)

    def attach(self, process: RankProcess) -> tuple[AttachmentId, tuple[Writer, ...]]:
        """A process has the arena from now on; returns its attachment and those that ended by it: its earlier ones."""
        ended = [writer for writer in self if writer.process == process]
        for writer in ended:
            del self._writers[writer.attachment]
        return self._enter(process, WriterState.ATTACHED), tuple(ended)

    def detach(self, attachment: AttachmentId) -> None:
        """The connection of a writer ended. Harmless where the attachment has ended or was detached before."""
        writer = self._writers.get(attachment)
        if writer is not None and _is_attached(writer):
            now = self._clock.monotonic()
            self._writers[attachment] = Writer(attachment, writer.process, WriterState.DETACHED, now)

    def end(self, attachment: AttachmentId) -> bool:
        """The process is proven dead, or holds nothing any more; true where that ended the attachment."""
        return self._writers.pop(attachment, None) is not None

    def arena_replaced(self) -> tuple[Writer, ...]:
        """What these processes have is no arena of the node any more: all attachments end and are returned."""
        ended = tuple(self)
        self._writers.clear()
        return ended

    def _enter(self, process: RankProcess, state: WriterState) -> AttachmentId:
        self._last += 1
        attachment = AttachmentId(self._last)
        self._writers[attachment] = Writer(attachment, process, state, self._clock.monotonic())
        return attachment


@final
class Quarantine(Generic[Thing]):
    """Things that nobody may use before certain attachments have ended."""

    def __init__(self) -> None:
        """Start empty."""
        self._things: list[tuple[Thing, set[AttachmentId]]] = []

    def __len__(self) -> int:
        """Things that wait."""
        return len(self._things)

    def __iter__(self) -> Iterator[Thing]:
        """Things that wait, oldest first."""
        return iter([thing for thing, _ in self._things])

    @property
    def awaited(self) -> frozenset[AttachmentId]:
        """Attachments whose end is waited for."""
        return frozenset(attachment for _, waits_for in self._things for attachment in waits_for)

    def add(self, thing: Thing, waits_for: Iterable[AttachmentId]) -> None:
        """Keep a thing until these attachments have ended.

        Raises:
            KernelError: it waits for nothing.
        """
        attachments = set(waits_for)
        if not attachments:
            raise KernelError("what waits for no writer needs no quarantine")
        self._things.append((thing, attachments))

    def ended(self, attachments: Iterable[AttachmentId]) -> list[Thing]:
        """These attachments have ended; returns what waits for none any more."""
        over = set(attachments)
        for _, waits_for in self._things:
            waits_for -= over
        free = [thing for thing, waits_for in self._things if not waits_for]
        self._things = [entry for entry in self._things if entry[1]]
        return free

    def take_all(self) -> list[Thing]:
        """All things: the arena was replaced, or this life is over."""
        things = list(self)
        self._things.clear()
        return things


def _is_attached(writer: Writer) -> bool:
    return writer.state is WriterState.ATTACHED
