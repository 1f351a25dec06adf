"""The object store as this process knows it: whether it is the right one, and whether it is there.

Invariants: once a store was opened its id does not change in this life; a store with another id, or without a marker,
is not there. Threading: one event loop.
"""

import asyncio

from blockyard.core.errors import (
    BlockyardError,
    ConfigurationError,
    ForeignFileError,
    NotReadyError,
    ObjectNotFoundError,
)
from blockyard.core.pack_plan import PackGeometry
from blockyard.tiers.bucket_admin import BucketAdmin
from blockyard.tiers.object_store import ObjectStore
from blockyard.tiers.store_marker import StoreMarker, open_marker, read_marker


class OpenStore:
    """Opens the store and tells what is known of it."""

    def __init__(self, store: ObjectStore, admin: BucketAdmin, prefix: str, target_bytes: int) -> None:
        """Nothing is sent before ``probe``."""
        self._store = store
        self._admin = admin
        self._target_bytes = target_bytes
        self._marker: StoreMarker | None = None
        self.prefix = prefix

    @property
    def marker(self) -> StoreMarker | None:
        """What the store says about itself; None before it answered the first time."""
        return self._marker

    async def probe(self) -> StoreMarker:
        """Ask the store for its marker; make bucket and marker where they are missing and were never seen.

        Raises:
            UnavailableError: no answer was had.
            ForeignFileError: it is not the store that was opened.
            ObjectNotFoundError: the bucket or the marker has vanished.
        """
        if self._marker is None:
            try:
                self._marker = await open_marker(self._store, self.prefix, self._target_bytes)
            except ObjectNotFoundError:
                await self._admin.ensure_bucket()
                self._marker = await open_marker(self._store, self.prefix, self._target_bytes)
            return self._marker
        found = await read_marker(self._store, self.prefix)
        if found != self._marker:
            raise ForeignFileError("another store lies under this prefix now", found=found.store_id.hex())
        return found

    async def is_there(self, deadline: float) -> bool:
        """True where the store answers now and is the one that was opened."""
        if self._marker is None:
            return False
        try:
            async with asyncio.timeout_at(deadline):
                await self.probe()
        except (TimeoutError, BlockyardError):
            return False
        return True

    def check_target(self) -> None:
        """Refuse to write packs that others would cut elsewhere.

        Raises:
            ConfigurationError: the store was made for packs of another size.
        """
        if self._marker is not None and self._marker.target_bytes != self._target_bytes:
            raise ConfigurationError(
                f"the store was made for packs of {self._marker.target_bytes} bytes: set this to that, "
                "or let g4.prefix name another store",
                key="g4.target_bytes",
            )

    def geometry(self, payload_bytes: int) -> PackGeometry:
        """How chains of such blocks are cut into packs in this store.

        Raises:
            NotReadyError: the store has not answered yet.
        """
        if self._marker is None:
            raise NotReadyError("the object store has not answered yet", server="s3")
        return PackGeometry(payload_bytes, self._marker.target_bytes)
