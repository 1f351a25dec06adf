"""Stores packs: verify the sources, one conditional put, then the locators.

::

    sources verified and copied --put if absent--> stored -------------------------------> locators --> ok
                                        '-- something is there: the same pack, sound --> adopt --^
                                                                wrong --> replace by etag --> stored
                                                                gone again --> put once more

The object is written before anything points to it. A put that got no answer is repeated as a whole: if it took effect
after all, the repetition finds its own pack and adopts it.
Threading: one event loop; sources are read, hashed and copied on the copy thread.
"""

import asyncio
import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, unique
from typing import Final

import numpy as np

from blockyard.core.clock import Clock
from blockyard.core.errors import BlockyardError, CorruptBlockError, ObjectNotFoundError, UnavailableError
from blockyard.core.vocabulary import BlockId, Epoch, ItemStatus, Tier
from blockyard.runtime.backoff import Backoff
from blockyard.runtime.job_executor import JobControl
from blockyard.runtime.telemetry import Metrics
from blockyard.tiers.arena import Arena
from blockyard.tiers.checksum import ByteArray, copy_and_hash
from blockyard.tiers.g4_packs import PACK_HEADER_BYTES, PackHeader, decode_pack_header, record_offset
from blockyard.tiers.header import HEADER_BYTES, NO_FILE, ChecksumKind, HeaderVerdict, SlotHeader, pack_header
from blockyard.tiers.index_value import Locator
from blockyard.tiers.object_store import ObjectStore, PutOutcome
from blockyard_remote_tier.arena_lease import CopyThread
from blockyard_remote_tier.failures import log_failure, status_of
from blockyard_remote_tier.index_writes import IndexWrites, SetLocators
from blockyard_remote_tier.job_items import PackItem, PackWork
from blockyard_remote_tier.pack_register import PackRegister

_PUT_ROUNDS: Final = 6
"""Rounds of put, look and replace before somebody else's writing is left alone."""
_FIRST_PAUSE_SECONDS: Final = 0.02
_LONGEST_PAUSE_SECONDS: Final = 0.5


@unique
class _Present(Enum):
    """What lies under the key of a pack that could not be put."""

    SAME = "same"
    WRONG = "wrong"
    GONE = "gone"


@dataclass(frozen=True, slots=True, kw_only=True)
class PutPlan:
    """What a put needs beside the pack itself."""

    prefix: str
    blocks_per_pack: int
    deadline: float
    """Time of the event loop at which the put is given up."""


