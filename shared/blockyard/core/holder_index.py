"""What a router knows: who holds which block, and how far each engine gets in a chain of keys.

It is fed with events that somebody else has put in order (``core.event_consumer``); on its own it refuses what is out
of date: numbers up to the watermark of a publisher are repeated ones, lower epochs are refused for ever, a higher epoch
empties what the publisher said before. Publishers may hold any subset of a chain.
Memory: 117 to 190 bytes per key and group (64 the key, 21 to 30 its row, the rest its entry) and 32 more for one that
was announced alone, whatever the number of its holders, and 100 to 200 bytes per different set of holders.
``max_blocks`` bounds the keys. When it is reached, keys that are new to the index are refused and counted, those it
knows go on gaining and losing holders, and what is known of publishers who lost keys this way is marked as not whole
until they start anew: answers become shorter, never wrong. Names of publishers are remembered for ever, with their
epochs.
Invariants: blocks of a publisher without credit, or of an old epoch, count for nobody; digests are those of the set.
Lookups are fast where blocks were announced together; keys announced one by one cost four times as much.
Threading: one owner thread. No call looks at all keys, but for events that clear a tenant.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, final

from blockyard.core.events import (
    ClearedEvent,
    EventOwner,
    KvEvent,
    OffloadedEvent,
    PublishedEvent,
    RemovedEvent,
    StoredEvent,
)
from blockyard.core.holder_rows import MAX_PAGE
from blockyard.core.holder_table import Holder, HolderTable
from blockyard.core.prefix_match import PrefixMatch, Runs, reader_classes
from blockyard.core.reader_board import NO_PLANES, Planes, ReaderBoard
from blockyard.core.tier_digest import NOTHING_HELD, TierDigest, TierDigests, place_of
from blockyard.core.vocabulary import ContentKey, Epoch, EventSeq, GroupId, IdentityDigest, Tier
from blockyard.core.whole_numbers import require_whole

DEFAULT_MAX_BLOCKS: Final = 16_000_000
_PAGE: Final = 512
_ONE_GROUP: Final = (GroupId(0),)


@final
@dataclass(frozen=True, slots=True)
class Watermark:
    """How far the index has followed a publisher, and what it then held as far as is known."""

    epoch: Epoch = Epoch(0)
    seq: EventSeq = EventSeq(0)
    held: TierDigests = NOTHING_HELD
    is_whole: bool = True
    """False where keys were refused, so that ``held`` is not what the publisher holds."""


@final
@dataclass(slots=True)
class _Followed:
    """A publisher, as ``Watermark``."""

    epoch: Epoch
    seq: EventSeq = EventSeq(0)
    held: list[TierDigest] = field(default_factory=lambda: list(NOTHING_HELD))
    is_whole: bool = True

    def shrink(self, tier: Tier, gone: TierDigest) -> None:
        """It holds these no more."""
        self.held[place_of(tier)] = self.held[place_of(tier)].without(gone)


@final
@dataclass(slots=True)
class IndexCounts:
    """Totals since the start."""

    events: int = 0
    repeated: int = 0
    """Events at or below the watermark."""
    stale: int = 0
    """Events of an epoch that has ended."""
    refused_blocks: int = 0
    """Blocks that found no room."""


@final
class HolderIndex:
    """Holders of blocks over all publishers and identities."""

    __slots__ = ("_board", "_max_blocks", "_page", "_publishers", "_tables", "counts")

    def __init__(self, max_blocks: int = DEFAULT_MAX_BLOCKS, page: int = _PAGE) -> None:
        """Start with nothing.

        Args:
            max_blocks: most keys, counted per group and identity.
            page: rows that lie together, and at which ``apply`` looks at least to take away what dropped publishers
                had.
        """
        require_whole("most blocks of an index", max_blocks, 1)
        require_whole("rows of a page of an index", page, 1, MAX_PAGE)
        self.counts: Final = IndexCounts()
        self._max_blocks = max_blocks
        self._page = page
        self._tables: dict[IdentityDigest, HolderTable] = {}
        self._board = ReaderBoard()
        self._publishers: dict[str, _Followed] = {}

    # --- what is known ------------------------------------------------------------------------------------------------
    @property
    def blocks(self) -> int:
        """Keys, those that wait to be swept included."""
        return sum(table.blocks for table in self._tables.values())

    def watermark(self, instance: str) -> Watermark:
        """How far a publisher was followed; epoch 0 where it is not known."""
        known = self._publishers.get(instance)
        if known is None:
            return Watermark()
        first, second, third, fourth = known.held
        return Watermark(known.epoch, known.seq, (first, second, third, fourth), known.is_whole)

    def longest_prefix(
        self,
        identity: IdentityDigest,
        keys: Sequence[ContentKey],
        groups: Sequence[GroupId] = _ONE_GROUP,
        deepest: Tier = Tier.G4,
    ) -> tuple[PrefixMatch, ...]:
        """How many leading blocks each credited reader finds, longest first; who finds none is left out.

        Args:
            identity: of the model.
            keys: of a chain, from its start.
            groups: a block counts where the reader finds it in each of these; its tier is the slowest of them.
            deepest: slower tiers do not count.
        """
        table = self._tables.get(identity)
        if table is None or not groups:
            return ()
        classes = reader_classes(self._runs(table, keys, groups), self._board.everybody, place_of(deepest) + 1)
        readers_in = self._board.readers_in
        return tuple([PrefixMatch(readers_in(each.readers), sum(each.by_tier), each.by_tier) for each in classes])

    # --- credit -------------------------------------------------------------------------------------------------------
    def credit(self, instance: str, readers: Sequence[EventOwner]) -> None:
        """The lease of ``instance`` lives, with these engines: they, and its blocks, count from now on."""
        self._board.credit(instance, readers)

    def discredit(self, instance: str) -> None:
        """The lease of ``instance`` ended: what it holds is kept, but counts for nobody."""
        self._board.discredit(instance)

    # --- changes ------------------------------------------------------------------------------------------------------
    def apply(self, events: Iterable[PublishedEvent]) -> None:
        """Fold events, those of one publisher in order of their numbers; what is repeated or stale is counted only."""
        looked = 0
        for published in events:
            known = self._publishers.get(published.instance)
            if known is None or published.epoch > known.epoch:
                known = self._renewed(published.instance, published.epoch)
            if published.epoch < known.epoch:
                self.counts.stale += 1
            elif published.seq <= known.seq:
                self.counts.repeated += 1
            else:
                known.seq = published.seq
                self.counts.events += 1
                looked += self._change(published.instance, known, published.event)
        self._sweep(self._page + looked)

    def restore(self, instance: str, epoch: Epoch, seq: EventSeq, events: Iterable[StoredEvent]) -> None:
        """Put the set that ``instance`` held at ``seq`` in place of what is known; an older epoch changes nothing."""
        if epoch < self.watermark(instance).epoch:
            self.counts.stale += 1
            return
        known = self._renewed(instance, epoch)
        for event in events:
            self._store(instance, known, event)
        known.seq = seq

    def drop(self, instance: str, epoch: Epoch) -> None:
        """Forget all blocks of ``instance`` at once; from ``epoch`` on it may fill anew, from sequence 0.

        Its keys are taken away with later calls. An epoch below the known one counts as the known one.
        """
        self._renewed(instance, Epoch(max(epoch, self.watermark(instance).epoch)))

    def _renewed(self, instance: str, epoch: Epoch) -> _Followed:
        for table in self._tables.values():
            for holder in table.holders_of(instance):
                table.retire(holder)
        self._board.changed()
        known = self._publishers[instance] = _Followed(epoch)
        return known

    def _change(self, instance: str, known: _Followed, event: KvEvent) -> int:
        """Fold one event; answers how many blocks it named."""
        if isinstance(event, ClearedEvent):
            self._clear(instance, known, event)
            return 0
        if isinstance(event, RemovedEvent):
            self._remove(instance, known, event)
            return len(event.keys)
        self._store(instance, known, event)
        return len(event.blocks)

    def _store(self, instance: str, known: _Followed, event: StoredEvent | OffloadedEvent) -> None:
        tier = event.to_tier if isinstance(event, OffloadedEvent) else event.tier
        scope = event.scope
        table = self._tables.get(scope.identity)
        if table is None:
            table = self._tables[scope.identity] = HolderTable(self._page)
        holder = table.holder(instance, event.owner, tier)
        room = self._room(len(event.blocks))
        grown, refused = table.add(holder, scope.group, scope.tenant, event.blocks.keys, room)
        self.counts.refused_blocks += refused
        known.held[place_of(tier)] = known.held[place_of(tier)].joined(grown)
        known.is_whole = known.is_whole and not refused

    def _remove(self, instance: str, known: _Followed, event: RemovedEvent) -> None:
        table = self._tables.get(event.identity)
        holder = table.find(instance, event.owner, event.tier) if table else None
        if table is not None and holder is not None:
            known.shrink(event.tier, table.remove(holder, event.group, event.keys))

    def _clear(self, instance: str, known: _Followed, event: ClearedEvent) -> None:
        for identity, table in self._tables.items():
            if event.identity not in (None, identity):
                continue
            for holder in table.holders_of(instance):
                if _is_in(holder, event):
                    tenant = event.tenant
                    gone = table.retire(holder) if tenant is None else table.remove_tenant(holder, tenant)
                    known.shrink(holder.tier, gone)
        self._board.changed()

    # --- room ---------------------------------------------------------------------------------------------------------
    def _room(self, wanted: int) -> int:
        """How many new keys may be taken; where fewer than wanted, what waits to be swept is swept first."""
        room = self._max_blocks - self.blocks
        if room < wanted:
            self._sweep(self._max_blocks)
            room = self._max_blocks - self.blocks
        return max(room, 0)

    def _sweep(self, keys: int) -> None:
        for identity, table in list(self._tables.items()):
            if not table.is_swept:
                table.sweep(keys)
                if table.is_swept and not table.has_holders:
                    del self._tables[identity]

    def _runs(self, table: HolderTable, keys: Sequence[ContentKey], groups: Sequence[GroupId]) -> Runs:
        planes = self._board.planes
        runs = [((planes(table, cell), length) for cell, length in table.runs(group, keys)) for group in groups]
        return runs[0] if len(runs) == 1 else _together(runs)


def _together(groups: Sequence[Iterator[tuple[Planes, int]]]) -> Runs:
    """What is found in all groups; each run ends where that of some group does."""
    planes = [NO_PLANES] * len(groups)
    left = [0] * len(groups)
    while True:
        for group, runs in enumerate(groups):
            if not left[group]:
                run = next(runs, None)
                if run is None:
                    return
                planes[group], left[group] = run
        length = min(left)
        yield _common(planes), length
        left = [each - length for each in left]


def _common(planes: Sequence[Planes]) -> Planes:
    first, second, third, fourth = planes[0]
    for other in planes[1:]:
        first, second, third, fourth = first & other[0], second & other[1], third & other[2], fourth & other[3]
    return first, second, third, fourth


def _is_in(holder: Holder, scope: ClearedEvent) -> bool:
    return scope.owner in (None, holder.owner) and scope.tier in (None, holder.tier)
