"""Which engine mappings a worker has: made once, and unmapped only when no accepted job uses them.

::

    unknown -map-> MAPPED -unmap, or a newer life of the block-manager-> LEAVING -no job uses it-> unknown

Jobs are accepted for MAPPED mappings only. A number that is LEAVING is mapped again only after it has left, so a new
life of the block-manager may count from 1 again.
Threading: one event loop.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from blockyard.core.errors import RequestError
from blockyard.runtime.job_executor import JobExecutor
from blockyard.wire.worker_channel import MapEngine, UnmapEngine


class WorkerMappings:
    """Mappings by number."""

    def __init__(self, executor: JobExecutor, in_use: Callable[[int], bool]) -> None:
        """Start without mappings.

        Args:
            executor: maps and unmaps.
            in_use: True where an accepted job that has not ended uses this mapping.
        """
        self._executor: Final = executor
        self._in_use: Final = in_use
        self._mapped: set[int] = set()
        self._leaving: set[int] = set()
        self._making = asyncio.Lock()
        self._changed = asyncio.Condition()

    def __contains__(self, mapping: int) -> bool:
        """True where jobs may use this mapping."""
        return mapping in self._mapped

    async def add(self, request: MapEngine, fds: list[int]) -> None:
        """Map; a repeated request changes nothing. Takes both descriptors out of ``fds`` when it uses them.

        Raises:
            RequestError: no number, or not two descriptors.
        """
        if len(fds) != 2 or request.mapping < 1:
            raise RequestError("a mapping has a number and two descriptors", mapping=request.mapping, fds=len(fds))
        async with self._making:
            async with self._changed:
                await self._changed.wait_for(lambda: request.mapping not in self._leaving)
            if request.mapping not in self._mapped:
                kv_fd, guard_fd = fds
                fds.clear()
                await self._executor.map_engine(request, kv_fd, guard_fd)
                self._mapped.add(request.mapping)

    async def remove(self, request: UnmapEngine) -> None:
        """Unmap when no job uses it any more; unknown numbers are done already."""
        if request.mapping in self._mapped:
            self._mapped.discard(request.mapping)
            self._leaving.add(request.mapping)
        await self.leave(request.mapping)

    def void(self) -> list[int]:
        """No job may use any of today's mappings; the caller awaits ``leave`` for each of those returned."""
        voided = sorted(self._mapped)
        self._leaving.update(voided)
        self._mapped.clear()
        return voided

    async def leave(self, mapping: int) -> None:
        """Wait until no job uses a mapping that is leaving, and unmap it."""
        async with self._changed:
            await self._changed.wait_for(lambda: not self._in_use(mapping))
            if mapping not in self._leaving:
                return
            try:
                await self._executor.unmap_engine(UnmapEngine(mapping=mapping))
            finally:
                self._leaving.discard(mapping)
                self._changed.notify_all()

    async def jobs_changed(self) -> None:
        """Jobs have ended: whoever waits looks again."""
        async with self._changed:
            self._changed.notify_all()
