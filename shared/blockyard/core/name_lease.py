"""The lease by which a node owns its name: what to ask of the server next, and whether the node may speak for the name.

::

            ┌──────── server away ────────► AWAY ──── back ───┐
    PENDING ┴─ no record, or own older one ─► HELD ◄──────────┤
            └─ live record of another folder ─► TAKEN ─ it expires ─┘      own folder, higher epoch ─► FENCED (for good)

The server keeps a record for ``ttl_seconds`` after each write and knows only revisions. Here is decided when to read,
and over which revision to write. A write counts from the moment it was asked for, so a process that stood still finds
its lease over before it says anything, whatever the server answered meanwhile.
Invariants: a write names the revision of the record that was last seen, and that record is absent, expired or of an
earlier life of the same folder; ``may_speak`` is true only while the server keeps the record of this life, or of a
later one of its folder, so for one folder at a time; steps of the wall clock change nothing.
Threading: one owner thread. No I/O; whoever talks to the server reports here.
"""

import math
from dataclasses import dataclass
from enum import StrEnum, unique
from typing import Final, final

from blockyard.core.clock import Clock
from blockyard.core.vocabulary import Epoch


@unique
class LeaseState(StrEnum):
    """Who owns the name."""

    PENDING = "pending"
    HELD = "held"
    AWAY = "away"
    TAKEN = "taken"
    """Another state folder holds a live record under this name."""
    FENCED = "fenced"
    """This state folder has a record of a later life: this one must take a higher epoch or end."""


@final
@dataclass(frozen=True, slots=True)
class NameHolder:
    """Who a record says holds the name; None for its parts where it cannot be read."""

    folder: str | None
    epoch: Epoch


@final
@dataclass(frozen=True, slots=True)
class WriteRecord:
    """Write the record of this life over this revision."""

    over: int
    asked_at: float
    """When this was decided; handed back with the answer."""


@unique
class LeaseStep(StrEnum):
    """What else there is to do."""

    READ = "read"
    """Read the record, and report it."""
    WAIT = "wait"
    """Nothing before the next attempt."""


NextLeaseStep = WriteRecord | LeaseStep


@final
class NameLease:
    """Decisions of one life of a node about its name."""

    def __init__(self, folder: str, epoch: Epoch, clock: Clock, *, ttl_seconds: float) -> None:
        """Nothing is known of the name.

        Args:
            folder: identity of the state folder.
            epoch: this life of it.
            clock: source of monotonic time, which goes on while the machine sleeps.
            ttl_seconds: how long the server keeps a record.
        """
        self._folder = folder
        self._epoch = epoch
        self._clock = clock
        self._ttl_seconds: Final = ttl_seconds
        self._state = LeaseState.PENDING
        self._revision: int | None = None
        self._valid_until = -math.inf

    @property
    def state(self) -> LeaseState:
        """State as of the last report."""
        return self._state

    @property
    def revision(self) -> int | None:
        """Revision of the record that this life wrote last, as far as nobody was seen to have replaced it."""
        return self._revision

    @property
    def may_speak(self) -> bool:
        """Whether messages may go out in the name of the node: the server certainly keeps the record of this life."""
        return self._state is LeaseState.HELD and self._clock.monotonic() < self._valid_until

    def next_step(self) -> NextLeaseStep:
        """What an attempt begins with: renew what is certainly held, else look.

        A server that lost its data counts revisions from the start again, so that an old number may be that of
        somebody else's record.
        """
        if self._state is LeaseState.FENCED:
            return LeaseStep.WAIT
        if self._revision is None or self._clock.monotonic() >= self._valid_until:
            return LeaseStep.READ
        return self._write(self._revision)

    def found(self, holder: NameHolder | None, revision: int) -> NextLeaseStep:
        """The record as it was read: its holder, None where there is none, and what the next write must name."""
        if holder is None or (holder.folder == self._folder and holder.epoch <= self._epoch):
            return self._write(revision)
        self._state = LeaseState.FENCED if holder.folder == self._folder else LeaseState.TAKEN
        self._revision = None
        return LeaseStep.WAIT

    def written(self, write: WriteRecord, revision: int) -> None:
        """The server took a write; the record has this revision now."""
        self._revision = revision
        self._valid_until = write.asked_at + self._ttl_seconds
        self._state = LeaseState.HELD

    def refused(self) -> LeaseStep:
        """The server has another revision: the record expired, was forgotten, or was written by somebody else.

        Until that is known, nothing is said in the name.
        """
        self._revision = None
        self._valid_until = -math.inf
        return LeaseStep.READ

    def away(self) -> None:
        """The server does not answer. Whether a write reached it is not known, nor whether it comes back as it was."""
        if self._state is not LeaseState.FENCED:
            self._state = LeaseState.AWAY
            self._revision = None

    def given_up(self) -> None:
        """This life does not want the name any more."""
        self._revision = None
        self._state = LeaseState.PENDING

    def _write(self, over: int) -> WriteRecord:
        return WriteRecord(over, self._clock.monotonic())
