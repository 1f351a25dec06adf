"""Slots of the arena that engines hold ahead, so that no step of theirs waits: store credits, in two phases.

::

    free ──grant──► open: ranks may write ──committed by all shards──► complete: to be sealed and registered
                      ├──aborted──► free                      (the engine says that nobody writes it any more)
                      └──session, rank or arena ended──► quarantined ──its writers have ended──► free

Invariants: a slot is in at most one grant; a row completes only with the full mask, and all commits of it name one
content; what a writer may still write leaves quarantine only when each process that could has ended its attachment
(``core.arena_writers``). A call that raises has changed nothing.
Threading: one owner thread, that of the pool whose blocks are granted.
"""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NewType, final

from blockyard.core.arena_writers import AttachmentId, Quarantine
from blockyard.core.errors import KernelError, RequestError
from blockyard.core.handles import MutableBlocks
from blockyard.core.vocabulary import BlockId, Generation

GrantId = NewType("GrantId", int)
"""One answer to ``ReserveStore``; counted from 1 within a life of the block-manager."""


@final
@dataclass(frozen=True, slots=True)
class GrantedSlots:
    """What an engine is told of a grant."""

    grant: GrantId
    slots: tuple[BlockId, ...]
    generations: tuple[Generation, ...]


@final
@dataclass(frozen=True, slots=True)
class CompletedRows:
    """Rows whose last shard came with this commit.

    Attributes:
        indexes: which rows of the call, in order.
        blocks: their slots, aligned; nobody writes there any more. The caller's to end.
    """

    indexes: tuple[int, ...]
    blocks: MutableBlocks


@dataclass(slots=True)
class _Written:
    content: Hashable
    shards: int


@dataclass(slots=True, eq=False)
class _Grant:
    owner: Hashable
    blocks: MutableBlocks
    written: dict[BlockId, _Written] = field(default_factory=dict)


@final
class StoreGrants:
    """Open grants of all engines, and the slots that wait for their writers."""

    def __init__(self) -> None:
        """Start without grants."""
        self._grants: dict[GrantId, _Grant] = {}
        self._quarantine: Quarantine[MutableBlocks] = Quarantine()
        self._last = 0

    # --- counts -------------------------------------------------------------------------------------------------------
    @property
    def open_slots(self) -> int:
        """Slots that ranks may write."""
        return sum(len(grant.blocks) for grant in self._grants.values())

    @property
    def quarantined_slots(self) -> int:
        """Slots that wait for the end of processes that may still write them."""
        return sum(map(len, self._quarantine))

    def held_by(self, owner: Hashable) -> int:
        """Open slots of one owner."""
        return sum(len(grant.blocks) for grant in self._grants.values() if grant.owner == owner)

    @property
    def awaited(self) -> frozenset[AttachmentId]:
        """Attachments whose end slots wait for."""
        return self._quarantine.awaited

    # --- life of a grant ----------------------------------------------------------------------------------------------
    def grant(self, owner: Hashable, blocks: MutableBlocks) -> GrantedSlots:
        """Give slots to an owner, whose ranks may write them from now on; the handle belongs here."""
        self._last += 1
        grant = GrantId(self._last)
        granted = GrantedSlots(grant, blocks.ids, blocks.generations)
        if len(blocks):
            self._grants[grant] = _Grant(owner, blocks)
        else:
            blocks.release()
        return granted

    def commit(
        self,
        owner: Hashable,
        grant: GrantId,
        slots: Sequence[BlockId],
        contents: Sequence[Hashable],
        shards: int,
        full_mask: int,
    ) -> CompletedRows | None:
        """These shards of these slots are written, and hold these contents.

        Args:
            owner: who commits.
            grant: the grant that the slots are of.
            slots: which slots.
            contents: name of the row in each slot.
            shards: bit mask of what is written.
            full_mask: all shards of such a row.

        Returns:
            The rows that are complete now; None where there are none.

        Raises:
            RequestError: the grant has ended or is somebody else's, a slot is not open in it, named twice or said to
                hold another content before, or the mask names no shard of the row.
        """
        held = self._open(owner, grant)
        if len(slots) != len(contents):
            raise KernelError("one content per slot", slots=len(slots), contents=len(contents))
        if not 0 < shards <= full_mask:
            raise RequestError("no such shard", field="shards", shards=shards, all=full_mask)
        places = _places(held, slots)
        for slot, content in zip(slots, contents, strict=True):
            written = held.written.get(slot)
            if written is not None and written.content != content:
                raise RequestError("all shards of a slot are of one row", field="slots", slot=slot)
        complete: list[int] = []
        for index, (slot, content) in enumerate(zip(slots, contents, strict=True)):
            written = held.written.setdefault(slot, _Written(content, 0))
            written.shards |= shards
            if written.shards == full_mask:
                complete.append(index)
        if not complete:
            return None
        blocks = self._take(grant, held, [places[index] for index in complete])
        return CompletedRows(tuple(complete), blocks)

    def abort(self, owner: Hashable, grant: GrantId, slots: Sequence[BlockId]) -> None:
        """These slots go back: nobody writes them any more.

        Raises:
            RequestError: the grant has ended or is somebody else's, or a slot is not open in it or named twice.
        """
        held = self._open(owner, grant)
        places = _places(held, slots)
        if places:
            self._take(grant, held, places).release()

    def end(self, owner: Hashable, writers: Iterable[AttachmentId]) -> int:
        """The owner is gone, or one of its ranks: nothing of it will be committed.

        Args:
            owner: whose grants end.
            writers: attachments that may still write the slots; without any they are free at once.

        Returns:
            How many slots wait for these writers now.
        """
        waits_for = list(writers)
        quarantined = 0
        for grant in [number for number, held in self._grants.items() if held.owner == owner]:
            blocks = self._grants.pop(grant).blocks
            if waits_for:
                quarantined += len(blocks)
                self._quarantine.add(blocks, waits_for)
            else:
                blocks.release()
        return quarantined

    def ended(self, attachments: Iterable[AttachmentId]) -> int:
        """These attachments have ended; returns how many slots are free by that."""
        freed = 0
        for blocks in self._quarantine.ended(attachments):
            freed += len(blocks)
            blocks.release()
        return freed

    def close(self) -> None:
        """Every slot goes back: the arena was replaced, or this life is over."""
        for grant in self._grants.values():
            grant.blocks.release()
        self._grants.clear()
        for blocks in self._quarantine.take_all():
            blocks.release()

    # --- inside -------------------------------------------------------------------------------------------------------
    def _open(self, owner: Hashable, grant: GrantId) -> _Grant:
        held = self._grants.get(grant)
        if held is None or held.owner != owner:
            raise RequestError("the grant has ended", field="grant", grant=grant)
        return held

    def _take(self, grant: GrantId, held: _Grant, places: Sequence[int]) -> MutableBlocks:
        """Move slots out of a grant; one that is empty ends."""
        blocks = held.blocks.split(places)
        for slot in blocks.ids:
            held.written.pop(slot, None)
        if not len(held.blocks):
            held.blocks.release()
            del self._grants[grant]
        return blocks


def _places(held: _Grant, slots: Sequence[BlockId]) -> list[int]:
    """Where the slots stand in the grant's handle."""
    known = {slot: place for place, slot in enumerate(held.blocks.ids)}
    places = [known[slot] for slot in slots if slot in known]
    if len(set(places)) != len(slots):
        raise RequestError("a slot is not open in this grant, or named twice", field="slots", slots=len(slots))
    return places
