"""Clear of a tier, or of a model or tenant in it: one section takes it out, the rest is waiting for headers.

::

    clear ──one section──► blocks nobody holds: gone, FREE headers ordered      held ones: gone, FREE at last unpin
                           on their way in: doomed       waiting stores: dropped      `cleared` has its number
    done  ◄── no doomed row is left and every FREE header was written

Invariants: what is registered after the section was planned after it; an operation ends exactly once.
Threading: owned by the event loop of the service. No await.
"""

from collections.abc import Callable
from dataclasses import dataclass

from blockyard.core.clear_scope import ClearScope
from blockyard.core.errors import NotReadyError, UnsupportedOperationError
from blockyard.core.vocabulary import Tier
from blockyard_block_manager.disk_writer import DiskWriter
from blockyard_block_manager.job_desk import JobDesk
from blockyard_block_manager.node_tables import LOCAL_TIERS, NodeTables
from blockyard_block_manager.offloader import Offloader
from blockyard_block_manager.recovery import Recovery
from blockyard_block_manager.slot_freer import FreeTicket, SlotFreer


@dataclass(frozen=True, slots=True)
class ClearCounts:
    """What a clear met, by outcome."""

    removed: int
    """Blocks that nobody held: gone at once."""
    pinned: int
    """Blocks that somebody held: unfindable at once, freed at the last unpin."""
    doomed: int
    """Blocks that were being written: never registered."""
    dropped: int
    """Stores that had not begun."""
    headers_freed: int
    """Slots whose headers say FREE by now, evicted copies of earlier blocks included."""


@dataclass(slots=True, eq=False)
class ClearOperation:
    """A clear under way."""

    tier: Tier
    removed: int
    pinned: int
    doomed: int
    dropped: int
    ticket: FreeTicket
    on_done: Callable[[ClearCounts], None]
    done: bool = False

    @property
    def counts(self) -> ClearCounts:
        """Counts so far."""
        return ClearCounts(self.removed, self.pinned, self.doomed, self.dropped, self.ticket.freed_slots)


class Clearing:
    """All clears under way."""

    def __init__(
        self,
        tables: NodeTables,
        desk: JobDesk,
        freer: SlotFreer,
        offloader: Offloader,
        disk: DiskWriter,
        recovery: Recovery,
    ) -> None:
        """Clear ``tables``."""
        self._offloader = offloader
        self._recovery = recovery
        self._tables = tables
        self._desk = desk
        self._freer = freer
        self._disk = disk
        self._open: list[ClearOperation] = []

    def require(self, tier: Tier) -> None:
        """Raise unless a tier can be cleared now.

        Raises:
            UnsupportedOperationError: the tier is not the node's to clear.
            NotReadyError: the offload-worker is away, the tables are not complete, or an earlier life's writer of G2 is
                not accounted for.
        """
        if tier not in LOCAL_TIERS:
            raise UnsupportedOperationError(_OTHER_TIERS[tier], tier=tier.label)
        if not self._tables.has(tier):
            raise NotReadyError("the tier is not open on this node", tier=tier.label)
        if not self._tables.serving:
            raise NotReadyError("the offload-worker has to be attached and listed", tier=tier.label)
        if self._recovery.waits_for_remote and tier is Tier.G2:
            raise NotReadyError("the remote tier may still write what it began for an earlier life of ours")

    def clear(self, tier: Tier, scope: ClearScope, on_done: Callable[[ClearCounts], None]) -> ClearOperation:
        """Take what is in scope out of a tier of this node; ``on_done``: a restart could bring nothing of it back.

        What is being written and is not known to be out of scope counts as in scope: slots of jobs of earlier lives,
        and those that ranks of engines write themselves. So do headers of blocks that were evicted.

        Raises:
            UnsupportedOperationError, NotReadyError: see ``require``; nothing changed.
        """
        self.require(tier)
        ticket = self._freer.open_ticket(tier)
        dropped = self._desk.drop_queued(tier, scope)
        dropped += self._disk.clear(scope) if tier is Tier.G3 else self._offloader.clear(scope)
        self._recovery.doom(tier)
        report = self._tables.clear(tier, scope, self._desk.written_elsewhere(tier, scope))
        operation = ClearOperation(tier, len(report.doomed), report.pinned, report.in_flight, dropped, ticket, on_done)
        self._open.append(operation)
        self._freer.free(tier, report.doomed, counted=True)
        if tier is Tier.G2:
            self._freer.free_stale(self._tables.stale_headers(), ticket)
        return operation

    def check(self) -> None:
        """End the operations for which nothing is left to wait for; called at the end of each section."""
        for operation in list(self._open):
            if operation.ticket.open_slots or self._tables.pool(operation.tier).doomed:
                continue
            self._open.remove(operation)
            self._freer.close_ticket(operation.ticket)
            operation.done = True
            operation.on_done(operation.counts)


_OTHER_TIERS = {
    Tier.G1: "engine memory is cleared by its engine: reset the prefix cache there",
    Tier.G4: "the shared store belongs to all nodes: purge the model or tenant, or let entries expire",
}
