"""Workers in one process and one thread: they keep the rules of the job protocol and move bytes between values.

The ledger is the real one; a test decides when a job starts, when it ends, and what goes wrong with an item. A started
job has issued its I/O: sources are read, destinations are WRITING, and the bytes land when the job ends, whatever has
happened meanwhile. A write that must never happen is noted in ``violations``. Used to prove the decisions of a
block-manager without processes, sockets or time.
Threading: one thread; nothing happens by itself.
"""

from collections.abc import Callable
from functools import partial
from typing import Final

import numpy as np

from blockyard.core.clock import Clock
from blockyard.core.errors import RequestError
from blockyard.core.job_ledger import Admission, AttachKind, JobLedger, JobTicket
from blockyard.core.jobs import JobId, JobPhase, Refusal, destination_tier
from blockyard.core.kv_groups import NO_PAGE
from blockyard.core.vocabulary import (
    DIGEST_BYTES,
    KEY_BYTES,
    Epoch,
    Generation,
    GroupId,
    ItemStatus,
    JobKind,
    PackId,
    Tier,
    WorkerRole,
)
from blockyard.runtime.job_columns import check_job, ticket_of
from blockyard.testing.fake_slots import FakeEngineMemory, FakeSlot, FakeStore, FakeTier, parts_of
from blockyard.tiers.header import HeaderState
from blockyard.tiers.inventory_pages import InventoryPages
from blockyard.wire import worker_channel as channel

Ticket = JobTicket[channel.Job]
Landing = Callable[[], ItemStatus]
"""Last part of an item: its bytes land."""
Fault = Callable[[channel.Job, int], ItemStatus | None]
"""What goes wrong with an item of a job, before anything of it is touched; None: nothing."""


