"""Fills an empty prefix index from the objects themselves.

Only the first 4 KiB of each object are read. What does not parse, or lies under a key other than its own, is counted
and left alone. The order of writes does not matter: the locator of a longer pack always wins.
Threading: one event loop.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from enum import Enum, unique
from typing import Final

from blockyard.core.errors import CorruptBlockError, ForeignFileError, ObjectNotFoundError, UnavailableError
from blockyard.tiers.bucket_admin import BucketAdmin, ListedObject
from blockyard.tiers.g4_packs import (
    PACK_HEADER_BYTES,
    PackAddress,
    PackHeader,
    decode_pack_header,
    packs_prefix,
    parse_key,
)
from blockyard.tiers.index_value import Locator
from blockyard.tiers.object_store import ObjectStore
from blockyard.tiers.prefix_index import PrefixIndex

_BATCH_PACKS: Final = 64
LEASE_SECONDS: Final = 30.0


@unique
class _Skipped(Enum):
    FOREIGN = "foreign"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class RepairReport:
    """What a listing brought."""

    packs: int = 0
    blocks: int = 0
    foreign: int = 0
    """Objects that are no packs, or lie under a key that is not theirs."""


class IndexRepair:
    """Rebuilds the index of one store."""

    def __init__(self, store: ObjectStore, admin: BucketAdmin, index: PrefixIndex, prefix: str) -> None:
        """Read packs below ``prefix`` of ``store``, write locators to ``index``."""
        self._store = store
        self._admin = admin
        self._index = index
        self._prefix = prefix

    async def run(self, index_id: bytes, builder: bytes) -> RepairReport:
        """Write the locators of all packs, renewing the builder's lease on the way.

        Raises:
            UnavailableError: store or index did not answer, or the lease was lost; the index stays incomplete.
        """
        report = RepairReport()
        async with aclosing(self._batches()) as batches:
            async for batch in batches:
                if not await self._index.renew_build(index_id, builder, LEASE_SECONDS):
                    raise UnavailableError("the lease for building the index was lost")
                headers = await self._headers(batch)
                found = [header for header in headers if isinstance(header, PackHeader)]
                for header in found:
                    await self._write(header)
                report = RepairReport(
                    report.packs + len(found),
                    report.blocks + sum(header.blocks for header in found),
                    report.foreign + headers.count(_Skipped.FOREIGN),
                )
        return report

    async def _batches(self) -> AsyncGenerator[list[ListedObject], None]:
        batch: list[ListedObject] = []
        async with aclosing(self._admin.list_objects(packs_prefix(self._prefix))) as listing:
            async for entry in listing:
                batch.append(entry)
                if len(batch) == _BATCH_PACKS:
                    yield batch
                    batch = []
        if batch:
            yield batch

    async def _headers(self, batch: Sequence[ListedObject]) -> list[PackHeader | _Skipped]:
        headers: list[PackHeader | _Skipped] = []
        # Where one fails the others end, too, before this returns: no request outlives the repair.
        for answer in await asyncio.gather(*(self._header(entry) for entry in batch), return_exceptions=True):
            if isinstance(answer, BaseException):
                raise answer
            headers.append(answer)
        return headers

    async def _header(self, entry: ListedObject) -> PackHeader | _Skipped:
        try:
            address = parse_key(self._prefix, entry.key)
            found = await self._store.get_range(entry.key, 0, PACK_HEADER_BYTES)
            header = decode_pack_header(found.data)
        except ObjectNotFoundError:
            return _Skipped.GONE
        except (ForeignFileError, CorruptBlockError):
            return _Skipped.FOREIGN
        own = PackAddress.of(address.tenant, address.purge_epoch, header.identity, header.pack)
        return header if own == address and entry.object_bytes == header.object_bytes else _Skipped.FOREIGN

    async def _write(self, header: PackHeader) -> None:
        locators = (Locator(header.pack, index, header.blocks, header.stride_bytes) for index in range(header.blocks))
        await self._index.set_locators(header.identity, tuple(zip(header.stored_keys(), locators, strict=True)))
