"""The set that a consumer holds after applying events: the simplest correct reader, for tests.

Entries are keyed (owner, group, tier, identity, key); numbers must be contiguous or the gap is recorded. This is the
oracle against which readers with recovery are compared; it does not recover by itself.
Threading: one thread.
"""

from typing import NamedTuple

from blockyard.core.events import ClearedEvent, EventOwner, KvEvent, OffloadedEvent, PublishedEvent, RemovedEvent
from blockyard.core.vocabulary import ContentKey, GroupId, IdentityDigest, TenantDigest, Tier


class HeldBlock(NamedTuple):
    """One copy that a publisher announced."""

    owner: EventOwner
    group: GroupId
    tier: Tier
    identity: IdentityDigest
    key: ContentKey


class EventFold:
    """Set of one publisher, by its events."""

    def __init__(self) -> None:
        """Start with nothing at sequence 0 of no epoch."""
        self.epoch = 0
        self.cursor = 0
        self.gaps = 0
        """Numbers that never came."""
        self._tenants: dict[HeldBlock, TenantDigest] = {}

    @property
    def held(self) -> frozenset[HeldBlock]:
        """What the publisher holds as far as it was told."""
        return frozenset(self._tenants)

    def receive(self, published: PublishedEvent) -> None:
        """Apply the next event; repeated ones are dropped, a higher epoch starts from the empty set."""
        if published.epoch > self.epoch:
            self.epoch, self.cursor = published.epoch, 0
            self._tenants.clear()
        if published.epoch < self.epoch or published.seq <= self.cursor:
            return
        self.gaps += published.seq - self.cursor - 1
        self.cursor = published.seq
        self.apply(published.event)

    def apply(self, event: KvEvent) -> None:
        """Change the set by one event."""
        if isinstance(event, RemovedEvent):
            for key in event.keys:
                self._tenants.pop(HeldBlock(event.owner, event.group, event.tier, event.identity, key), None)
        elif isinstance(event, ClearedEvent):
            self._clear(event)
        else:
            tier = event.to_tier if isinstance(event, OffloadedEvent) else event.tier
            for key in event.blocks.keys:
                held = HeldBlock(event.owner, event.scope.group, tier, event.scope.identity, key)
                self._tenants[held] = event.scope.tenant

    def _clear(self, event: ClearedEvent) -> None:
        for held, tenant in list(self._tenants.items()):
            facts = (held.owner, held.tier, held.identity, tenant)
            scope = (event.owner, event.tier, event.identity, event.tenant)
            if all(wanted is None or fact == wanted for fact, wanted in zip(facts, scope, strict=True)):
                del self._tenants[held]
