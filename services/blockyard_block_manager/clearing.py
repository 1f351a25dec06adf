"""Clear of a tier, or of a model or tenant in it: one section decides, the rest is sweeping and waiting for headers.

::

    clear ──one section──► blocks in scope: gone                held ones: gone, FREE at last unpin
                           on their way in: doomed              waiting stores: dropped      `cleared` has its number
          ──slices───────► slots of blocks that nobody holds: FREE headers ordered
    done  ◄── everything is swept, no doomed row is left and every FREE header was written

The section takes a few passes over columns; that slots come back takes time for each, so it is done in slices, each a
section of its own. The first belongs to the clear: what fits in there needs no other.
Invariants: what is registered after the section was planned after it; an operation ends exactly once.
Threading: owned by the event loop of the service. No await.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from blockyard.core.clear_scope import ClearScope
from blockyard.core.errors import NotReadyError, UnsupportedOperationError
from blockyard.core.vocabulary import Tier
from blockyard_block_manager.disk_writer import DiskWriter
from blockyard_block_manager.engine_sessions import EngineSessions
from blockyard_block_manager.job_desk import JobDesk
from blockyard_block_manager.node_profile import NodeProfile
from blockyard_block_manager.node_tables import LOCAL_TIERS, NodeTables
from blockyard_block_manager.offloader import Offloader
from blockyard_block_manager.recovery import Recovery
from blockyard_block_manager.slot_freer import FreeTicket, SlotFreer


@dataclass(frozen=True, slots=True)
class ClearCounts:
    """What a clear met, by outcome."""

    removed: int
    """Blocks that nobody held: unfindable at once, freed as they are swept."""
    pinned: int
    """Blocks that somebody held: unfindable at once, freed at the last unpin."""
    doomed: int
    """Blocks that were being written: never registered."""
    dropped: int
    """Stores that had not begun."""
    headers_freed: int
    """Slots whose headers say FREE by now, evicted copies of earlier blocks included."""


OnCleared = Callable[[ClearCounts], None]
"""Told that nothing of it could come back."""


@dataclass(slots=True, eq=False)
class ClearOperation:
    """A clear under way."""

    tier: Tier
    removed: int
    pinned: int
    doomed: int
    dropped: int
    ticket: FreeTicket
    on_done: OnCleared
    done: bool = False

    @property
    def counts(self) -> ClearCounts:
        """Counts so far."""
        return ClearCounts(self.removed, self.pinned, self.doomed, self.dropped, self.ticket.freed_slots)


class Clearing:
    """All clears under way."""

    def __init__(
        self,
        profile: NodeProfile,
        tables: NodeTables,
        sessions: EngineSessions,
        desk: JobDesk,
        freer: SlotFreer,
        offloader: Offloader,
        disk: DiskWriter,
        recovery: Recovery,
    ) -> None:
        """Clear ``tables``."""
        self._part = profile.sweep_part
        self._sessions = sessions
        self._offloader = offloader
        self._recovery = recovery
        self._tables = tables
        self._desk = desk
        self._freer = freer
        self._disk = disk
        self._open: list[ClearOperation] = []

    @property
    def unswept(self) -> bool:
        """Whether ``sweep`` has something to do."""
        return bool(self._tables.unswept) or self._sessions.unswept

    def clear(self, tiers: Sequence[Tier], scope: ClearScope, on_done: OnCleared) -> list[ClearOperation]:
        """Take what is in scope out of tiers of this node; ``on_done``, per tier: a restart could bring nothing back.

        What is being written and is not known to be out of scope counts as in scope: slots of jobs of earlier lives,
        and those that ranks of engines write themselves. So do headers of blocks that were evicted.

        Raises:
            UnsupportedOperationError: a tier is not the node's to clear; nothing changed.
            NotReadyError: the offload-worker is away, the tables are not complete, or an earlier life's writer of G2 is
                not accounted for; nothing changed.
        """
        for tier in tiers:
            self._require(tier)
        return [self._clear(tier, scope, on_done) for tier in tiers]

    def sweep(self) -> None:
        """Take the next slice of what was cleared, if anything is left, and of what engines had that are gone."""
        for tier in self._tables.unswept[:1]:
            self._sweep(tier)
        self._sessions.sweep(self._part)

    def check(self) -> None:
        """End the operations for which nothing is left to wait for; called at the end of each section."""
        for operation in list(self._open):
            pool = self._tables.pool(operation.tier)
            if pool.unswept or operation.ticket.open_slots or pool.doomed:
                continue
            self._open.remove(operation)
            self._freer.close_ticket(operation.ticket)
            operation.done = True
            operation.on_done(operation.counts)

    def _require(self, tier: Tier) -> None:
        if tier not in LOCAL_TIERS:
            raise UnsupportedOperationError(_OTHER_TIERS[tier], tier=tier.label)
        if not self._tables.has(tier):
            raise NotReadyError("the tier is not open on this node", tier=tier.label)
        if not self._tables.serving:
            raise NotReadyError("the offload-worker has to be attached and listed", tier=tier.label)
        if self._recovery.waits_for_remote and tier is Tier.G2:
            raise NotReadyError("the remote tier may still write what it began for an earlier life of ours")

    def _clear(self, tier: Tier, scope: ClearScope, on_done: OnCleared) -> ClearOperation:
        ticket = self._freer.open_ticket(tier)
        dropped = self._desk.drop_queued(tier, scope)
        dropped += self._disk.clear(scope) if tier is Tier.G3 else self._offloader.clear(scope)
        self._recovery.doom(tier)
        report = self._tables.cut(tier, scope, self._desk.written_elsewhere(tier, scope))
        operation = ClearOperation(tier, report.removed, report.pinned, report.in_flight, dropped, ticket, on_done)
        self._open.append(operation)
        self._sweep(tier)
        if tier is Tier.G2:
            self._freer.free_stale(self._tables.stale_headers(), ticket)
        return operation

    def _sweep(self, tier: Tier) -> None:
        self._freer.free(tier, self._tables.sweep(tier, self._part), counted=True)


_OTHER_TIERS = {
    Tier.G1: "engine memory is cleared by its engine: reset the prefix cache there",
    Tier.G4: "the shared store belongs to all nodes: purge the model or tenant, or let entries expire",
}
