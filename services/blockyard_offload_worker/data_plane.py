"""Opens the parts of the data plane in the order they need each other, and closes them in the reverse one.

The slab is opened before any arena is taken over: its lock proves that the earlier life of this worker has no request
left in the kernel that could still touch the arena.
Threading: event loop.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

from blockyard.core.errors import StorageError
from blockyard.core.vocabulary import Executor
from blockyard.runtime.http import Health
from blockyard.runtime.logs import get_logger
from blockyard.runtime.memory_limit import memory_limit
from blockyard.runtime.supervisor import ServiceContext
from blockyard.runtime.telemetry import Metrics
from blockyard.tiers.open_mover import ChosenMover
from blockyard_offload_worker.arena_owner import ArenaOwner, ArenaPlan
from blockyard_offload_worker.copy_thread import CopyThread
from blockyard_offload_worker.disk_tier import DiskOutage, DiskPlan, DiskTier
from blockyard_offload_worker.engine_mappings import MAPPED_ONLY, EngineMappings
from blockyard_offload_worker.executor import OffloadExecutor
from blockyard_offload_worker.nixl_copies import NixlEngines

_CHECK: Final = "g3"
_log: Final = get_logger(__name__)


@asynccontextmanager
async def open_data_plane(context: ServiceContext) -> AsyncIterator[OffloadExecutor]:
    """The executor of this process with everything below it.

    Raises:
        StartupError: the slab is in use, is not ours, or holds blocks of another layout.
    """
    settings = context.settings
    async with AsyncExitStack() as stack:
        limited = memory_limit() is not None
        owner = ArenaOwner(ArenaPlan.of(settings), context.life.epoch, reserve=limited)
        stack.callback(owner.close)
        disk: DiskTier | DiskOutage | None = None
        if settings.g3.enabled:
            disk = await DiskTier.open(DiskPlan.of(settings, context.node), context.life.epoch)
        if isinstance(disk, DiskTier):
            stack.push_async_callback(_close, disk)
        nixl = NixlEngines()
        stack.callback(nixl.close)
        mappings = EngineMappings({**MAPPED_ONLY, Executor.NIXL: nixl.open})
        stack.callback(mappings.close)
        copies = CopyThread()
        stack.push_async_callback(asyncio.to_thread, copies.close)
        report = _DiskReport(context.metrics, context.health, disk)
        yield OffloadExecutor(context.life.epoch, owner, copies, mappings, disk, report)


class _DiskReport:
    """Shows mover and disk in metrics and readiness."""

    def __init__(self, metrics: Metrics, health: Health, disk: DiskTier | DiskOutage | None) -> None:
        self._metrics = metrics
        self._health = health
        if disk is not None:
            self.disk_used(disk.detail if isinstance(disk, DiskOutage) else "")

    def mover_chosen(self, chosen: ChosenMover) -> None:
        self._metrics.mover_info.labels(chosen.mover.name, chosen.selection).set(1)

    def disk_used(self, failure: str) -> None:
        self._health.set(_CHECK, not failure, failure)


async def _close(disk: DiskTier) -> None:
    try:
        await disk.close()
    except StorageError as error:
        # The next start scans the slab as after a crash; nothing is lost by it.
        _log.error("the slab could not be closed in order", reason=str(error))
