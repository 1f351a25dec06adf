"""Stores from engine memory into G2: every complete block that G2 neither holds nor awaits is copied.

The source is not pinned: the engine does not wait for us. The worker compares the block's guard before and after the
copy, so a block that was reused meanwhile fails as ``source_changed`` and stores nothing.
Invariants: a content is on its way into G2 at most once; granted slots are registered or freed when, and only when,
their job has settled. Threading: owned by the event loop of the service. No await.
"""

from collections.abc import Iterable, Sequence

from blockyard.core.events import BlockScope
from blockyard.core.offload_plan import plan_store
from blockyard.core.vocabulary import JobKind, Lane, Tier, WorkerRole
from blockyard_block_manager.engine_sessions import EngineSession
from blockyard_block_manager.flights import Flights
from blockyard_block_manager.g1_set import G1Block
from blockyard_block_manager.job_desk import JobDesk
from blockyard_block_manager.job_order import JobOrder, Places
from blockyard_block_manager.landing import Landing
from blockyard_block_manager.manager_metrics import DropReason, ManagerMetrics
from blockyard_block_manager.node_profile import NodeProfile
from blockyard_block_manager.node_tables import NodeTables


class Offloader:
    """Plans G1 to G2 jobs."""

    def __init__(
        self,
        profile: NodeProfile,
        tables: NodeTables,
        flights: Flights,
        desk: JobDesk,
        landing: Landing,
        metrics: ManagerMetrics,
    ) -> None:
        """Plan over ``tables``, hand jobs to ``desk``."""
        self._profile = profile
        self._tables = tables
        self._flights = flights
        self._desk = desk
        self._landing = landing
        self._metrics = metrics

    def store(self, session: EngineSession, blocks: Sequence[G1Block]) -> int:
        """Plan stores of blocks of one scope; returns how many are planned.

        What finds no room is left out and counted: the engine still has it, and may offer it again.
        """
        if not blocks:
            return 0
        if session.mapping is None or not self._desk.attached(WorkerRole.OFFLOAD_WORKER):
            self._metrics.dropped(DropReason.NO_WORKER, len(blocks))
            return 0
        offered = list({block.name.key: block for block in blocks}.values())
        scope = offered[0].scope
        keys = [block.name.key for block in offered]
        plan = plan_store(
            self._tables.holds(Tier.G2, keys, scope.group),
            self._flights.under_way(Tier.G2, keys, scope.group),
            self._tables.room(Tier.G2),
            self._profile.max_items,
        )
        for job in plan.jobs:
            self._issue(session.mapping, scope, [offered[index] for index in job])
        self._metrics.dropped(DropReason.NO_G2_SLOT, len(plan.left_out))
        return plan.planned

    def catch_up(self, sessions: Iterable[EngineSession]) -> None:
        """Offer everything that engines hold: after G2 became usable, or an engine was mapped."""
        for session in sessions:
            grouped: dict[BlockScope, list[G1Block]] = {}
            for block in session.g1:
                grouped.setdefault(block.scope, []).append(block)
            for blocks in grouped.values():
                self.store(session, sorted(blocks, key=lambda block: block.name.position))

    def _issue(self, mapping: int, scope: BlockScope, blocks: Sequence[G1Block]) -> None:
        names = tuple(block.name for block in blocks)
        granted = self._tables.grant(Tier.G2, len(blocks))
        self._flights.start(Tier.G2, [name.key for name in names], scope.group, Tier.G1)
        order = JobOrder(
            role=WorkerRole.OFFLOAD_WORKER,
            kind=JobKind.G1_G2,
            lane=Lane.STORE,
            ttl_ms=self._profile.store_ttl_ms,
            count=len(names),
            names=names,
            scope=scope,
            source=Places(tuple(block.block for block in blocks), tuple(block.guard for block in blocks)),
            target=Places(granted.ids, granted.generations),
            mapping=mapping,
        )
        self._desk.hand_in(order, lambda report: self._landing.settle(Tier.G2, order, granted, report, Tier.G1))
