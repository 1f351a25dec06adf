"""The life of the offload-worker, ended or proven over where loads wait for it.

::

    last hop, overdue ──patience──► stuck ──► process killed ──┐
                                      └──► out of reach: named, and waited for
    worker away, and its lock free or its epoch passed ◄───────┘
        └──► its last hops end as lost, and so do the loads that wait for them

Nothing settles by the kill itself: the channel ends, then the lock says that the process is gone. Where another life
has begun meanwhile, the one that had the copies is over and nobody is killed.
Invariants: per connection the process is killed at most once; only that of a life whose last hops are stuck, and never
one that could not tell us their end: over a connection that is new or ends again at once.
Threading: one event loop.
"""

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

from blockyard.core.clock import Clock
from blockyard.core.errors import UnavailableError, UnsupportedOperationError
from blockyard.core.jobs import LAST_HOPS, JobId
from blockyard.core.overdue_jobs import OverdueJobs
from blockyard.core.vocabulary import Epoch, WorkerRole
from blockyard.runtime.logs import get_logger
from blockyard_block_manager.decisions import deciding
from blockyard_block_manager.manager_metrics import ManagerMetrics, StuckWorkerEnd
from blockyard_block_manager.node_core import NodeCore
from blockyard_block_manager.recovery import WorkerPhase

PROBE_SECONDS: Final = 0.2
_OW: Final = WorkerRole.OFFLOAD_WORKER
_log: Final = get_logger(__name__)


class PeerConnection(Protocol):
    """A connection to a process that can be ended."""

    def end_peer(self) -> None:
        """Kill it.

        Raises:
            UnavailableError: it is gone, or that cannot be now.
            UnsupportedOperationError: that cannot be.
        """
        ...


class PeerLink(Protocol):
    """What keeps a connection to the worker."""

    @property
    def connection(self) -> PeerConnection | None:
        """The present connection; None between two."""
        ...


class OffloadLife:
    """Watches the last hops that the offload-worker has."""

    def __init__(
        self,
        core: NodeCore,
        link: PeerLink,
        is_over: Callable[[Epoch | None], bool],
        clock: Clock,
        metrics: ManagerMetrics,
        *,
        patience_seconds: float,
    ) -> None:
        """Watch.

        Args:
            core: the decisions, which know what is open.
            link: its connection is that of the process to end.
            is_over: whether a life of the worker, or whichever was last, is certainly over.
            clock: source of monotonic time.
            metrics: where it is counted.
            patience_seconds: how long a last hop may be open after its deadline.
        """
        self._core = core
        self._link = link
        self._is_over = is_over
        self._metrics = metrics
        self._overdue = OverdueJobs(clock, patience_seconds=patience_seconds)
        self._dealt_with: PeerConnection | None = None
        self._named: PeerConnection | None = None

    def look(self) -> None:
        """Kill the process if last hops are stuck; called with every tick."""
        connection = self._link.connection
        stuck = self._overdue.look(self._open_too_long(), connection)
        if not stuck or connection is None or connection is self._dealt_with or self._is_of_next_life():
            return
        try:
            connection.end_peer()
        except UnavailableError as error:  # gone, or we cannot just now: asked again while the connection is there
            if connection is not self._named:
                _log.info("the offload-worker leaves loads open and was not killed yet", reason=str(error.detail))
            self._named = connection
            return
        except UnsupportedOperationError as error:
            self._metrics.stuck_worker(StuckWorkerEnd.OUT_OF_REACH)
            _log.warning(
                "the offload-worker leaves loads open and cannot be killed from here",
                jobs=len(stuck),
                reason=error.detail,
            )
        else:
            self._metrics.stuck_worker(StuckWorkerEnd.KILLED)
            _log.warning("the offload-worker left loads open and was killed", jobs=len(stuck))
        self._dealt_with = connection

    def probe(self) -> None:
        """End what a worker had that is away and whose process is gone, where somebody waits for it."""
        recovery = self._core.recovery
        if recovery.phase(_OW) is not WorkerPhase.AWAY or not self._awaited():
            return
        if self._is_over(recovery.epoch(_OW)):
            with deciding():
                self._core.offload_proven_dead()
            _log.info("the process of the offload-worker is gone: its loads are over")

    async def run(self) -> None:
        """Probe until cancelled."""
        while True:
            self.probe()
            await asyncio.sleep(PROBE_SECONDS)

    # --- inside -------------------------------------------------------------------------------------------------------
    def _is_of_next_life(self) -> bool:
        """Whether the connection may be that of a life which has no copies; one that is attached is certainly not."""
        recovery = self._core.recovery
        return recovery.phase(_OW) is WorkerPhase.AWAY and self._is_over(recovery.epoch(_OW))

    def _open_too_long(self) -> list[JobId]:
        """Last hops whose time is over; that of those of earlier lives is."""
        table = self._core.desk.table
        own = [JobId(table.epoch, seq) for seq in table.overdue(_OW, LAST_HOPS)]
        return [*own, *self._core.recovery.inherited_engine_writes]

    def _awaited(self) -> bool:
        orders = self._core.desk.open_orders()
        return not self._core.recovery.engine_writes_settled or any(opened.order.kind in LAST_HOPS for opened in orders)
