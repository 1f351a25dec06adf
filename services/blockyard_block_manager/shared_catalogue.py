"""Which blocks of the shared store this node has put or loaded: the G4 entries it announces and retracts itself.

The authority for G4 is the store and its index; this is only what this node has said about it, so that an event goes
out on transitions only. Bounded: the oldest statements are retracted when there are too many.
Invariants: the fold of this node's G4 events equals the catalogue. Threading: owned by the event loop of the service.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from itertools import islice

from blockyard.core.block_name import BlockName
from blockyard.core.events import BlockScope
from blockyard.core.vocabulary import ContentKey, GroupId, IdentityDigest, Tier
from blockyard_block_manager.event_log import SHARED_OWNER, EventLog


class SharedCatalogue:
    """Blocks that this node says are in the shared store."""

    def __init__(self, events: EventLog, limit: int) -> None:
        """Start empty; hold at most ``limit`` blocks."""
        self._events = events
        self._limit = limit
        self._entries: OrderedDict[tuple[ContentKey, GroupId], IdentityDigest] = OrderedDict()

    def __len__(self) -> int:
        """Blocks announced and not retracted."""
        return len(self._entries)

    @property
    def contents(self) -> frozenset[tuple[ContentKey, GroupId]]:
        """All blocks announced and not retracted."""
        return frozenset(self._entries)

    def stored(self, names: Sequence[BlockName], scope: BlockScope) -> None:
        """Blocks were put: announced as copies made from G2."""
        self._events.copied(Tier.G2, Tier.G4, scope, self._enter(names, scope))

    def seen(self, names: Sequence[BlockName], scope: BlockScope) -> None:
        """Blocks were read from the store, whoever put them."""
        self._events.stored(SHARED_OWNER, Tier.G4, scope, self._enter(names, scope))

    def gone(self, keys: Iterable[ContentKey], group: GroupId) -> None:
        """The store does not have them, or has damaged bytes."""
        known = [(key, group) for key in keys if (key, group) in self._entries]
        self._retract(known)

    def _enter(self, names: Sequence[BlockName], scope: BlockScope) -> list[BlockName]:
        fresh: list[BlockName] = []
        for name in names:
            entry = (name.key, scope.group)
            if entry in self._entries:
                self._entries.move_to_end(entry)
            else:
                fresh.append(name)
        excess = len(self._entries) + len(fresh) - self._limit
        if excess > 0:
            self._retract(list(islice(self._entries, excess)))
        fresh = fresh[: self._limit]
        self._entries.update(((name.key, scope.group), scope.identity) for name in fresh)
        return fresh

    def _retract(self, entries: Sequence[tuple[ContentKey, GroupId]]) -> None:
        gone = [(self._entries.pop(entry), entry[1], entry[0]) for entry in entries]
        self._events.removed(SHARED_OWNER, Tier.G4, gone)