class FakeWorker:
    """One life of an offload-worker or remote-tier."""

    def __init__(
        self,
        role: WorkerRole,
        epoch: int,
        clock: Clock,
        tiers: dict[Tier, FakeTier],
        engines: dict[int, FakeEngineMemory],
        store: FakeStore,
    ) -> None:
        """Start unattached over these bytes, which outlive it."""
        self.role: Final = role
        self.epoch: Final = Epoch(epoch)
        self.tiers = tiers
        self.engines = engines
        self.store = store
        self.fault: Fault = lambda job, item: None
        self._clock = clock
        self._ledger: JobLedger[channel.Job] = JobLedger(self.epoch, clock)
        self.violations: list[str] = []
        """Writes that broke a rule: a test checks that there are none."""
        self.on_landing: Callable[[channel.Job, int, Generation], None] = lambda job, slot, generation: None
        """Told of each block right before its bytes land in a slot, and under which grant."""
        self._running: dict[JobId, tuple[Ticket, list[Landing]]] = {}

    # --- commands -----------------------------------------------------------------------------------------------------
    def attach(self, request: channel.Attach) -> channel.Attached:
        """Serve a block-manager from now on; running jobs of earlier lives are named."""
        kind = self._ledger.attach(request.instance, Epoch(request.epoch), incumbent_connected=False)
        if kind is AttachKind.TAKEOVER:
            self._ledger.drop_ended(Epoch(request.epoch))
        arena = self.tiers[Tier.G2]
        offload = self.role is WorkerRole.OFFLOAD_WORKER
        return channel.Attached(
            version=1,
            role=self.role,
            worker_epoch=self.epoch,
            mover="fake",
            arena=channel.ArenaInfo(arena=arena.name, slots=len(arena.slots), stride_bytes=4_096, bytes=0)
            if offload
            else None,
            slabs=(channel.SlabInfo(slab=bytes(16), slots=len(self.tiers[Tier.G3].slots), stride_bytes=4_096),)
            if offload and Tier.G3 in self.tiers
            else (),
            running=tuple(
                channel.RunningJob(
                    epoch=job.epoch,
                    seq=job.seq,
                    kind=self._running[job][0].kind,
                    destinations=self._running[job][0].payload.items.dst_index,
                )
                for job in self._ledger.running(below=Epoch(request.epoch))
            ),
        )

    def submit(self, request: channel.Submit) -> channel.Reply:
        """Take a job or say why not."""
        job = request.job
        answer = self._ledger.submit(ticket_of(job), request.settled_below, refusal=self._refusal(job))
        if isinstance(answer, Refusal):
            return channel.Refused(reason=answer)
        return channel.Busy(retry_ms=20) if answer is Admission.BUSY else channel.Accepted()

    def cancel(self, epoch: int, seq: int) -> channel.JobStates:
        """End a job as soon as no write of it can follow."""
        return _states(self._ledger.cancel(Epoch(epoch), [seq]))

    def poll(self, epoch: int, seq: int) -> channel.JobStates:
        """What became of a job."""
        return _states(self._ledger.poll(Epoch(epoch), [seq]))

    def ack(self, result: channel.JobResult, settled_below: int) -> None:
        """A result was received."""
        self._ledger.ack(Epoch(result.epoch), [result.seq], settled_below)

    def inventory(self, tier: Tier) -> InventoryPages:
        """Slots of a tier, without those that running jobs write."""
        pages = InventoryPages()
        busy: set[int] = set()
        for ticket, _ in self._running.values():
            if destination_tier(ticket.kind, ticket.payload.free_tier) is tier:
                busy.update(_u32(ticket.payload.items.dst_index))
        pages.add(self.tiers[tier].records(frozenset(busy)))
        return pages

    # --- execution ----------------------------------------------------------------------------------------------------
    @property
    def queued(self) -> int:
        """Jobs that were not started."""
        return self._ledger.queued

    @property
    def remembered(self) -> int:
        """Jobs and bare ids in memory."""
        return self._ledger.remembered

    @property
    def running(self) -> tuple[JobId, ...]:
        """Jobs that were started and not ended."""
        return tuple(self._running)

    def kind(self, job: JobId) -> JobKind:
        """Kind of a job that was started and has not ended."""
        return self._running[job][0].kind

    def start(self) -> JobId | None:
        """Start the next job: what its items may issue is issued."""
        ticket = self._ledger.start()
        if ticket is None:
            return None
        self._running[ticket.job] = (ticket, [self._issue(ticket, item) for item in range(ticket.items)])
        return ticket.job

    def finish(self, job: JobId) -> None:
        """Everything that a started job issued lands, and it ends."""
        _, landings = self._running.pop(job)
        self._ledger.finish(job, bytes(land() for land in landings))

    def work(self) -> int:
        """Start and end everything; returns how many jobs that were."""
        done = 0
        while self.start() is not None:
            pass
        for job in self.running:
            self.finish(job)
            done += 1
        return done

    def results(self, *, everything: bool = False) -> list[channel.JobResult]:
        """Results to push now: each once, or again where ``everything`` is asked."""
        return [
            channel.JobResult(
                epoch=outcome.job.epoch,
                seq=outcome.job.seq,
                worker_epoch=self.epoch,
                end=outcome.end,
                status=outcome.status,
            )
            for outcome in self._ledger.results_due(self._clock.monotonic(), everything=everything)
        ]

    # --- inside -------------------------------------------------------------------------------------------------------
    def _refusal(self, job: channel.Job) -> Refusal | None:
        try:
            check_job(job)
        except RequestError:
            return Refusal.BAD_REQUEST
        mapped = job.kind not in (JobKind.G1_G2, JobKind.G2_G1) or job.mapping in self.engines
        return None if mapped else Refusal.NO_MAPPING

    def _issue(self, ticket: Ticket, item: int) -> Landing:
        job = ticket.payload
        tier = destination_tier(job.kind, job.free_tier)
        target = self.tiers[tier].slots[_u32(job.items.dst_index)[item]] if tier is not None else None
        granted = Generation(_u64(job.items.dst_generation)[item]) if target is not None else None
        header = Generation(target.generation) if target is not None else None
        status = self.fault(job, item)
        if status is None:
            status = self._ledger.may_issue(ticket.job, granted, header, self._clock.monotonic())
        if status is not ItemStatus.OK:
            return partial(_ended, status)
        if job.kind is JobKind.G2_G1:
            return partial(self._to_engine, job, item)
        if job.kind is JobKind.G4_PUT:
            return partial(self._to_store, job, item)
        if job.kind is JobKind.CHECK:
            return partial(self._check, job, item)
        if target is None or granted is None or tier is None:
            raise RequestError("not a job for a fake worker", kind=job.kind.name)
        if job.kind is JobKind.FREE:
            return partial(_free, target, granted, job.bad)
        if job.kind is JobKind.SEAL:
            return partial(self._seal, target, job, item, granted)
        payload = self._source(job, item)
        if isinstance(payload, ItemStatus):
            return partial(_ended, payload)
        if tier is Tier.G3 and target.state is HeaderState.READY:
            self.violations.append(f"slot {target} on disk is written under a READY header")
        target.state, target.generation = HeaderState.WRITING, granted
        return partial(self._land, target, job, item, granted, payload)

    def _land(self, slot: FakeSlot, job: channel.Job, item: int, granted: Generation, payload: bytes) -> ItemStatus:
        self.on_landing(job, _u32(job.items.dst_index)[item], granted)
        if (slot.state, slot.generation) != (HeaderState.WRITING, granted):
            self.violations.append(f"bytes of generation {granted} landed in {slot}")
        _write(slot, job, item, granted, payload)
        return ItemStatus.OK

    def _seal(self, slot: FakeSlot, job: channel.Job, item: int, granted: Generation) -> ItemStatus:
        if (slot.state, slot.generation) != (HeaderState.WRITING, granted):
            return ItemStatus.STALE
        return self._land(slot, job, item, granted, slot.payload)

    def _check(self, job: channel.Job, item: int) -> ItemStatus:
        slot = self.tiers[Tier.G2].slots[_u32(job.items.src_index)[item]]
        found = _read(slot, job, item, _u64(job.items.src_generation)[item])
        return found if isinstance(found, ItemStatus) else ItemStatus.OK

    def _source(self, job: channel.Job, item: int) -> bytes | ItemStatus:
        if job.kind is JobKind.G1_G2:
            engine = self.engines[job.mapping]
            pages = _row(job, item, job.items.src_index, job.items.src_generation)
            unchanged = all(engine.guards[page] == guard for page, guard in pages)
            return engine.row([page for page, _ in pages]) if unchanged else ItemStatus.SOURCE_CHANGED
        index = _u32(job.items.src_index)[item]
        if job.kind is JobKind.G4_GET:
            return self._from_store(job, item, index)
        mark = _u64(job.items.src_generation)[item]
        tier = Tier.G3 if job.kind is JobKind.G3_G2 else Tier.G2
        return _read(self.tiers[tier].slots[index], job, item, mark)

    def _to_engine(self, job: channel.Job, item: int) -> ItemStatus:
        slot = self.tiers[Tier.G2].slots[_u32(job.items.src_index)[item]]
        payload = _read(slot, job, item, _u64(job.items.src_generation)[item])
        if isinstance(payload, ItemStatus):
            return payload
        engine = self.engines[job.mapping]
        row = _row(job, item, job.items.dst_index, job.items.dst_generation)
        pages = [(page, guard, part) for (page, guard), part in zip(row, parts_of(payload, len(row)), strict=True)]
        wanted = [(page, guard, part) for page, guard, part in pages if page != NO_PAGE]
        if any(engine.guards[page] != guard for page, guard, _ in wanted):
            return ItemStatus.SKIPPED
        for page, _, part in wanted:
            engine.blocks[page] = part
            engine.written.append(page)
        return ItemStatus.OK

    def _to_store(self, job: channel.Job, item: int) -> ItemStatus:
        pack = next(pack for pack in job.packs if pack.first_item <= item < pack.first_item + pack.count)
        records: list[tuple[bytes, bytes]] = []
        for member in range(pack.first_item, pack.first_item + pack.count):
            slot = self.tiers[Tier.G2].slots[_u32(job.items.src_index)[member]]
            payload = _read(slot, job, member, _u64(job.items.src_generation)[member])
            if isinstance(payload, ItemStatus):
                return payload if member == item else ItemStatus.SKIPPED
            records.append((_digest(job, member), payload))
        self.store.put(PackId(pack.pack), GroupId(job.group), records)
        return ItemStatus.OK

    def _from_store(self, job: channel.Job, item: int, place: int) -> bytes | ItemStatus:
        pack = next(pack for pack in job.packs if pack.first_item <= item < pack.first_item + pack.count)
        record = self.store.read(PackId(pack.pack), place)
        if record is None:
            self.store.forget(PackId(pack.pack))
            return ItemStatus.NOT_FOUND
        digest, payload = record
        if self.store.groups[PackId(pack.pack)] != job.group:
            return ItemStatus.NOT_FOUND
        if digest != _digest(job, item):
            return ItemStatus.IDENTITY_MISMATCH
        if not payload.endswith(digest):
            self.store.forget(PackId(pack.pack))
            return ItemStatus.CORRUPT
        return payload


