"""The block tables of the node's own tiers, G2 and G3, and the only way to change them.

Each change announces itself in the same section: blocks that enter are ``stored`` or ``offloaded``, blocks that leave
are ``removed`` before their slot can be granted again.
Invariants: the fold of the announced events equals what the tables hold; nothing is granted while ``grants_open`` is
false; a block that left keeps its slot until the slot's header says so (G3) or the next grant overwrites it (G2).
Threading: owned by the event loop of the service. No await.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from blockyard.core.block_facts import AdoptedBlock, BlockFacts, StagedColumns
from blockyard.core.block_name import BlockName, select
from blockyard.core.clear_scope import EVERYTHING, ClearScope
from blockyard.core.clock import Clock
from blockyard.core.errors import NotReadyError
from blockyard.core.events import BlockScope
from blockyard.core.eviction.base import PolicyFactory
from blockyard.core.eviction.retention import Retention
from blockyard.core.handles import DoomedBlocks, ImmutableBlocks, MutableBlocks
from blockyard.core.pins import PinTable
from blockyard.core.pool import BlockPool, CutReport
from blockyard.core.registry import BlockRegistry
from blockyard.core.states import CondemnOutcome, RowState
from blockyard.core.vocabulary import (
    BlockId,
    ContentKey,
    Generation,
    GroupId,
    IdentityDigest,
    ItemStatus,
    TenantDigest,
    Tier,
)
from blockyard.tiers.header import HeaderState, InventoryRecord
from blockyard_block_manager.event_log import EventLog

LOCAL_TIERS: Final = (Tier.G2, Tier.G3)


@dataclass(frozen=True, slots=True)
class StaleHeader:
    """A free slot whose header still names an evicted block: a restart would bring it back."""

    block: BlockId
    generation: Generation


@dataclass(frozen=True, slots=True)
class Committed:
    """What became of a job's blocks."""

    blocks: ImmutableBlocks
    doomed: int
    """Blocks that arrived well and are not kept, because the tier was cleared meanwhile."""
    surplus: list[DoomedBlocks]
    """Slots of older copies of the same blocks."""


@dataclass(frozen=True, slots=True)
class CondemnedFamily:
    """Slots of a family that left, as far as nobody holds them; the others come out of ``drain_doomed``."""

    damaged: DoomedBlocks
    relatives: tuple[DoomedBlocks, ...]
    """Whole, but of no use alone."""


