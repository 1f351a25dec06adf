"""Port to the prefix index: content key -> place in the object store.

::

    absent --begin_build--> building (ends unless renewed) --finish_build--> ready

The index is a hint: a false entry costs one failed read, a missing one a miss, and any subset of the entries may
vanish. What it lacks is a definite miss only while it is *ready*; after a loss it is filled in from a listing.
Threading: one event loop.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum, unique
from typing import Final, Protocol

from blockyard.core.stored_key import StoredKey
from blockyard.core.vocabulary import IdentityDigest, PackId
from blockyard.tiers.index_value import Locator

INDEX_ID_BYTES: Final = 16


@unique
class IndexState(IntEnum):
    """Whether what the index lacks is a miss."""

    ABSENT = 0
    """A new or emptied server: what it lacks is unknown until somebody filled it in."""
    BUILDING = 1
    READY = 2
    FOREIGN = 255
    """Written by a version that this one does not know: nothing is concluded from it."""


@dataclass(frozen=True, slots=True)
class IndexMeta:
    """State of the index and which store it describes."""

    state: IndexState
    index_id: bytes = bytes(INDEX_ID_BYTES)
    """Id of the object store whose packs it locates."""
    obstacle: str = field(default="", compare=False)
    """Where it is foreign: what stands in the way, and what to do about it."""

    def is_complete(self, store_id: bytes) -> bool:
        """True where an absent key is a definite miss for the store with this id."""
        return self.state is IndexState.READY and self.index_id == store_id

    def may_describe(self, store_id: bytes) -> bool:
        """True where entries that are there may be those of the store with this id."""
        return self.state is IndexState.ABSENT or (self.state is not IndexState.FOREIGN and self.index_id == store_id)


@dataclass(frozen=True, slots=True)
class IndexAnswer:
    """Answer to one lookup."""

    locators: tuple[Locator | None, ...]
    """Aligned with the keys asked for."""
    meta: IndexMeta
    """Read in the same round trip."""


class PrefixIndex(Protocol):
    """Where the blocks of an identity lie in the object store.

    All methods raise ``UnavailableError`` or one of its kinds where no answer was had; a write that ended so may have
    taken effect, and may be repeated.
    """

    async def find(self, identity: IdentityDigest, keys: Sequence[StoredKey]) -> IndexAnswer:
        """Look up ``keys`` in one round trip."""
        ...

    async def set_locators(self, identity: IdentityDigest, entries: Sequence[tuple[StoredKey, Locator]]) -> None:
        """Write locators; one that points into a longer pack stays."""
        ...

    async def drop_locators(self, identity: IdentityDigest, pack: PackId, keys: Sequence[StoredKey]) -> int:
        """Clear those locators of ``keys`` that point into ``pack``; answers how many did."""
        ...

    async def touch(self, identity: IdentityDigest, keys: Sequence[StoredKey]) -> None:
        """Note that these entries are in use; absent ones stay absent."""
        ...

    async def meta(self) -> IndexMeta:
        """State of the index."""
        ...

    async def begin_build(self, index_id: bytes, builder: bytes, lease_seconds: float) -> bool:
        """Become the one who fills an absent index (both ids: 16 bytes); False where it is not absent."""
        ...

    async def renew_build(self, index_id: bytes, builder: bytes, lease_seconds: float) -> bool:
        """Stay the builder; False where the lease ended or another one builds."""
        ...

    async def finish_build(self, index_id: bytes, builder: bytes) -> bool:
        """Declare the index complete; False where this builder's lease had ended."""
        ...

    async def close(self) -> None:
        """Close all connections."""
        ...
