"""The moment a settled job's bytes become blocks: commit, tell those who wait, pass on, unpin. One section.

The order matters: the new blocks stay pinned until everybody who waits has taken its own pin and the lower tiers have
planned their copies, so nothing that was just brought can be evicted in between.
Invariants: called exactly once per job that was granted slots; afterwards none of its slots is in the job's hands.
Threading: owned by the event loop of the service. No await.
"""

from collections.abc import Callable, Sequence

from blockyard.core.block_name import BlockName
from blockyard.core.events import BlockScope
from blockyard.core.handles import MutableBlocks
from blockyard.core.vocabulary import ItemStatus, Tier
from blockyard.wire.trace_parent import TraceParent
from blockyard_block_manager.flights import Flights
from blockyard_block_manager.job_order import JobOrder, OrderReport
from blockyard_block_manager.manager_metrics import DropReason, ManagerMetrics
from blockyard_block_manager.node_tables import NodeTables
from blockyard_block_manager.slot_freer import SlotFreer

LandedCallback = Callable[[BlockScope, Sequence[BlockName], TraceParent], None]


class Landing:
    """Commits the results of jobs that write G2 or G3."""

    def __init__(self, tables: NodeTables, flights: Flights, freer: SlotFreer, metrics: ManagerMetrics) -> None:
        """Commit into ``tables``, end flights of ``flights``, give surplus slots to ``freer``."""
        self._tables = tables
        self._freer = freer
        self._flights = flights
        self._metrics = metrics
        self.on_g2: LandedCallback = lambda scope, names, trace: None
        """Called with what has just been registered in G2, and the trace it was brought for."""

    def settle(self, tier: Tier, order: JobOrder, granted: MutableBlocks, report: OrderReport, origin: Tier) -> None:
        """Take over the blocks that are OK, free the slots of the others, tell every waiter its status."""
        committed = self._tables.commit(tier, granted, order.names, order.scope, report.statuses, origin)
        with committed.blocks as landed:
            present = set(landed.keys)
            names = tuple(name for name in order.names if name.key in present)
            told = [
                ItemStatus.SKIPPED if status is ItemStatus.OK and name.key not in present else status
                for name, status in zip(order.names, report.statuses, strict=True)
            ]
            self._flights.end(tier, [name.key for name in order.names], order.scope.group, told)
            if tier is Tier.G2 and names:
                self.on_g2(order.scope, names, order.cause.trace)
        for slots in committed.surplus:
            self._freer.free(tier, slots)
        self._metrics.dropped(DropReason.LATE_DOOMED, committed.doomed)
