"""KV events as values: what entered and left which tier, in the order in which the block table changed.

The set of held blocks is keyed (owner, group, tier, identity, key). ``StoredEvent`` and ``OffloadedEvent`` add to it,
``RemovedEvent`` takes away, ``ClearedEvent`` empties its scope. Events state transitions only (first copy readable,
last copy gone), so whoever folds them never counts.
Invariants: columns are aligned and not empty; an event names at most ``MAX_EVENT_BLOCKS`` blocks.
Threading: frozen values.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum, unique
from typing import Final

from blockyard.core.errors import RequestError
from blockyard.core.vocabulary import (
    DEFAULT_TENANT,
    ContentKey,
    Epoch,
    EventSeq,
    GroupId,
    IdentityDigest,
    TenantDigest,
    Tier,
)

MAX_EVENT_BLOCKS: Final = 1_024
"""Most blocks in one event: keeps a message far below what a bus accepts."""


@unique
class OwnerKind(StrEnum):
    """Who holds the blocks of an event."""

    ENGINE = "engine"
    NODE = "node"
    SHARED = "shared"


@dataclass(frozen=True, slots=True)
class EventOwner:
    """Holder of blocks: an engine (G1), a node (G2, G3) or the shared store (G4)."""

    kind: OwnerKind
    name: str
    dp_rank: int = 0


@dataclass(frozen=True, slots=True)
class BlockScope:
    """What all blocks of one event have in common."""

    identity: IdentityDigest
    tenant: TenantDigest = DEFAULT_TENANT
    group: GroupId = GroupId(0)
    block_tokens: int = 0


@dataclass(frozen=True, slots=True)
class BlockColumns:
    """Aligned columns that name blocks; parents and positions place them in their chains."""

    keys: tuple[ContentKey, ...]
    parents: tuple[ContentKey, ...]
    positions: tuple[int, ...]

    def __post_init__(self) -> None:
        """Refuse columns that are not aligned."""
        if not len(self.keys) == len(self.parents) == len(self.positions):
            raise RequestError("columns of an event differ in length", keys=len(self.keys), parents=len(self.parents))

    def __len__(self) -> int:
        """Number of blocks."""
        return len(self.keys)

    def slices(self, limit: int = MAX_EVENT_BLOCKS) -> Iterator["BlockColumns"]:
        """Consecutive parts of at most ``limit`` blocks; nothing where there are no blocks."""
        for start in range(0, len(self), limit):
            cut = slice(start, start + limit)
            yield BlockColumns(self.keys[cut], self.parents[cut], self.positions[cut])


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """Blocks became readable in a tier."""

    owner: EventOwner
    tier: Tier
    scope: BlockScope
    blocks: BlockColumns

    def __post_init__(self) -> None:
        """Refuse an event without blocks, or with too many."""
        _check_size(len(self.blocks))


@dataclass(frozen=True, slots=True)
class OffloadedEvent:
    """As ``StoredEvent`` in ``to_tier``, with the tier the copy was made from; removes nothing."""

    owner: EventOwner
    from_tier: Tier
    to_tier: Tier
    scope: BlockScope
    blocks: BlockColumns

    def __post_init__(self) -> None:
        """Refuse an event without blocks, or with too many."""
        _check_size(len(self.blocks))


@dataclass(frozen=True, slots=True)
class RemovedEvent:
    """The last copies of these blocks at this owner and tier are gone."""

    owner: EventOwner
    tier: Tier
    identity: IdentityDigest
    keys: tuple[ContentKey, ...]
    group: GroupId = GroupId(0)

    def __post_init__(self) -> None:
        """Refuse an event without blocks, or with too many."""
        _check_size(len(self.keys))


@dataclass(frozen=True, slots=True)
class ClearedEvent:
    """Everything in scope is gone at this point; a field that is None does not narrow the scope."""

    owner: EventOwner | None = None
    tier: Tier | None = None
    identity: IdentityDigest | None = None
    tenant: TenantDigest | None = None


KvEvent = StoredEvent | OffloadedEvent | RemovedEvent | ClearedEvent


@dataclass(frozen=True, slots=True)
class PublishedEvent:
    """An event with its place in the sequence of its publisher."""

    instance: str
    epoch: Epoch
    seq: EventSeq
    event: KvEvent


def _check_size(blocks: int) -> None:
    if not 1 <= blocks <= MAX_EVENT_BLOCKS:
        raise RequestError("an event names at least one block and not too many", blocks=blocks, limit=MAX_EVENT_BLOCKS)
