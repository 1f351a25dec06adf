"""A prefix index in memory, with the faults of a real server: away, silent, emptied, expired.

Threading: one event loop.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from blockyard.core.clock import Clock
from blockyard.core.errors import UnavailableError
from blockyard.core.stored_key import StoredKey
from blockyard.core.vocabulary import IdentityDigest, PackId
from blockyard.tiers.index_value import Locator
from blockyard.tiers.prefix_index import IndexAnswer, IndexMeta, IndexState

_Key = tuple[bytes, StoredKey]


@dataclass(slots=True)
class _Entry:
    locator: Locator
    expires: float


class MemoryIndex:
    """Implements ``PrefixIndex``."""

    def __init__(self, clock: Clock, entry_ttl_seconds: float = 86_400) -> None:
        """Start empty: without meta."""
        self.down = False
        """While set, every call fails."""
        self.gate = asyncio.Event()
        """While cleared, calls that arrive wait for it."""
        self.gate.set()
        self.calls: list[str] = []
        self._clock = clock
        self._ttl_seconds = entry_ttl_seconds
        self._entries: dict[_Key, _Entry] = {}
        self._meta = IndexMeta(IndexState.ABSENT)
        self._builder = b""
        self._lease_end = 0.0

    # --- faults -----------------------------------------------------------------------------------------------------
    def lose_everything(self) -> None:
        """The server restarted empty."""
        self._entries.clear()
        self._meta = IndexMeta(IndexState.ABSENT)

    def force_meta(self, meta: IndexMeta) -> None:
        """Somebody else wrote the state of the index."""
        self._meta = meta
        self._lease_end = float("inf")

    def __len__(self) -> int:
        """Entries that have not expired."""
        return sum(entry.expires > self._clock.monotonic() for entry in self._entries.values())

    # --- PrefixIndex ------------------------------------------------------------------------------------------------
    async def find(self, identity: IdentityDigest, keys: Sequence[StoredKey]) -> IndexAnswer:
        """Look up ``keys`` in one round trip."""
        await self._arrive("find")
        entries = (self._live(identity, key) for key in keys)
        return IndexAnswer(tuple(entry.locator if entry else None for entry in entries), self._current_meta())

    async def set_locators(self, identity: IdentityDigest, entries: Sequence[tuple[StoredKey, Locator]]) -> None:
        """Write locators; one that points into a longer pack stays."""
        await self._arrive("set_locators")
        for key, locator in entries:
            held = self._live(identity, key)
            kept = held.locator if held is not None and held.locator.blocks > locator.blocks else locator
            self._entries[_key(identity, key)] = _Entry(kept, self._clock.monotonic() + self._ttl_seconds)

    async def drop_locators(self, identity: IdentityDigest, pack: PackId, keys: Sequence[StoredKey]) -> int:
        """Clear those locators of ``keys`` that point into ``pack``; answers how many did."""
        await self._arrive("drop_locators")
        held = [key for key in keys if (entry := self._live(identity, key)) and entry.locator.pack == pack]
        for key in held:
            del self._entries[_key(identity, key)]
        return len(held)

    async def touch(self, identity: IdentityDigest, keys: Sequence[StoredKey]) -> None:
        """Note that these entries are in use; absent ones stay absent."""
        await self._arrive("touch")
        for key in keys:
            if (entry := self._live(identity, key)) is not None:
                entry.expires = self._clock.monotonic() + self._ttl_seconds

    async def meta(self) -> IndexMeta:
        """State of the index."""
        await self._arrive("meta")
        return self._current_meta()

    async def begin_build(self, index_id: bytes, builder: bytes, lease_seconds: float) -> bool:
        """Become the one who fills an absent index; False where it is not absent."""
        await self._arrive("begin_build")
        if self._current_meta().state is not IndexState.ABSENT:
            return False
        self._meta = IndexMeta(IndexState.BUILDING, index_id)
        self._builder = builder
        self._lease_end = self._clock.monotonic() + lease_seconds
        return True

    async def renew_build(self, index_id: bytes, builder: bytes, lease_seconds: float) -> bool:
        """Stay the builder; False where the lease ended or another one builds."""
        await self._arrive("renew_build")
        if not self._builds(index_id, builder):
            return False
        self._lease_end = self._clock.monotonic() + lease_seconds
        return True

    async def finish_build(self, index_id: bytes, builder: bytes) -> bool:
        """Declare the index complete; False where this builder's lease had ended."""
        await self._arrive("finish_build")
        if not self._builds(index_id, builder):
            return False
        self._meta = IndexMeta(IndexState.READY, index_id)
        return True

    async def close(self) -> None:
        """Nothing to close."""
        self.calls.append("close")

    # --- inside -----------------------------------------------------------------------------------------------------
    async def _arrive(self, verb: str) -> None:
        self.calls.append(verb)
        await self.gate.wait()
        if self.down:
            raise UnavailableError("the index is away", server="memory")

    def _live(self, identity: IdentityDigest, key: StoredKey) -> _Entry | None:
        entry = self._entries.get(_key(identity, key))
        return entry if entry is not None and entry.expires > self._clock.monotonic() else None

    def _current_meta(self) -> IndexMeta:
        if self._meta.state is IndexState.BUILDING and self._lease_end <= self._clock.monotonic():
            self._meta = IndexMeta(IndexState.ABSENT)
        return self._meta

    def _builds(self, index_id: bytes, builder: bytes) -> bool:
        return self._current_meta() == IndexMeta(IndexState.BUILDING, index_id) and self._builder == builder


def _key(identity: IdentityDigest, key: StoredKey) -> _Key:
    return identity[:8], key
