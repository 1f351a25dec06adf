"""Slots that ranks of engines write themselves: granted ahead, committed by shards, sealed by the worker, registered.

::

    ReserveStore ──► slots ──ranks copy──► CommitStore, all shards ──► SEAL job ──► registered like any store

Slots are granted ahead of need, so they wait like stores: what is free, and what G2 can give up without losing a block
that is still to be written to disk.
Invariants: an engine is granted slots only while all its ranks are attached to the arena of now, and a bounded share;
its grants end with its session, with any of its ranks, and with the arena (``core.store_grants`` says what then).
Threading: owned by the event loop of the service. No await.
"""

from collections.abc import Iterable, Sequence
from typing import Final, final

from blockyard.core.arena_writers import ArenaWriters, AttachmentId
from blockyard.core.block_name import BlockName
from blockyard.core.errors import RequestError
from blockyard.core.events import BlockScope
from blockyard.core.handles import MutableBlocks
from blockyard.core.store_grants import GrantedSlots, GrantId, StoreGrants
from blockyard.core.vocabulary import BlockId, Executor, JobKind, Lane, Tier, WorkerRole
from blockyard.wire.trace_parent import NO_TRACE, TraceParent
from blockyard_block_manager.causes import Cause
from blockyard_block_manager.disk_writer import DiskWriter
from blockyard_block_manager.engine_sessions import EngineSession
from blockyard_block_manager.flights import Flights
from blockyard_block_manager.job_desk import JobDesk
from blockyard_block_manager.job_order import JobOrder, Places
from blockyard_block_manager.landing import Landing
from blockyard_block_manager.node_profile import NodeProfile
from blockyard_block_manager.node_tables import NodeTables

NOTHING: Final = GrantedSlots(GrantId(0), (), ())
"""Answer where there is no slot to grant now."""


@final
class EngineGrants:
    """Grants to all engines whose ranks copy."""

    def __init__(
        self,
        profile: NodeProfile,
        tables: NodeTables,
        desk: JobDesk,
        flights: Flights,
        landing: Landing,
        disk: DiskWriter,
        writers: ArenaWriters,
    ) -> None:
        """Grant what ``disk`` leaves to engines whose ranks are among ``writers``; register by ``landing``."""
        self._profile = profile
        self._tables = tables
        self._desk = desk
        self._flights = flights
        self._landing = landing
        self._disk = disk
        self.writers: Final = writers
        self._grants = StoreGrants()

    @property
    def open_slots(self) -> int:
        """Slots that ranks may write."""
        return self._grants.open_slots

    @property
    def quarantined_slots(self) -> int:
        """Slots that wait for the end of processes that may still write them."""
        return self._grants.quarantined_slots

    @property
    def awaited(self) -> frozenset[AttachmentId]:
        """Attachments whose end slots wait for."""
        return self._grants.awaited

    def usable(self, session: EngineSession) -> bool:
        """Whether all ranks of an engine have the arena of now."""
        return session.complete and self.writers.attached(session.engine, session.dp_rank, session.ranks)

    # --- requests -----------------------------------------------------------------------------------------------------
    def reserve(self, session: EngineSession, count: int) -> GrantedSlots:
        """Grant up to ``count`` slots: as many as there are and as the engine's share allows, perhaps none.

        Raises:
            RequestError: the ranks of this engine do not copy.
        """
        _require_engine(session)
        room = self._room(session, count)
        if not room:
            return NOTHING
        return self._grants.grant(session, self._tables.grant(Tier.G2, room))

    def commit(
        self,
        session: EngineSession,
        grant: GrantId,
        slots: Sequence[BlockId],
        scope: BlockScope,
        names: Sequence[BlockName],
        shards: int,
        trace: TraceParent = NO_TRACE,
    ) -> None:
        """These shards are written; rows that are complete by that are sealed.

        Raises:
            RequestError: see ``StoreGrants.commit``; nothing changed.
        """
        _require_engine(session)
        if len(slots) != len(names):
            raise RequestError("one slot per row of the run", field="slots", slots=len(slots), rows=len(names))
        full_mask = (1 << session.group(scope.group).shards(session.ranks)) - 1
        contents = [(scope, name) for name in names]
        done = self._grants.commit(session, grant, slots, contents, shards, full_mask)
        if done is not None:
            self._complete(scope, [names[index] for index in done.indexes], done.blocks, trace)

    def abort(self, session: EngineSession, grant: GrantId, slots: Sequence[BlockId]) -> None:
        """These slots go back; raises like ``commit``."""
        _require_engine(session)
        self._grants.abort(session, grant, slots)

    # --- ends ---------------------------------------------------------------------------------------------------------
    def end(self, session: EngineSession, writers: Iterable[AttachmentId]) -> None:
        """The session or one of its ranks is gone: its open slots wait for these attachments."""
        self._grants.end(session, writers)

    def ended(self, attachments: Iterable[AttachmentId]) -> None:
        """These attachments have ended."""
        self._grants.ended(attachments)

    def close(self) -> None:
        """The arena was replaced, or this life is over: every slot goes back."""
        self._grants.close()

    # --- inside -------------------------------------------------------------------------------------------------------
    def _room(self, session: EngineSession, count: int) -> int:
        if not (self.usable(session) and self._tables.grants_open and self._desk.answering(WorkerRole.OFFLOAD_WORKER)):
            return 0
        capacity = self._tables.pool(Tier.G2).capacity
        in_all = max(1, int(capacity * self._profile.grant_share))
        per_engine = max(1, int(capacity * self._profile.engine_grant_share))
        left = in_all - self._grants.open_slots - self._grants.quarantined_slots
        own = per_engine - self._grants.held_by(session)
        wanted = min(count, left, own)
        return self._disk.g2_room(wanted) if wanted > 0 else 0

    def _complete(
        self, scope: BlockScope, names: Sequence[BlockName], blocks: MutableBlocks, trace: TraceParent
    ) -> None:
        """Seal rows that nobody else has brought meanwhile; the slots of the others go back."""
        keys = [name.key for name in names]
        held = self._tables.holds(Tier.G2, keys, scope.group)
        coming = self._flights.under_way(Tier.G2, keys, scope.group)
        here = self._desk.attached(WorkerRole.OFFLOAD_WORKER)
        wanted = [index for index in range(len(names)) if here and not (held[index] or coming[index])]
        rows = [names[index] for index in wanted]
        sealed = blocks.split(wanted)
        blocks.release()
        while rows:
            part = sealed.split(range(min(len(rows), self._profile.max_items)))
            self._seal(scope, tuple(rows[: len(part)]), part, trace)
            rows = rows[len(part) :]
        sealed.release()

    def _seal(
        self, scope: BlockScope, names: tuple[BlockName, ...], granted: MutableBlocks, trace: TraceParent
    ) -> None:
        self._flights.start(Tier.G2, [name.key for name in names], scope.group, Tier.G1, trace)
        order = JobOrder(
            role=WorkerRole.OFFLOAD_WORKER,
            kind=JobKind.SEAL,
            lane=Lane.STORE,
            ttl_ms=self._profile.store_ttl_ms,
            count=len(names),
            names=names,
            scope=scope,
            target=Places(granted.ids, granted.generations),
            cause=Cause(trace),
        )
        self._desk.hand_in(order, lambda report: self._landing.settle(Tier.G2, order, granted, report, Tier.G1))


def _require_engine(session: EngineSession) -> None:
    if session.executor is not Executor.ENGINE:
        raise RequestError("slots are granted to engines whose ranks copy", executor=session.executor.value)