class PackWriter:
    """Executes put jobs, pack by pack."""

    def __init__(
        self,
        store: ObjectStore,
        writes: IndexWrites,
        register: PackRegister,
        copies: CopyThread,
        *,
        metrics: Metrics,
        worker_epoch: Epoch,
        clock: Clock,
        verify: bool,
    ) -> None:
        """Write through these; ``verify`` compares payloads with their checksums."""
        self._metrics = metrics
        self._store = store
        self._writes = writes
        self._register = register
        self._copies = copies
        self._worker_epoch = worker_epoch
        self._clock = clock
        self._verify = verify

    async def put(
        self, arena: Arena, works: Sequence[PackWork], plan: PutPlan, control: JobControl
    ) -> list[ItemStatus]:
        """Store packs in order; after one that failed the others are skipped, since nobody could reach them."""
        status: list[ItemStatus] = []
        for work in works:
            if any(item is not ItemStatus.OK for item in status) or control.cancelled:
                status += [ItemStatus.SKIPPED] * len(work.items)
            else:
                status += await self._put_pack(arena, work, plan, control)
        return status

    async def _put_pack(self, arena: Arena, work: PackWork, plan: PutPlan, control: JobControl) -> list[ItemStatus]:
        header = self._header(work, plan)
        body = np.zeros(work.object_bytes, np.uint8)
        body[:PACK_HEADER_BYTES] = np.frombuffer(header.encode(), np.uint8)
        status = await self._copies.run(lambda: self._assemble(arena, work, body, control))
        if any(item is not ItemStatus.OK for item in status):
            return [ItemStatus.SKIPPED if item is ItemStatus.OK else item for item in status]
        try:
            async with asyncio.timeout_at(plan.deadline):
                await self._store_object(work.address.key(plan.prefix), body, header)
        except TimeoutError:
            return [ItemStatus.TIMEOUT] * len(status)
        except BlockyardError as error:
            log_failure("pack not stored", work.pack, error)
            return [status_of(error)] * len(status)
        await self._announce(work, plan, control)
        return status

    def _header(self, work: PackWork, plan: PutPlan) -> PackHeader:
        return PackHeader(
            identity=work.identity,
            first_position=work.first_position,
            keys=b"".join(item.key for item in work.items),
            group=work.group,
            blocks_per_pack=plan.blocks_per_pack,
            stride_bytes=work.stride_bytes,
            writer_epoch=self._worker_epoch,
            created_ms=self._clock.wall_ms(),
        )

    # --- sources (copy thread) ---------------------------------------------------------------------------------------
    def _assemble(self, arena: Arena, work: PackWork, body: ByteArray, control: JobControl) -> list[ItemStatus]:
        return [
            allowed
            if (allowed := control.may_issue(item.item)) is not ItemStatus.OK
            else self._copy_source(arena, work, item, body[record_offset(item.index, work.stride_bytes) :])
            for item in work.items
        ]

    def _copy_source(self, arena: Arena, work: PackWork, item: PackItem, record: ByteArray) -> ItemStatus:
        reading = arena.read(item.slot)
        if reading.generation != item.generation:
            return ItemStatus.STALE
        if reading.verdict is not HeaderVerdict.READY:
            return self._damaged() if reading.verdict.is_damaged else ItemStatus.STALE
        source = reading.header
        if source.identity != work.identity:
            return ItemStatus.IDENTITY_MISMATCH
        expected = (item.digest, item.position, work.group, work.payload_bytes, ChecksumKind.XXH3_128)
        if (source.digest, source.position, source.group, source.payload_bytes, source.checksum_kind) != expected:
            return ItemStatus.STALE
        payload = record[HEADER_BYTES : HEADER_BYTES + source.payload_bytes]
        checksum = copy_and_hash(payload, arena.payload(item.slot, source.payload_bytes))
        if not arena.is_current(item.slot, item.generation):
            return ItemStatus.STALE
        if self._verify and checksum != source.checksum:
            return self._damaged()
        self._metrics.checksum_checks.labels(Tier.G2.label).inc()
        record[:HEADER_BYTES] = np.frombuffer(pack_header(self._record_header(source, work, item)), np.uint8)
        return ItemStatus.OK

    def _damaged(self) -> ItemStatus:
        self._metrics.checksum_checks.labels(Tier.G2.label).inc()
        self._metrics.checksum_failures.labels(Tier.G2.label).inc()
        return ItemStatus.CORRUPT

    def _record_header(self, source: SlotHeader, work: PackWork, item: PackItem) -> SlotHeader:
        return dataclasses.replace(
            source,
            slot=BlockId(item.index),
            file_id=NO_FILE,
            worker_epoch=self._worker_epoch,
            job_seq=work.job_seq,
        )

    # --- object ------------------------------------------------------------------------------------------------------
    async def _store_object(self, key: str, body: ByteArray, header: PackHeader) -> None:
        backoff = Backoff(_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS)
        for _ in range(_PUT_ROUNDS):
            if await self._store.put_if_absent(key, body.data) is PutOutcome.STORED:
                return
            present, etag = await self._look(key, header)
            if present is _Present.SAME:
                return
            if present is _Present.WRONG and await self._store.replace(key, body.data, etag) is PutOutcome.STORED:
                return
            # Another writer is at work on the same key: most likely it is about to finish what we would adopt.
            await asyncio.sleep(backoff.next_seconds())
        raise UnavailableError("somebody else keeps writing the object", key=key)

    async def _look(self, key: str, header: PackHeader) -> tuple[_Present, str]:
        try:
            found = await self._store.get_range(key, 0, PACK_HEADER_BYTES)
            same = decode_pack_header(found.data).same_run(header)
        except ObjectNotFoundError:
            return _Present.GONE, ""
        except CorruptBlockError:
            same = False
        # A pack that was read and found damaged has a good header all the same.
        sound = found.facts.object_bytes == header.object_bytes and not self._register.is_damaged(header.pack)
        return _Present.SAME if same and sound else _Present.WRONG, found.facts.etag

    async def _announce(self, work: PackWork, plan: PutPlan, control: JobControl) -> None:
        entries = tuple(
            (work.stored_key(item), Locator(work.pack, item.index, work.blocks, work.stride_bytes))
            for item in work.items
        )
        self._register.absolve(work.pack)
        self._register.learn(work.pack, (key for key, _ in entries))
        if not await self._writes.write(SetLocators(work.identity, entries), plan.deadline):
            control.index_is_pending()
