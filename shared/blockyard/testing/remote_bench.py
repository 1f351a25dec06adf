"""A small node around a remote tier under test: an arena with blocks of known bytes, and jobs to store and load them.

The bench plays offload-worker (fills slots) and block-manager (grants slots, makes jobs). Payloads follow from
group and digest of their block (``job_payload``), so whatever comes back can be judged without remembering what was
stored.
Threading: one event loop.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from blockyard.core.chain_run import ChainRun
from blockyard.core.pack_plan import PackGeometry
from blockyard.core.stored_key import stored_key
from blockyard.core.vocabulary import (
    Availability,
    BlockId,
    ChainDigest,
    Generation,
    GroupId,
    IdentityDigest,
    ItemStatus,
    JobKind,
    Lane,
    PackId,
    TenantDigest,
)
from blockyard.runtime.job_executor import JobExecutor
from blockyard.testing.worker_jobs import TEST_IDENTITY, TEST_TENANT, Move, ScriptedControl, job_payload, transfer_job
from blockyard.tiers.arena import Arena
from blockyard.tiers.checksum import ByteArray, payload_checksum
from blockyard.tiers.g4_packs import PackAddress
from blockyard.tiers.header import HeaderVerdict, SlotHeader
from blockyard.tiers.index_value import Locator, decode_wire_locators
from blockyard.wire.codec import PROTOCOL_VERSION
from blockyard.wire.worker_channel import Attach, Find, Job, Pack

PAYLOAD_BYTES = 4_000
"""Not a multiple of the record unit, so padding is part of every test."""
GEOMETRY = PackGeometry(PAYLOAD_BYTES, 4 * 4_352)
"""Four blocks per pack."""


@dataclass(slots=True)
class PackControl(ScriptedControl):
    """A permission that remembers whether the index was said to be pending."""

    pending: bool = False

    def index_is_pending(self) -> None:
        """Remember it."""
        self.pending = True


@dataclass(frozen=True, slots=True)
class JobAnswer:
    """What came of a job."""

    status: list[ItemStatus]
    pending: bool

    @property
    def all_ok(self) -> bool:
        """True where every item arrived."""
        return all(status is ItemStatus.OK for status in self.status)


@dataclass(frozen=True, slots=True)
class Lookup:
    """Answer to a lookup."""

    availability: list[Availability]
    locators: list[Locator | None]


class RemoteBench:
    """Arena and jobs for one executor; close it at the end."""

    def __init__(self, executor: JobExecutor, *, slots: int = 32, identity: IdentityDigest = TEST_IDENTITY) -> None:
        """Make an empty arena; ``attach`` hands it over."""
        self.arena = Arena.create(slots, PAYLOAD_BYTES)
        self.identity = identity
        self.tenant: TenantDigest = TEST_TENANT
        self.group = GroupId(0)
        """KV group of what is filled, asked for and moved from now on."""
        self._executor = executor
        self._seq = 0

    async def attach(self) -> None:
        """Hand the arena to the executor."""
        attach = Attach(version=PROTOCOL_VERSION, instance="bench", epoch=7, arena=self.arena.info())
        await self._executor.attach(attach, os.dup(self.arena.fd))

    def close(self) -> None:
        """Give up the arena."""
        self.arena.close()

    # --- slots -------------------------------------------------------------------------------------------------------
    def fill(self, run: ChainRun, first_slot: int = 0) -> None:
        """Write the blocks of ``run`` into slots, as an offload-worker does."""
        for index in range(len(run)):
            slot = first_slot + index
            generation = Generation(self.arena.generation(slot) + 1)
            payload = self._payload(run, index)
            self.arena.begin_write(slot, generation)[:] = payload
            self.arena.publish(
                SlotHeader(
                    generation=generation,
                    identity=self.identity,
                    digest=run.digest(index),
                    parent=run.parent_of(index),
                    position=run.first_position + index,
                    payload_bytes=PAYLOAD_BYTES,
                    checksum=payload_checksum(payload.data),
                    slot=BlockId(slot),
                    file_id=self.arena.arena_id,
                    tenant=self.tenant,
                    group=self.group,
                )
            )

    def holds(self, run: ChainRun, first_slot: int = 0) -> list[bool]:
        """Per block: its slot is READY under its name and has its bytes."""
        return [self._holds(run, index, first_slot + index) for index in range(len(run))]

    def _holds(self, run: ChainRun, index: int, slot: int) -> bool:
        reading = self.arena.read(slot)
        if reading.verdict is not HeaderVerdict.READY:
            return False
        if (reading.header.digest, reading.header.group) != (run.digest(index), self.group):
            return False
        return bytes(self.arena.payload(slot)) == bytes(self._payload(run, index))

    def _payload(self, run: ChainRun, index: int) -> ByteArray:
        digest = run.digest(index)
        return job_payload(ChainDigest(bytes([digest[0] ^ self.group]) + digest[1:]), PAYLOAD_BYTES)

    # --- jobs --------------------------------------------------------------------------------------------------------
    def put_job(self, run: ChainRun, first_slot: int = 0) -> Job:
        """A job that stores a run which starts at a pack boundary."""
        moves = [
            Move(run.digest(index), source=first_slot + index, source_mark=self.arena.generation(first_slot + index))
            for index in range(len(run))
        ]
        packs = []
        for start in range(0, len(run), GEOMETRY.blocks_per_pack):
            part = run.slice(start, start + GEOMETRY.blocks_per_pack)
            pack = stored_key(part.key(len(part) - 1), self.group)
            packs.append(_pack(pack, start, len(part), part.first_position, len(part)))
        return self._job(JobKind.G4_PUT, run, moves, packs)

    def get_job(self, run: ChainRun, locators: Sequence[Locator | None], first_slot: int = 0) -> Job:
        """A job that loads the blocks of ``run`` from where ``locators`` say, into slots granted anew."""
        moves, packs = [], list[Pack]()
        for index, locator in enumerate(locators):
            if locator is None:
                raise ValueError("the bench loads only what was found")
            slot = first_slot + index
            moves.append(Move(run.digest(index), locator.index, 0, slot, self.arena.generation(slot) + 1))
            if packs and packs[-1].pack == locator.pack:
                packs[-1] = msgspec.structs.replace(packs[-1], count=packs[-1].count + 1)
            else:
                first_position = run.first_position + index - locator.index
                packs.append(_pack(locator.pack, index, 1, first_position, locator.blocks))
        return self._job(JobKind.G4_GET, run, moves, packs)

    async def run(self, job: Job, control: PackControl | None = None) -> JobAnswer:
        """Execute a job."""
        asked = control or PackControl(job)
        status = await self._executor.run(job, asked)
        return JobAnswer(list(status), asked.pending)

    async def put(self, run: ChainRun, first_slot: int = 0) -> JobAnswer:
        """Fill slots with a run and store it."""
        self.fill(run, first_slot)
        return await self.run(self.put_job(run, first_slot))

    async def find(self, run: ChainRun) -> Lookup:
        """Look up all blocks of a run."""
        found = await self._executor.find(Find(identity=self.identity, group=self.group, keys=b"".join(run.keys())))
        return Lookup([Availability(value) for value in found.availability], decode_wire_locators(found.locators))

    async def load(self, run: ChainRun, first_slot: int = 0) -> JobAnswer:
        """Look a run up and load it into slots granted anew; all of it must be found."""
        found = await self.find(run)
        return await self.run(self.get_job(run, found.locators, first_slot))

    def key(self, pack: PackId | bytes, prefix: str = "kv") -> str:
        """Object key of a pack."""
        return PackAddress.of(self.tenant, 0, self.identity, pack).key(prefix)

    def _job(self, kind: JobKind, run: ChainRun, moves: Sequence[Move], packs: Sequence[Pack]) -> Job:
        self._seq += 1
        job = transfer_job(kind, moves, payload_bytes=PAYLOAD_BYTES, seq=self._seq, identity=self.identity)
        names = range(len(run))
        items = msgspec.structs.replace(
            job.items,
            parents=b"".join(run.parent_of(index) for index in names),
            positions=np.fromiter((run.first_position + index for index in names), "<u4").tobytes(),
        )
        lane = Lane.STORE if kind is JobKind.G4_PUT else Lane.LOAD
        return msgspec.structs.replace(
            job, items=items, packs=tuple(packs), lane=lane, tenant=self.tenant, group=self.group
        )


def _pack(pack: bytes, first_item: int, count: int, first_position: int, blocks: int) -> Pack:
    return Pack(
        pack=pack,
        first_item=first_item,
        count=count,
        first_position=first_position,
        blocks=blocks,
        stride_bytes=GEOMETRY.stride_bytes,
    )
