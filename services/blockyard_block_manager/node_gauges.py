"""Sizes of the tables of a node, shown in its metrics now and then.

Threading: owned by the event loop of the service.
"""

from blockyard.core.vocabulary import Lane, WorkerRole
from blockyard_block_manager.arena_writers import RankWriters
from blockyard_block_manager.engine_sessions import EngineSessions
from blockyard_block_manager.event_log import EventLog
from blockyard_block_manager.job_desk import JobDesk
from blockyard_block_manager.manager_metrics import ManagerMetrics, RankBlocks
from blockyard_block_manager.node_tables import LOCAL_TIERS, NodeTables


def show_sizes(
    metrics: ManagerMetrics,
    tables: NodeTables,
    sessions: EngineSessions,
    ranks: RankWriters,
    desk: JobDesk,
    events: EventLog,
) -> None:
    """Show them."""
    for tier in LOCAL_TIERS:
        if tables.has(tier):
            metrics.pool(tables.pool(tier))
    metrics.engine_blocks(sum(len(session.g1) for session in sessions))
    grants = ranks.grants
    metrics.rank_blocks(
        {
            RankBlocks.OPEN: grants.open_slots,
            RankBlocks.QUARANTINED: grants.quarantined_slots,
            RankBlocks.STAGED: ranks.staged.rows,
        }
    )
    metrics.arena_writers(writer.state for writer in ranks.writers)
    for role in WorkerRole:
        metrics.unsettled(role, len(desk.table.unsettled(role)))
        for lane in Lane:
            metrics.waiting(role, lane, desk.waiting(role, lane))
    metrics.events_waiting(events.outbox.waiting)
