"""Prefix index with a breaker: while the server is dead a call costs nothing and answers *not available*.

No retries: a lookup that is late is worth less than an *unknown* in time, and writes are repeated from their queue.
Threading: one event loop.
"""

from collections.abc import Sequence

from blockyard.core.stored_key import StoredKey
from blockyard.core.vocabulary import IdentityDigest, PackId
from blockyard.runtime.telemetry import Operation
from blockyard.tiers.breaker import Breaker
from blockyard.tiers.index_value import Locator
from blockyard.tiers.prefix_index import IndexAnswer, IndexMeta, PrefixIndex
from blockyard_remote_tier.server_meter import ServerMeter


class GuardedIndex:
    """``PrefixIndex`` around another one."""

    def __init__(self, inner: PrefixIndex, breaker: Breaker, meter: ServerMeter) -> None:
        """Guard ``inner``, which is closed with this."""
        self._inner = inner
        self._breaker = breaker
        self._meter = meter

    async def find(self, identity: IdentityDigest, keys: Sequence[StoredKey]) -> IndexAnswer:
        """Look up ``keys`` in one round trip."""
        with self._breaker.attempt(), self._meter.call(Operation.FIND):
            return await self._inner.find(identity, keys)

    async def set_locators(self, identity: IdentityDigest, entries: Sequence[tuple[StoredKey, Locator]]) -> None:
        """Write locators; one that points into a longer pack stays."""
        with self._breaker.attempt(), self._meter.call(Operation.SET):
            await self._inner.set_locators(identity, entries)

    async def drop_locators(self, identity: IdentityDigest, pack: PackId, keys: Sequence[StoredKey]) -> int:
        """Clear those locators of ``keys`` that point into ``pack``; answers how many did."""
        with self._breaker.attempt(), self._meter.call(Operation.DROP):
            return await self._inner.drop_locators(identity, pack, keys)

    async def touch(self, identity: IdentityDigest, keys: Sequence[StoredKey]) -> None:
        """Note that these entries are in use; absent ones stay absent."""
        with self._breaker.attempt(), self._meter.call(Operation.TOUCH):
            await self._inner.touch(identity, keys)

    async def meta(self) -> IndexMeta:
        """State of the index."""
        with self._breaker.attempt(), self._meter.call(Operation.META):
            return await self._inner.meta()

    async def begin_build(self, index_id: bytes, builder: bytes, lease_seconds: float) -> bool:
        """Become the one who fills an absent index; False where it is not absent."""
        with self._breaker.attempt(), self._meter.call(Operation.BUILD):
            return await self._inner.begin_build(index_id, builder, lease_seconds)

    async def renew_build(self, index_id: bytes, builder: bytes, lease_seconds: float) -> bool:
        """Stay the builder; False where the lease ended or another one builds."""
        with self._breaker.attempt(), self._meter.call(Operation.BUILD):
            return await self._inner.renew_build(index_id, builder, lease_seconds)

    async def finish_build(self, index_id: bytes, builder: bytes) -> bool:
        """Declare the index complete; False where this builder's lease had ended."""
        with self._breaker.attempt(), self._meter.call(Operation.BUILD):
            return await self._inner.finish_build(index_id, builder)

    async def close(self) -> None:
        """Close all connections."""
        await self._inner.close()
