"""From changes of the tables to events in the outbox, in the section that made the change.

Everything that enters or leaves a tier is announced here and nowhere else, cut to the size of one event and grouped by
what an event's blocks must share.
Invariants: an event is appended only for a transition that the caller has just made; the outbox numbers it at once.
Threading: owned by the event loop of the service. No await.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from blockyard.core.block_name import BlockName
from blockyard.core.clear_scope import EVERYTHING, ClearScope
from blockyard.core.events import (
    MAX_EVENT_BLOCKS,
    BlockColumns,
    BlockScope,
    ClearedEvent,
    EventOwner,
    KvEvent,
    OffloadedEvent,
    OwnerKind,
    RemovedEvent,
    StoredEvent,
)
from blockyard.core.outbox import Outbox
from blockyard.core.vocabulary import ContentKey, EventSeq, GroupId, IdentityDigest, Tier

SHARED_OWNER: Final = EventOwner(OwnerKind.SHARED, "g4")


class EventLog:
    """Appends events of this node."""

    def __init__(self, outbox: Outbox, node: str) -> None:
        """Announce as ``node`` into ``outbox``."""
        self.outbox: Final = outbox
        self.node: Final = EventOwner(OwnerKind.NODE, node)
        self.on_append: Callable[[EventSeq], None] = lambda seq: None
        """Called after each append with the number of the event, to wake the publisher."""

    def owner_of(self, tier: Tier) -> EventOwner:
        """Holder of blocks in a tier below G1."""
        return SHARED_OWNER if tier is Tier.G4 else self.node

    def stored(self, owner: EventOwner, tier: Tier, scope: BlockScope, names: Sequence[BlockName]) -> None:
        """Blocks became readable in ``tier``."""
        for blocks in _columns(names).slices():
            self._append(StoredEvent(owner, tier, scope, blocks))

    def copied(self, origin: Tier, tier: Tier, scope: BlockScope, names: Sequence[BlockName]) -> None:
        """Blocks became readable in ``tier``, copied from ``origin``, which keeps them."""
        for blocks in _columns(names).slices():
            self._append(OffloadedEvent(self.owner_of(tier), origin, tier, scope, blocks))

    def removed(
        self, owner: EventOwner, tier: Tier, gone: Iterable[tuple[IdentityDigest, GroupId, ContentKey]]
    ) -> None:
        """The last copies of these blocks at ``owner`` are gone."""
        grouped: dict[tuple[IdentityDigest, GroupId], list[ContentKey]] = {}
        for identity, group, key in gone:
            grouped.setdefault((identity, group), []).append(key)
        for (identity, group), keys in grouped.items():
            for start in range(0, len(keys), MAX_EVENT_BLOCKS):
                cut = tuple(keys[start : start + MAX_EVENT_BLOCKS])
                self._append(RemovedEvent(owner, tier, identity, cut, group))

    def cleared(self, owner: EventOwner, tier: Tier, scope: ClearScope = EVERYTHING) -> None:
        """Everything of ``owner`` in ``tier`` that is in scope is gone."""
        self._append(ClearedEvent(owner, tier, scope.identity, scope.tenant))

    def _append(self, event: KvEvent) -> None:
        self.on_append(self.outbox.append(event))


def _columns(names: Sequence[BlockName]) -> BlockColumns:
    return BlockColumns.of(
        tuple(name.key for name in names),
        tuple(name.parent for name in names),
        tuple(name.position for name in names),
    )
