"""KV events as values: what entered and left which tier, in the order in which the block table changed.

The set of held blocks is keyed (owner, group, tier, identity, key). ``StoredEvent`` and ``OffloadedEvent`` add to it,
``RemovedEvent`` takes away, ``ClearedEvent`` empties its scope. Events state transitions only (first copy readable,
last copy gone), so whoever folds them never counts.
Invariants: columns are aligned and not empty; an event names at most ``MAX_EVENT_BLOCKS`` blocks.
Threading: frozen values.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum, unique
from typing import Final

import numpy as np

from blockyard.core.errors import RequestError
from blockyard.core.vocabulary import (
    DEFAULT_TENANT,
    KEY_BYTES,
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
_KEY: Final = np.dtype(f"V{KEY_BYTES}")
_POSITION: Final = np.dtype("<u4")


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
    """Aligned columns that name blocks; parents and positions place them in their chains.

    They stay as they are packed for the wire: most readers want the keys only, and unpacking is most of their work.
    """

    packed_keys: bytes
    packed_parents: bytes
    packed_positions: bytes
    """Little-endian, 4 bytes each."""

    def __post_init__(self) -> None:
        """Refuse columns that are not aligned."""
        blocks, rest = divmod(len(self.packed_keys), KEY_BYTES)
        if rest or len(self.packed_parents) % KEY_BYTES or len(self.packed_positions) % _POSITION.itemsize:
            raise RequestError(
                "a column of an event is not of whole values",
                keys_bytes=len(self.packed_keys),
                parents_bytes=len(self.packed_parents),
                positions_bytes=len(self.packed_positions),
            )
        parents, positions = len(self.packed_parents) // KEY_BYTES, len(self.packed_positions) // _POSITION.itemsize
        if not blocks == parents == positions:
            raise RequestError(
                "columns of an event differ in length", keys=blocks, parents=parents, positions=positions
            )

    @classmethod
    def of(cls, keys: Sequence[ContentKey], parents: Sequence[ContentKey], positions: Sequence[int]) -> "BlockColumns":
        """Columns with an entry per block."""
        return cls(b"".join(keys), b"".join(parents), np.asarray(positions, _POSITION).tobytes())

    @property
    def keys(self) -> tuple[ContentKey, ...]:
        """Unpacked anew with each call, as the others are."""
        return unpacked_keys(self.packed_keys)

    @property
    def parents(self) -> tuple[ContentKey, ...]:
        """Keys of the blocks before these."""
        return unpacked_keys(self.packed_parents)

    @property
    def positions(self) -> tuple[int, ...]:
        """Places in the chains, from 0."""
        return tuple(np.frombuffer(self.packed_positions, _POSITION).tolist())

    def __len__(self) -> int:
        """Number of blocks."""
        return len(self.packed_keys) // KEY_BYTES

    def slices(self, limit: int = MAX_EVENT_BLOCKS) -> Iterator["BlockColumns"]:
        """Consecutive parts of at most ``limit`` blocks; nothing where there are no blocks."""
        for start in range(0, len(self), limit):
            names = slice(start * KEY_BYTES, (start + limit) * KEY_BYTES)
            places = slice(start * _POSITION.itemsize, (start + limit) * _POSITION.itemsize)
            yield BlockColumns(self.packed_keys[names], self.packed_parents[names], self.packed_positions[places])


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


def unpacked_keys(column: bytes) -> tuple[ContentKey, ...]:
    """The keys of a column of whole ones."""
    return tuple(np.frombuffer(column, _KEY).tolist())  # bytes each, ten times as fast as slices


def _check_size(blocks: int) -> None:
    if not 1 <= blocks <= MAX_EVENT_BLOCKS:
        raise RequestError("an event names at least one block and not too many", blocks=blocks, limit=MAX_EVENT_BLOCKS)