def _read(slot: FakeSlot, job: channel.Job, item: int, generation: int) -> bytes | ItemStatus:
    if slot.state is not HeaderState.READY or slot.generation != generation:
        return ItemStatus.STALE
    if (slot.digest, slot.identity, slot.group) != (_digest(job, item), job.identity, job.group):
        return ItemStatus.IDENTITY_MISMATCH
    return slot.payload if slot.intact else ItemStatus.CORRUPT


def _write(slot: FakeSlot, job: channel.Job, item: int, generation: Generation, payload: bytes) -> None:
    slot.state = HeaderState.READY
    slot.generation = generation
    slot.digest = _digest(job, item)
    slot.parent = job.items.parents[item * KEY_BYTES : (item + 1) * KEY_BYTES]
    slot.position = _u32(job.items.positions)[item]
    slot.identity, slot.tenant, slot.group = job.identity, job.tenant, job.group
    slot.payload = slot.checksum = payload


def _ended(status: ItemStatus) -> ItemStatus:
    return status


def _free(slot: FakeSlot, generation: Generation, bad: bool) -> ItemStatus:
    if slot.generation != generation:
        return ItemStatus.SKIPPED
    slot.state = HeaderState.BAD if bad else HeaderState.FREE
    return ItemStatus.OK


def _row(job: channel.Job, item: int, indexes: bytes, guards: bytes) -> list[tuple[int, int]]:
    """Pages of an item in engine memory, each with its guard."""
    pages = list(zip(_u32(indexes), _u64(guards), strict=True))
    count = len(pages) // job.items.count
    return pages[item * count : (item + 1) * count]


def _digest(job: channel.Job, item: int) -> bytes:
    return job.items.digests[item * DIGEST_BYTES : (item + 1) * DIGEST_BYTES]


def _u32(column: bytes) -> list[int]:
    values: list[int] = np.frombuffer(column, dtype="<u4").tolist()
    return values


def _u64(column: bytes) -> list[int]:
    values: list[int] = np.frombuffer(column, dtype="<u8").tolist()
    return values


def _states(states: list[tuple[JobId, JobPhase]]) -> channel.JobStates:
    return channel.JobStates(
        states=tuple(channel.JobState(epoch=job.epoch, seq=job.seq, state=phase) for job, phase in states)
    )
