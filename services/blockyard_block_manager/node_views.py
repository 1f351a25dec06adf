"""What the node shows of itself to operators: values, taken in one section.

Threading: frozen values.
"""

from dataclasses import dataclass

from blockyard.core.vocabulary import Epoch, NodeName, Tier, WorkerRole
from blockyard_block_manager.node_core import NodeCore
from blockyard_block_manager.node_tables import LOCAL_TIERS
from blockyard_block_manager.recovery import WorkerPhase


@dataclass(frozen=True, slots=True, kw_only=True)
class TierView:
    """Blocks of one tier. ``capacity_blocks`` is None where the node does not know it (engines, shared store).

    Where it is known, registered, writing, freeing, free and abandoned blocks add up to it.
    """

    tier: str
    capacity_blocks: int | None
    registered_blocks: int
    pinned_blocks: int = 0
    writing_blocks: int = 0
    freeing_blocks: int = 0
    free_blocks: int = 0
    abandoned_blocks: int = 0
    block_bytes: int
    available: bool
    """False while nobody can say what the tier holds: its blocks are *unknown*, not missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerView:
    """One worker of the node."""

    name: str
    phase: str
    epoch: Epoch | None
    mover: str
    open_jobs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeView:
    """This node."""

    instance: NodeName
    epoch: Epoch
    block_bytes: int
    block_tokens: int
    engines: int
    open_loads: int
    leases: int
    pins: int
    last_event: int
    workers: tuple[WorkerView, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineView:
    """One connected engine."""

    engine: str
    dp_rank: int
    session: str
    model: str
    identity: str
    blocks: int
    executor: str
    ranks: int
    complete: bool
    registered_blocks: int
    mapped: bool


def tier_views(core: NodeCore) -> list[TierView]:
    """All tiers, G1 to G4."""
    profile, tables = core.profile, core.tables
    engines = sum(len(session.g1) for session in core.sessions)
    views = [_unbounded(Tier.G1, engines, profile.block_bytes, available=True)]
    for tier in LOCAL_TIERS:
        if not tables.has(tier):
            views.append(_unbounded(tier, 0, profile.block_bytes, available=False))
            continue
        pool = tables.pool(tier)
        views.append(
            TierView(
                tier=tier.label,
                capacity_blocks=pool.capacity,
                registered_blocks=pool.held + pool.inactive,
                pinned_blocks=pool.held,
                writing_blocks=pool.mutable + pool.complete,
                freeing_blocks=pool.await_free,
                free_blocks=pool.free,
                abandoned_blocks=pool.abandoned,
                block_bytes=profile.block_bytes,
                available=tables.serving,
            )
        )
    remote = core.recovery.phase(WorkerRole.REMOTE_TIER) is WorkerPhase.READY
    views.append(_unbounded(Tier.G4, len(core.catalogue), profile.block_bytes, available=remote))
    return views


def node_view(core: NodeCore) -> NodeView:
    """This node."""
    recovery, table = core.recovery, core.desk.table
    return NodeView(
        instance=core.profile.instance,
        epoch=core.profile.epoch,
        block_bytes=core.profile.block_bytes,
        block_tokens=core.profile.block_tokens,
        engines=len(core.sessions),
        open_loads=len(core.loads),
        leases=len(core.leases),
        pins=core.tables.pins.count,
        last_event=core.events.outbox.last_seq,
        workers=tuple(
            WorkerView(
                name=role.label,
                phase=recovery.phase(role).value,
                epoch=recovery.epoch(role),
                mover=recovery.mover(role),
                open_jobs=len(table.unsettled(role)),
            )
            for role in WorkerRole
            if role is WorkerRole.OFFLOAD_WORKER or core.profile.g4_enabled
        ),
    )


def engine_views(core: NodeCore) -> list[EngineView]:
    """Connected engines."""
    return [
        EngineView(
            engine=session.engine,
            dp_rank=session.dp_rank,
            session=session.session,
            model=session.model.model,
            identity=session.identity.hex(),
            blocks=session.blocks,
            executor=session.executor.value,
            ranks=session.ranks,
            complete=session.complete,
            registered_blocks=len(session.g1),
            mapped=session.mapping is not None,
        )
        for session in core.sessions
    ]


def _unbounded(tier: Tier, registered: int, block_bytes: int, *, available: bool) -> TierView:
    return TierView(
        tier=tier.label,
        capacity_blocks=None,
        registered_blocks=registered,
        block_bytes=block_bytes,
        available=available,
    )
