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
from blockyard.core.vocabulary import Epoch, Tier
from blockyard.tiers.header import HeaderState, InventoryRecord
from blockyard_block_manager.node_tables import NodeTables


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """One listing of all slots, from before its first page.

    Attributes:
        worker_epoch: life of the worker that lists.
        full: this life was not compared yet: what it does not list is gone.
        first: no life was compared yet.
        registered: what the tables held before the first page, per tier.
        quarantined: slots that this listing decides about.
    """

    worker_epoch: Epoch | None
    full: bool
    first: bool
    registered: Mapping[Tier, Sequence[BlockFacts]]
    quarantined: Mapping[Tier, Sequence[MutableBlocks]]


def match_inventory(
    tables: NodeTables, tier: Tier, listing: Listing, records: Sequence[InventoryRecord], block_bytes: int
) -> list[DoomedBlocks]:
    """Drop, release and adopt in one tier; returns slots whose headers have to be freed."""
    freed: list[DoomedBlocks] = []
    if listing.full:
        freed += tables.drop(tier, _unlisted(listing.registered[tier], records))
    decided = {slot for blocks in listing.quarantined[tier] for slot in blocks.ids}
    for blocks in listing.quarantined[tier]:
        blocks.release()
    pool = tables.pool(tier)
    found: list[InventoryRecord] = []
    for record in records:
        if not 0 <= record.block < pool.capacity or pool.state(record.block) is not RowState.FREE:
            continue
        if not listing.full and record.block not in decided:
            continue
        current = listing.first or record.block in decided or record.generation >= pool.generation(record.block)
        if record.state is HeaderState.READY and record.payload_bytes == block_bytes and current:
            found.append(record)
        else:
            pool.set_generation(record.block, record.generation)
    freed.append(tables.adopt(tier, found))
    return freed


def _unlisted(registered: Iterable[BlockFacts], records: Iterable[InventoryRecord]) -> list[BlockFacts]:
    ready = {(record.block, record.generation, record.key) for record in records if record.state is HeaderState.READY}
    return [block for block in registered if (block.block, block.generation, block.key) not in ready]
