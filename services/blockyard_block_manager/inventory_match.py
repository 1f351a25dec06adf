"""Comparison of a tier's table with the headers that its worker listed, part by part.

::

    full:     registered and not listed ──► dropped      READY in free slots, deepest first ──► registered
    always:   slots that the listing decides about ──► given back; READY: registered, or freed where cleared since

A tier may have a million slots, so each step is one synchronous section of a moment, and others have their turn
between the steps. Pages are listed while jobs go on, so a page may be older than the table. Two rules keep an old page
harmless: only what was registered before the listing began can be dropped by it, and only a header that is not older
than the row's latest grant can be adopted (at the very first listing rows have no grants yet, so any header counts).
Invariants: until the last step the slots that the listing decides about stay out of circulation; results of the worker
that lists are not taken between the steps of a full listing.
Threading: owned by the event loop of the service. No await.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from blockyard.core.handles import DoomedBlocks, MutableBlocks
from blockyard.core.states import RowState
from blockyard.core.vocabulary import BlockId, Epoch, Tier
from blockyard.tiers.header import HeaderState, InventoryRecord
from blockyard.tiers.inventory_pages import InventoryPages, Rows, parts
from blockyard_block_manager.node_tables import NodeTables


@dataclass(slots=True, eq=False)
class QuarantinedSlots:
    """Slots that a job of an earlier life of the block-manager may have written; compared by identity."""

    tier: Tier
    blocks: MutableBlocks
    doomed: bool = False
    """The tier was cleared since: whatever lies in these slots is not kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """One listing of the slots of some tiers, from before its first page.

    Attributes:
        worker_epoch: life of the worker that lists.
        settles_arena: nobody of an earlier life could write the arena any more when it began.
        first: no life was compared yet.
        tiers: what is listed.
        registered: tiers of which what is not listed is gone, since this life of the worker was not compared yet or
            the arena was unsure; with the generations of what their tables held before the first page, by row.
        quarantined: slots that this listing decides about.
    """

    worker_epoch: Epoch | None
    settles_arena: bool
    first: bool
    tiers: tuple[Tier, ...]
    registered: Mapping[Tier, npt.NDArray[np.uint64]]
    quarantined: Sequence[QuarantinedSlots]

    @property
    def full(self) -> bool:
        """Whether it may drop blocks."""
        return bool(self.registered)


class TierMatch:
    """Comparison of one tier: all ``steps``, then ``decide``."""

    def __init__(
        self,
        tables: NodeTables,
        tier: Tier,
        listing: Listing,
        pages: InventoryPages,
        *,
        block_bytes: int,
        part_records: int,
    ) -> None:
        """Compare ``tables`` with ``pages``; nothing happens before the first step."""
        self._tables = tables
        self.tier: Final = tier
        self._listing = listing
        self._pages = pages
        self._block_bytes = block_bytes
        self._part_records = part_records
        self._slots = pages.slots
        self._generations = pages.generations
        self._quarantined = [slots for slots in listing.quarantined if slots.tier is tier]
        decided = [block for slots in self._quarantined for block in slots.blocks.ids]
        self._is_decided = np.isin(self._slots, np.array(decided, dtype=np.int64))
        self._inside = self._slots < tables.pool(tier).capacity

    def steps(self) -> Iterator[list[DoomedBlocks]]:
        """What may happen before the end, one section per step; each yields slots whose headers have to be freed."""
        others = np.flatnonzero(self._inside & ~self._is_decided)
        before = self._listing.registered.get(self.tier)
        if before is None:
            # Only a later grant of a slot in use is of interest.
            known = self._tables.pool(self.tier).generations()
            others = others[self._generations[others] > known[self._slots[others]]]
        else:
            yield from self._drop_unlisted(before, others)
        for part in parts(self._pages.deepest_first(others), self._part_records):
            yield self._take(self._pages.records(part), full=before is not None)

    def decide(self) -> list[DoomedBlocks]:
        """Give back the slots that this listing decides about, take over what lies there; returns slots to be freed.

        After all steps, once; from then on the handles of those slots are consumed.
        """
        doomed: set[BlockId] = set()
        for slots in self._quarantined:
            doomed.update(slots.blocks.ids if slots.doomed else ())
            slots.blocks.release()
        found: list[InventoryRecord] = []
        rejected: list[InventoryRecord] = []
        for record in self._pages.records(np.flatnonzero(self._inside & self._is_decided)):
            if not self._is_block(record):
                self._tables.pool(self.tier).set_generation(record.block, record.generation)
            elif record.block in doomed:
                rejected.append(record)
            else:
                found.append(record)
        return [self._tables.adopt(self.tier, found), *self._tables.reject(self.tier, rejected)]

    # --- inside -------------------------------------------------------------------------------------------------------
    def _drop_unlisted(self, before: npt.NDArray[np.uint64], others: Rows) -> Iterator[list[DoomedBlocks]]:
        listed = np.full(len(before), -1, dtype=np.int64)
        ready = others[self._pages.ready[others]]
        listed[self._slots[ready]] = ready
        for rows in parts(np.flatnonzero(before), self._part_records):
            named = listed[rows]
            named = named[named >= 0]
            generations = self._generations[named].tolist()
            names = zip(generations, self._pages.keys(named), strict=True)
            still = dict(zip(self._slots[named].tolist(), names, strict=True))
            registered = self._tables.pool(self.tier).registered_in([BlockId(row) for row in rows.tolist()])
            gone = [
                block
                for block in registered
                if block.generation == before[block.block] and still.get(block.block) != (block.generation, block.key)
            ]
            yield self._tables.drop(self.tier, gone)

    def _take(self, records: Sequence[InventoryRecord], *, full: bool) -> list[DoomedBlocks]:
        pool = self._tables.pool(self.tier)
        found: list[InventoryRecord] = []
        for record in records:
            if pool.state(record.block) is not RowState.FREE:
                self._tables.header_seen(self.tier, record)
            elif full:
                current = self._listing.first or record.generation >= pool.generation(record.block)
                if current and self._is_block(record):
                    found.append(record)
                else:
                    pool.set_generation(record.block, record.generation)
        return [self._tables.adopt(self.tier, found)] if found else []

    def _is_block(self, record: InventoryRecord) -> bool:
        return record.state is HeaderState.READY and record.payload_bytes == self._block_bytes
