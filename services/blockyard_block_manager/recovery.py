"""Who may be trusted when: attach of the workers, what they inherited, and the comparison of tables with headers.

::

    AWAY ──attached──► LISTING ──inventory of G3 and G2 compared──► READY ──channel ended──► AWAY
                          └── same life of the worker as listed before: READY at once

The headers are the truth: after a restart of the block-manager they fill the tables, after a restart of the worker
they correct them. Slots that a job of an earlier life may still write are kept out of circulation until that job has
ended and the slots were listed again; all others are granted meanwhile, however long such a job takes.
Invariants: nothing is granted before every process that can write the arena is attached, or proven dead by its free
lock; absent blocks are a miss only while the tables are complete and the worker is there.
Threading: owned by the event loop of the service. No await.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum, unique

import numpy as np

from blockyard.core.errors import KernelError, MalformedFrameError
from blockyard.core.handles import DoomedBlocks
from blockyard.core.jobs import JobId, destination_tier
from blockyard.core.vocabulary import Epoch, JobKind, JobSeq, Tier, WorkerRole
from blockyard.tiers.inventory_pages import InventoryPages
from blockyard.wire.worker_channel import ArenaInfo, Attached, RunningJob
from blockyard_block_manager.inventory_match import Listing, QuarantinedSlots, TierMatch
from blockyard_block_manager.job_desk import JobDesk
from blockyard_block_manager.node_profile import NodeProfile
from blockyard_block_manager.node_tables import LOCAL_TIERS, NodeTables
from blockyard_block_manager.slot_freer import SlotFreer


class TiersResizedError(KernelError):
    """The offload-worker came back with tiers of other sizes: only a new life of the block-manager takes that over."""

    code = "tiers-resized"
    title = "The tiers changed their sizes"
    remedy = "Nothing to do: the block-manager starts again and takes the new sizes."


@unique
class WorkerPhase(Enum):
    """Where the relation to a worker stands."""

    AWAY = "away"
    LISTING = "listing"
    """Attached; its inventory is not compared yet."""
    READY = "ready"


@dataclass(slots=True)
class _Worker:
    phase: WorkerPhase = WorkerPhase.AWAY
    epoch: Epoch | None = None
    mover: str = ""
    quarantine: dict[JobId, list[QuarantinedSlots]] = field(default_factory=dict)
    engine_writes: set[JobId] = field(default_factory=set)
    """Jobs of earlier lives that may still write engine memory."""
    arena_writes: set[JobId] = field(default_factory=set)
    """Jobs of earlier lives that may still write slots which somebody holds, so that they cannot be kept apart."""


class Recovery:
    """Phases of both workers, and what follows from them."""

    def __init__(self, profile: NodeProfile, tables: NodeTables, desk: JobDesk, freer: SlotFreer) -> None:
        """Fill and correct ``tables``."""
        self._profile = profile
        self._tables = tables
        self._desk = desk
        self._freer = freer
        self._workers = {role: _Worker() for role in WorkerRole}
        self._arena: ArenaInfo | None = None
        self._listed_epoch: Epoch | None = None
        self._first_worker_clean = False
        """The life of the offload-worker that attaches first has nothing of an earlier life of ours."""
        self._released: list[QuarantinedSlots] = []
        # One that was left running when G4 was turned off is never attached, and may still write the arena.
        self._remote_excused = not (profile.g4_enabled or profile.remote_runs)
        self._arena_unsure = False
        """A writer of an earlier life of ours was at work after the headers of the arena were listed."""
        self._engine_writers = False
        desk.on_inherited_ended = self._inherited_ended

    # --- state --------------------------------------------------------------------------------------------------------
    def phase(self, role: WorkerRole) -> WorkerPhase:
        """Where the relation to a worker stands."""
        return self._workers[role].phase

    def epoch(self, role: WorkerRole) -> Epoch | None:
        """Life of a worker that answered last; None before the first answer."""
        return self._workers[role].epoch

    def mover(self, role: WorkerRole) -> str:
        """Name of the mover that a worker told."""
        return self._workers[role].mover

    @property
    def arena(self) -> ArenaInfo | None:
        """The arena in use."""
        return self._arena

    @property
    def needs_listing(self) -> bool:
        """Whether to ask for the inventory.

        The worker has a new life, slots have come out of quarantine, or a writer of an earlier life has ended that
        was at work after the last listing.
        """
        worker, remote = self._workers[WorkerRole.OFFLOAD_WORKER], self._workers[WorkerRole.REMOTE_TIER]
        unsure = self._arena_unsure and not remote.arena_writes
        return worker.phase is not WorkerPhase.AWAY and (
            worker.epoch != self._listed_epoch or bool(self._released) or unsure
        )

    @property
    def engine_writes_settled(self) -> bool:
        """Whether no job of an earlier life can write engine memory any more."""
        worker = self._workers[WorkerRole.OFFLOAD_WORKER]
        return (worker.epoch is not None or self._first_worker_clean) and not worker.engine_writes

    @property
    def inherited_engine_writes(self) -> frozenset[JobId]:
        """Jobs of earlier lives that may still write engine memory, as far as the offload-worker has named them."""
        return frozenset(self._workers[WorkerRole.OFFLOAD_WORKER].engine_writes)

    @property
    def waits_for_remote(self) -> bool:
        """Whether nothing is granted because of what the remote tier may still write."""
        return not self._remote_excused or self._arena_unsure

    # --- attach -------------------------------------------------------------------------------------------------------
    def attached(self, role: WorkerRole, answer: Attached) -> bool:
        """A worker answered attach.

        Returns:
            Whether the arena was replaced, so that everybody who maps it has to be attached again.

        Raises:
            NotReadyError: an earlier life of the worker answered.
            TiersResizedError: its tiers have other sizes than this life of the block-manager knows.
        """
        worker = self._workers[role]
        self._desk.worker_attached(role, Epoch(answer.worker_epoch), [_id(job) for job in answer.running])
        worker.epoch = Epoch(answer.worker_epoch)
        worker.mover = answer.mover
        if role is WorkerRole.REMOTE_TIER:
            self._remote_attached(worker, answer.running)
            replaced = False
        else:
            replaced = self._take_geometry(answer)
            for job in answer.running:
                self._quarantine(worker, job)
            worker.phase = WorkerPhase.READY if worker.epoch == self._listed_epoch else WorkerPhase.LISTING
        self._set_gates()
        return replaced

    def disconnected(self, role: WorkerRole) -> None:
        """The channel to a worker ended: what it holds is unknown until it answers again."""
        self._workers[role].phase = WorkerPhase.AWAY
        self._set_gates()
        self._desk.worker_disconnected(role)

    def remote_proven_dead(self) -> None:
        """Nobody holds the lock of the remote tier: all it had under way is over, and its next life starts clean."""
        worker = self._workers[WorkerRole.REMOTE_TIER]
        if worker.phase is not WorkerPhase.AWAY:
            return
        self._desk.worker_dead(WorkerRole.REMOTE_TIER, worker.epoch)
        if not self._remote_excused:
            self._remote_excused = self._arena_unsure = True
        self._set_gates()

    def offload_proven_dead(self) -> None:
        """The process of the offload-worker that attached last, or of whichever was there before ours, is gone.

        No last hop of it goes on, nor any write into engine memory. What it read from a disk may still arrive in the
        arena: that is settled when its next life has taken over the files.
        """
        worker = self._workers[WorkerRole.OFFLOAD_WORKER]
        if worker.phase is not WorkerPhase.AWAY:
            return
        self._first_worker_clean = True
        worker.engine_writes.clear()
        self._desk.process_dead(WorkerRole.OFFLOAD_WORKER, worker.epoch)

    def engine_writers(self, *, inherited: bool) -> None:
        """Whether ranks of engines may still write under grants of an earlier life of ours.

        What they wrote since the headers of the arena were listed is not known: they are listed again.
        """
        self._arena_unsure |= self._engine_writers and not inherited
        self._engine_writers = inherited
        self._set_gates()

    # --- inventory ----------------------------------------------------------------------------------------------------
    def begin_listing(self) -> Listing:
        """Note what the tables hold before the first page is asked for."""
        worker = self._workers[WorkerRole.OFFLOAD_WORKER]
        settles_arena = self._arena_unsure and not self._workers[WorkerRole.REMOTE_TIER].arena_writes
        new_life = worker.epoch != self._listed_epoch
        full = [
            tier for tier in LOCAL_TIERS if self._tables.has(tier) and (new_life or (settles_arena and tier is Tier.G2))
        ]
        released = {slots.tier for slots in self._released}
        return Listing(
            worker_epoch=worker.epoch,
            settles_arena=settles_arena,
            first=self._listed_epoch is None,
            tiers=tuple(tier for tier in LOCAL_TIERS if tier in full or tier in released),
            registered={tier: self._tables.pool(tier).registered_generations() for tier in full},
            quarantined=tuple(self._released),
        )

    def compare(self, listing: Listing, pages: Mapping[Tier, InventoryPages]) -> Iterator[None]:
        """Make the tables agree with the headers, one section per step; the worker counts as listed after the last.

        A full listing (new life of the worker) drops registered blocks without their header. Every listing registers
        READY headers in free slots and announces them; of two copies of a block in a tier the newer stays.
        """
        worker = self._workers[WorkerRole.OFFLOAD_WORKER]
        matches = [self._match(tier, listing, pages[tier]) for tier in listing.tiers]
        for match in matches:
            for doomed in match.steps():
                self._free(match.tier, doomed)
                yield
                if worker.epoch != listing.worker_epoch or worker.phase is WorkerPhase.AWAY:
                    return
        for match in matches:
            self._free(match.tier, match.decide())
        self._released = [item for item in self._released if item not in listing.quarantined]
        self._listed_epoch = worker.epoch
        self._arena_unsure = self._arena_unsure and not listing.settles_arena
        worker.phase = WorkerPhase.READY
        self._set_gates()

    def doom(self, tier: Tier) -> None:
        """The tier is cleared: what jobs of earlier lives bring into it is not kept either."""
        for item in self._quarantined():
            item.doomed |= item.tier is tier

    def close(self) -> None:
        """Let go of all slots in quarantine."""
        for item in self._quarantined():
            item.blocks.release()
        self._released.clear()
        for worker in self._workers.values():
            worker.quarantine.clear()

    # --- inside -------------------------------------------------------------------------------------------------------
    def _match(self, tier: Tier, listing: Listing, pages: InventoryPages) -> TierMatch:
        block_bytes, part_records = self._profile.block_bytes, self._profile.listing_part
        return TierMatch(self._tables, tier, listing, pages, block_bytes=block_bytes, part_records=part_records)

    def _free(self, tier: Tier, doomed: Iterable[DoomedBlocks]) -> None:
        for slots in doomed:
            self._freer.free(tier, slots, counted=True)

    def _take_geometry(self, answer: Attached) -> bool:
        slabs = sum(slab.slots for slab in answer.slabs) if self._profile.g3_enabled else 0
        arena, before = answer.arena, self._arena
        if arena is None:
            raise MalformedFrameError("the offload-worker hands over its arena")
        if slabs and not self._tables.has(Tier.G3):
            self._tables.open(Tier.G3, slabs)
        if before is None:
            self._tables.open(Tier.G2, arena.slots)
        known = self._tables.pool(Tier.G3).capacity if slabs else 0
        if slabs != known or (before is not None and arena.slots != before.slots):
            raise TiersResizedError(arena_slots=arena.slots, slab_slots=slabs)
        self._arena = arena
        if before is None or arena.arena == before.arena:
            return False
        # The old bytes are out of reach, and what jobs under way write lands in memory that nobody reads any more.
        self._tables.cut(Tier.G2)
        return True

    def _remote_attached(self, worker: _Worker, running: Iterable[RunningJob]) -> None:
        """From its answer on the remote tier issues nothing of an earlier life of ours but what is running."""
        worker.phase = WorkerPhase.READY
        for job in running:
            if not self._quarantine(worker, job):
                worker.arena_writes.add(_id(job))
        # Until this moment it may have written slots after their headers were listed.
        self._arena_unsure |= not self._remote_excused
        self._remote_excused = True

    def _quarantine(self, worker: _Worker, running: RunningJob) -> bool:
        """Keep what a job of an earlier life may write out of circulation; false where some of it is in use."""
        job = _id(running)
        if job.epoch >= self._profile.epoch or job in worker.quarantine:
            return True
        if running.kind is JobKind.G2_G1:
            worker.engine_writes.add(job)
        slots = {int(slot) for slot in np.frombuffer(running.destinations, dtype="<u4")}
        kept = worker.quarantine[job] = []
        whole = True
        for tier in _possible_tiers(running.kind):
            blocks = self._tables.quarantine(tier, slots) if self._tables.has(tier) else None
            if blocks is not None:
                kept.append(QuarantinedSlots(tier, blocks))
            whole &= len(slots) == (0 if blocks is None else len(blocks))
        return whole

    def _inherited_ended(self, job: JobId) -> None:
        for worker in self._workers.values():
            worker.engine_writes.discard(job)
            worker.arena_writes.discard(job)
            self._released.extend(worker.quarantine.pop(job, []))

    def _quarantined(self) -> list[QuarantinedSlots]:
        held = [item for worker in self._workers.values() for items in worker.quarantine.values() for item in items]
        return held + self._released

    def _set_gates(self) -> None:
        worker = self._workers[WorkerRole.OFFLOAD_WORKER]
        self._tables.serving = worker.phase is WorkerPhase.READY
        writers_known = self._remote_excused and not self._arena_unsure and not self._engine_writers
        self._tables.grants_open = self._tables.serving and writers_known


def _id(running: RunningJob) -> JobId:
    return JobId(Epoch(running.epoch), JobSeq(running.seq))


def _possible_tiers(kind: JobKind) -> Iterable[Tier]:
    """Tiers whose slots a running job may write; a FREE job does not say which, so it counts for both."""
    if kind is JobKind.FREE:
        return LOCAL_TIERS
    tier = destination_tier(kind)
    return () if tier is None else (tier,)
