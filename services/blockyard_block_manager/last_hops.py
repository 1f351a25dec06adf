"""The last hop of loads: one job per load takes what lies in G2, in order, to the engine.

::

    nothing on its way ──worker and engine there, in time──► handed in ──settled──► copied or failed: load goes on
                       └──else──► the blocks fail at once               └──damaged in G2, in time──► starts over

It copies into the memory of the engine. Of a staged load, whose rows ranks copy themselves, it checks the slots.
Invariants: from the hand-in until the job has settled the load is not answered, whatever its deadline: until then the
memory of the engine may be written.
Threading: owned by the event loop of the service. No await.
"""

from collections.abc import Callable, Sequence
from typing import final

from blockyard.core.block_name import select
from blockyard.core.clock import Clock
from blockyard.core.vocabulary import ItemStatus, JobKind, Lane, Tier, WorkerRole
from blockyard_block_manager.causes import Cause
from blockyard_block_manager.job_desk import JobDesk
from blockyard_block_manager.job_order import JobOrder, OrderReport, Places
from blockyard_block_manager.load import Load
from blockyard_block_manager.slot_freer import NOT_AS_NAMED, SlotFreer


@final
class LastHops:
    """Hands in the last hop of loads, and takes its report."""

    def __init__(self, desk: JobDesk, freer: SlotFreer, clock: Clock, go_on: Callable[[Load], None]) -> None:
        """Hand in at ``desk``; damaged slots go to ``freer``; ``go_on`` is told of each load whose job has settled."""
        self._desk = desk
        self._freer = freer
        self._clock = clock
        self._go_on = go_on

    def begin(self, load: Load) -> bool:
        """Take what lies in G2 to the engine.

        Returns:
            Whether a job is under way for it; where not, all its blocks have an end now.
        """
        indexes = load.plan.ready_indexes()
        ttl_ms = int((load.deadline - self._clock.monotonic()) * 1_000)
        if not load.session.reachable or not self._desk.answering(WorkerRole.OFFLOAD_WORKER):
            load.give_up(indexes, ItemStatus.UNKNOWN)
        elif ttl_ms < 1:
            load.give_up(indexes, ItemStatus.TIMEOUT)
        elif indexes:
            order = _order(load, indexes, ttl_ms)
            load.last_hop = self._desk.hand_in(order, lambda report: self._settled(load, indexes, order, report))
            return True
        return False

    def _settled(self, load: Load, indexes: Sequence[int], order: JobOrder, report: OrderReport) -> None:
        load.last_hop = None
        self._freer.condemn_damaged(Tier.G2, order.source, report.statuses)
        in_time = not load.abandoned and self._clock.monotonic() < load.stage_deadline
        again = {
            index: status
            for index, status in zip(indexes, report.statuses, strict=True)
            if status in NOT_AS_NAMED and in_time
        }
        kept = [(index, status) for index, status in zip(indexes, report.statuses, strict=True) if index not in again]
        load.plan.copied([index for index, _ in kept], [status for _, status in kept])
        for index, status in again.items():
            load.plan.start_over(index, status)
            load.due.add(index)
        self._go_on(load)


def _order(load: Load, indexes: Sequence[int], ttl_ms: int) -> JobOrder:
    slots = [load.slots[index] for index in indexes]
    return JobOrder(
        role=WorkerRole.OFFLOAD_WORKER,
        kind=JobKind.CHECK if load.staged else JobKind.G2_G1,
        lane=Lane.LOAD,
        ttl_ms=ttl_ms,
        count=len(indexes),
        names=select(load.names, indexes),
        scope=load.scope,
        source=Places(tuple(block for block, _ in slots), tuple(generation for _, generation in slots)),
        target=load.places(indexes),
        mapping=load.session.mapping or 0,
        cause=Cause(load.span.traceparent),
    )
