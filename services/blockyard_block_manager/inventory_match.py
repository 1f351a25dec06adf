"""Comparison of a tier's table with the headers that its worker listed.

Pages are listed while jobs go on, so a page may be older than the table. Two rules keep an old page harmless: only
what was registered before the listing began can be dropped by it, and only a header that is not older than the row's
latest grant can be adopted (at the very first listing rows have no grants yet, so any header counts).
Invariants: one synchronous section per tier. Threading: owned by the event loop of the service. No await.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from blockyard.core.block_facts import BlockFacts
from blockyard.core.handles import DoomedBlocks, MutableBlocks
from blockyard.core.states import RowState
from blockyard.core.vocabulary import BlockId, Epoch, Tier
from blockyard.tiers.header import HeaderState, InventoryRecord
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
    """One listing of all slots, from before its first page.

    Attributes:
        worker_epoch: life of the worker that lists.
        full: what is not listed is gone: this life of the worker was not compared yet, or the arena was unsure.
        settles_arena: nobody of an earlier life could write the arena any more when it began.
        first: no life was compared yet.
        registered: what the tables held before the first page, per tier.
        quarantined: slots that this listing decides about.
    """

    worker_epoch: Epoch | None
    full: bool
    first: bool
    settles_arena: bool
    registered: Mapping[Tier, Sequence[BlockFacts]]
    quarantined: Sequence[QuarantinedSlots]


def match_inventory(
    tables: NodeTables, tier: Tier, listing: Listing, records: Sequence[InventoryRecord], block_bytes: int
) -> list[DoomedBlocks]:
    """Drop, release and adopt in one tier; returns slots whose headers have to be freed."""
    freed: list[DoomedBlocks] = []
    if listing.full:
        freed += tables.drop(tier, _unlisted(listing.registered[tier], records))
    decided, doomed = _release(listing, tier)
    pool = tables.pool(tier)
    found: list[InventoryRecord] = []
    rejected: list[InventoryRecord] = []
    for record in records:
        if not 0 <= record.block < pool.capacity:
            continue
        if pool.state(record.block) is not RowState.FREE:
            tables.header_seen(tier, record)
            continue
        if not listing.full and record.block not in decided:
            continue
        current = listing.first or record.block in decided or record.generation >= pool.generation(record.block)
        if record.state is not HeaderState.READY or record.payload_bytes != block_bytes or not current:
            pool.set_generation(record.block, record.generation)
        elif record.block in doomed:
            rejected.append(record)
        else:
            found.append(record)
    freed.append(tables.adopt(tier, found))
    freed.extend(tables.reject(tier, rejected))
    return freed


def _release(listing: Listing, tier: Tier) -> tuple[set[BlockId], set[BlockId]]:
    """Give back the slots that this listing decides about; returns them, and those of which nothing is kept."""
    decided: set[BlockId] = set()
    doomed: set[BlockId] = set()
    for slots in listing.quarantined:
        if slots.tier is tier:
            decided.update(slots.blocks.ids)
            doomed.update(slots.blocks.ids if slots.doomed else ())
            slots.blocks.release()
    return decided, doomed


def _unlisted(registered: Iterable[BlockFacts], records: Iterable[InventoryRecord]) -> list[BlockFacts]:
    ready = {(record.block, record.generation, record.key) for record in records if record.state is HeaderState.READY}
    return [block for block in registered if (block.block, block.generation, block.key) not in ready]