class NodeTables:
    """Pools of G2 and G3, the pins on them, and the full names of what G2 holds."""

    def __init__(
        self, events: EventLog, block_tokens: int, clock: Clock, make_policy: Mapping[Tier, PolicyFactory]
    ) -> None:
        """Start without pools: their sizes come with the first attach of the offload-worker."""
        self.events: Final = events
        self.pins: Final = PinTable(self._left)
        self.serving = False
        """Whether the worker is there and the tables say all that it holds: only then is an absent block a miss."""
        self.grants_open = False
        """Whether slots may be granted: every process that can write the arena is attached or proven dead."""
        self._block_tokens = block_tokens
        self._clock = clock
        self._make_policy = make_policy
        self._pools: dict[Tier, BlockPool] = {}
        self._registry = BlockRegistry()
        self._names: dict[tuple[ContentKey, GroupId], BlockName] = {}
        self._stale: dict[BlockId, Generation] = {}
        self.on_left: Callable[[Tier, Sequence[tuple[ContentKey, GroupId]]], None] = lambda tier, blocks: None
        """Called in the section in which blocks leave a tier."""
        self.on_evicted: Callable[[Tier, Sequence[BlockFacts]], None] = lambda tier, blocks: None
        """Told which blocks have to go for others, before anybody is told that they left."""

    def open(self, tier: Tier, slots: int) -> None:
        """Make the pool of a tier."""
        self._pools[tier] = BlockPool(tier, slots, self._make_policy[tier], clock=self._clock, registry=self._registry)

    # --- reading ------------------------------------------------------------------------------------------------------
    def has(self, tier: Tier) -> bool:
        """Whether the tier exists on this node and its size is known."""
        return tier in self._pools

    def pool(self, tier: Tier) -> BlockPool:
        """The pool of a tier, for counts and checks.

        Raises:
            NotReadyError: the offload-worker has not told its size yet.
        """
        pool = self._pools.get(tier)
        if pool is None:
            raise NotReadyError("the tier is not open", tier=tier.label)
        return pool

    def holds(self, tier: Tier, keys: Sequence[ContentKey], group: GroupId) -> list[bool]:
        """Per key, whether the tier holds it; touches nothing."""
        return self._registry.holds(tier, keys, group)

    def in_g2(self) -> list[tuple[ContentKey, GroupId]]:
        """Everything in G2, in the order in which it entered, what was adopted together tails first.

        Perhaps also blocks that were cleared and not swept.
        """
        return list(self._names)

    def name_in_g2(self, key: ContentKey, group: GroupId) -> BlockName | None:
        """Full name of a block that G2 holds; None where it does not."""
        name = self._names.get((key, group))
        return name if name is None or self.holds(Tier.G2, [key], group)[0] else None

    def next_victims(self, tier: Tier, count: int) -> tuple[BlockFacts, ...]:
        """Blocks that would leave a tier first; touches nothing."""
        return self.pool(tier).next_victims(count)

    def named(self, blocks: Iterable[tuple[ContentKey, GroupId]]) -> dict[BlockScope, list[BlockName]]:
        """Those of these blocks that G2 holds, by their full names, by scope."""
        pool = self.pool(Tier.G2)
        found: dict[BlockScope, list[BlockName]] = {}
        for key, group in blocks:
            for block in pool.registered_in(row for row in pool.find([key], group) if row is not None):
                scope = BlockScope(block.identity, block.tenant, group, self._block_tokens)
                found.setdefault(scope, []).append(self._names[key, group])
        return found

    def room(self, tier: Tier) -> int:
        """Blocks that can be granted now; G3 slots only without eviction, since those need a durable header first."""
        pool = self._pools.get(tier)
        if pool is None or not self.grants_open:
            return 0
        return pool.available if tier is Tier.G2 else pool.free

    # --- grants and commits -------------------------------------------------------------------------------------------
    def grant(self, tier: Tier, count: int) -> MutableBlocks:
        """Grant slots; what G2 evicts for them is announced as removed before anyone can write there.

        Raises:
            NotReadyError: grants are not open.
            OutOfBlocksError: fewer slots than asked for; nothing changed.
        """
        if not self.grants_open:
            raise NotReadyError("nothing is granted before every writer of the arena is attached", tier=tier.label)
        allocation = self.pool(tier).allocate(count, evict=tier is Tier.G2)
        self.on_evicted(tier, allocation.evicted)
        self._left(tier, allocation.evicted)
        if tier is Tier.G2:
            self._stale.update((facts.block, facts.generation) for facts in allocation.evicted)
        return allocation.blocks

    def commit(
        self,
        tier: Tier,
        blocks: MutableBlocks,
        names: Sequence[BlockName],
        scope: BlockScope,
        statuses: Sequence[ItemStatus],
        origin: Tier,
    ) -> Committed:
        """Take over what a settled job brought: register and announce the blocks that are OK, free the other slots.

        Slots that a clear doomed meanwhile register nothing; all of them come out of ``drain_doomed``, since also a
        failed or lost item may have left a header that a restart would believe.

        Returns:
            Pins on the blocks that carry the keys now, in order, and the number of doomed ones.
        """
        pool = self.pool(tier)
        good = [index for index, status in enumerate(statuses) if status is ItemStatus.OK]
        if any(pool.is_doomed(block) for block in blocks.ids):
            nothing = blocks.stage(_staged(names, scope)).register()
            return Committed(nothing.blocks, len(good), [])
        keys = [names[index].key for index in good]
        before = pool.find(keys, scope.group)
        if pool.unswept:
            self._forget(tier, [(key, scope.group) for key in keys])
        slots = blocks.ids
        # A copy that was found by its header meanwhile gives way: the new one's header is READY too, and of two
        # copies in one tier the older has to be freed.
        older = [pool.condemn(block, pool.generation(block)) for block in before if block is not None]
        complete = blocks.stage(_staged(names, scope), good)
        blocks.release()
        registration = complete.register()
        after = pool.find(keys, scope.group)
        fresh = [index for index, old, new in zip(good, before, after, strict=True) if old is None and new is not None]
        if tier is Tier.G2:
            for index in good:
                self._stale.pop(slots[index], None)
            for index in fresh:
                self._names[names[index].key, scope.group] = names[index]
        self.events.copied(origin, tier, scope, select(names, fresh))
        still_held = {key for key, new in zip(keys, after, strict=True) if new is not None}
        self._left(tier, [facts for item in older for facts in item.facts if facts.key not in still_held])
        return Committed(registration.blocks, 0, [item.doomed for item in older])

    # --- hints --------------------------------------------------------------------------------------------------------
    def keep(self, keys: Sequence[ContentKey], retention: Retention) -> dict[Tier, int]:
        """Keep blocks of all groups in both tiers, as long as others can go; returns how many each tier has of them."""
        return {tier: pool.hint(keys, retention) for tier, pool in self._pools.items()}

    def expend(self, keys: Sequence[ContentKey]) -> dict[Tier, int]:
        """Let blocks of all groups leave both tiers before all others; returns how many each tier has of them."""
        return {tier: pool.end_session(keys) for tier, pool in self._pools.items()}

    # --- leaving ------------------------------------------------------------------------------------------------------
    def condemn_family(self, tier: Tier, block: BlockId, generation: Generation) -> CondemnedFamily:
        """A copy is damaged: it leaves the table now, and with it the blocks of its key in other groups.

        No prefix can be restored from those alone, so all of them are reported gone in this section. Where the
        generation does not name the block any more, nothing happens.
        """
        pool = self.pool(tier)
        relatives = pool.relatives(block) if pool.registered_in((block,)) else []
        condemned = pool.condemn(block, generation)
        if condemned.outcome is CondemnOutcome.STALE:
            return CondemnedFamily(condemned.doomed, ())
        others = [pool.condemn(relative, pool.generation(relative)) for relative in relatives]
        self._left(tier, [facts for item in (condemned, *others) for facts in item.facts])
        return CondemnedFamily(condemned.doomed, tuple(item.doomed for item in others))

    def evict(self, tier: Tier, count: int) -> DoomedBlocks:
        """Take up to ``count`` blocks that nobody holds out of the table; their slots await FREE headers."""
        doomed = self.pool(tier).evict(count)
        self.on_evicted(tier, doomed.facts)
        self._left(tier, doomed.facts)
        return doomed

    def cut(self, tier: Tier, scope: ClearScope = EVERYTHING, elsewhere: Collection[BlockId] = ()) -> CutReport:
        """Forget what a tier has in scope in this section; one ``cleared`` event says so. Slots come out of ``sweep``.

        ``elsewhere``: slots being written whose blocks are known to be out of scope.
        """
        report = self.pool(tier).cut(scope, elsewhere)
        self.events.cleared(self.events.owner_of(tier), tier, scope)
        return report

    @property
    def unswept(self) -> tuple[Tier, ...]:
        """Tiers that hold slots of forgotten blocks."""
        return tuple(tier for tier, pool in self._pools.items() if pool.unswept)

    def sweep(self, tier: Tier, most: int) -> DoomedBlocks:
        """Slots of up to ``most`` forgotten blocks, as far as nobody holds them."""
        swept = self.pool(tier).sweep(most)
        self._forget(tier, swept.names)
        return swept.doomed

    def drain_doomed(self, tier: Tier) -> DoomedBlocks | None:
        """Slots of condemned or cleared blocks whose last holder let go; None where there are none."""
        pool = self._pools.get(tier)
        if pool is None:
            return None
        doomed = pool.drain_doomed()
        if len(doomed):
            self._forget(tier, [(block.key, block.group) for block in doomed.facts])
            return doomed
        doomed.release()
        return None

    def stale_headers(self) -> tuple[StaleHeader, ...]:
        """Free G2 slots whose headers still name evicted blocks."""
        return tuple(StaleHeader(block, generation) for block, generation in self._stale.items())

    def header_freed(self, stale: StaleHeader) -> None:
        """The header of a free G2 slot says FREE or names a newer grant."""
        if self._stale.get(stale.block) == stale.generation:
            del self._stale[stale.block]

    # --- recovery -----------------------------------------------------------------------------------------------------
    def quarantine(self, tier: Tier, slots: Iterable[int]) -> MutableBlocks | None:
        """Take slots out of circulation that a job of an earlier life may still write; None where all are in use.

        A block that nobody holds leaves for that, since its bytes may go at any moment. Its header stays as it is: if
        the job never writes there, the listing that follows its end finds the block again.
        """
        pool = self.pool(tier)
        wanted = [BlockId(slot) for slot in set(slots) if 0 <= slot < pool.capacity]
        idle = [block for block in wanted if pool.state(block) is RowState.INACTIVE]
        for dropped in self.drop(tier, pool.registered_in(idle)):
            dropped.release()
        free = [block for block in wanted if pool.state(block) is RowState.FREE]
        return pool.take(free) if free else None

    def header_seen(self, tier: Tier, record: InventoryRecord) -> None:
        """The header of a slot in use was listed; it may name a later grant, by an earlier life of ours."""
        pool = self.pool(tier)
        if record.generation <= pool.generation(record.block):
            return
        pool.remember_generation(record.block, record.generation)
        if tier is Tier.G2 and record.state is HeaderState.READY:
            self._stale[record.block] = record.generation

    def drop(self, tier: Tier, facts: Iterable[BlockFacts]) -> list[DoomedBlocks]:
        """Blocks without their bytes leave the table; returns their slots as far as nobody holds them."""
        dropped: list[DoomedBlocks] = []
        gone: list[BlockFacts] = []
        for block in facts:
            condemned = self.pool(tier).condemn(block.block, block.generation)
            gone.extend(condemned.facts)
            dropped.append(condemned.doomed)
        self._left(tier, gone)
        return dropped

    def adopt(self, tier: Tier, records: Sequence[InventoryRecord]) -> DoomedBlocks:
        """Register blocks found by their headers in free slots; returns the slots of surplus copies."""
        pool = self.pool(tier)
        held = [pool.find([record.key], record.group)[0] is not None for record in records]
        if pool.unswept:
            self._forget(tier, [(record.key, record.group) for record in records])
        report = pool.adopt([_adopted(record) for record in records])
        fresh: dict[BlockScope, dict[ContentKey, BlockName]] = {}
        for record, known in zip(records, held, strict=True):
            if not known:
                scope = BlockScope(record.identity, record.tenant, record.group, self._block_tokens)
                name = BlockName(record.digest, record.parent, record.position)
                fresh.setdefault(scope, {})[name.key] = name
        for scope, names in fresh.items():
            ordered = sorted(names.values(), key=lambda name: name.position)
            self.events.stored(self.events.owner_of(tier), tier, scope, ordered)
            if tier is Tier.G2:
                self._names.update(((name.key, scope.group), name) for name in reversed(ordered))
        if tier is Tier.G2:
            for record in records:
                self._stale.pop(record.block, None)
        return report.losers

    def reject(self, tier: Tier, records: Sequence[InventoryRecord]) -> list[DoomedBlocks]:
        """Blocks found in free slots that must not be kept: they are never announced; returns their slots."""
        pool = self.pool(tier)
        slots: list[DoomedBlocks] = []
        for record in records:
            slots.append(pool.adopt([_adopted(record)]).losers)
            slots.append(pool.condemn(record.block, record.generation).doomed)
        return slots

    # --- inside -------------------------------------------------------------------------------------------------------
    def _forget(self, tier: Tier, blocks: Sequence[tuple[ContentKey, GroupId]]) -> None:
        """These were perhaps cleared: those that are known and not in the tier have left it."""
        known: dict[GroupId, list[ContentKey]] = {}
        for block in blocks if tier is Tier.G2 else ():
            if block in self._names:
                known.setdefault(block[1], []).append(block[0])
        for group, keys in known.items():
            held = self.holds(tier, keys, group)
            gone = [(key, group) for key, here in zip(keys, held, strict=True) if not here]
            for block in gone:
                del self._names[block]
            self.on_left(tier, gone)

    def _left(self, tier: Tier, facts: Iterable[BlockFacts]) -> None:
        listed = list(facts)
        if tier is Tier.G2:
            for block in listed:
                self._names.pop((block.key, block.group), None)
        self.on_left(tier, [(block.key, block.group) for block in listed])
        owner = self.events.owner_of(tier)
        self.events.removed(owner, tier, [(block.identity, block.group, block.key) for block in listed])


def _staged(names: Sequence[BlockName], scope: BlockScope) -> StagedColumns:
    return StagedColumns(
        keys=[name.key for name in names],
        parents=[name.parent for name in names],
        positions=[name.position for name in names],
        identity=scope.identity,
        tenant=scope.tenant,
        group=scope.group,
    )


def _adopted(record: InventoryRecord) -> AdoptedBlock:
    return AdoptedBlock(
        record.block,
        record.generation,
        record.key,
        record.parent,
        record.position,
        IdentityDigest(record.identity),
        TenantDigest(record.tenant),
        record.group,
    )
