"""Which engine mappings a worker has: made once, and unmapped only when no accepted job uses them.

::

    unknown -map-> MAKING -> MAPPED -unmap, or a newer life of the block-manager-> LEAVING -no job uses it-> UNMAPPING
       ^              +-- failed                                                                                |
       +--------------+-----------------------------------------------------------------------------------------+

Jobs are accepted for MAPPED mappings only. A number that is on its way out is mapped again only after it has left, and
what an older life asked for never becomes a mapping of the newer one, so a new life may count from 1 again.
Invariants: nobody waits for the mapping of another engine.
Threading: one event loop.
"""

import asyncio
from collections.abc import Callable
from enum import Enum, auto
from typing import Final

from blockyard.core.errors import BlockyardError, NotAttachedError, RequestError
from blockyard.runtime.job_executor import JobExecutor
from blockyard.wire.worker_channel import MapEngine, UnmapEngine


class _Phase(Enum):
    MAKING = auto()
    MAPPED = auto()
    LEAVING = auto()
    UNMAPPING = auto()


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
        self._phases: dict[int, _Phase] = {}
        self._life = 0
        self._changed = asyncio.Condition()

    def __contains__(self, mapping: int) -> bool:
        """True where jobs may use this mapping."""
        return self._phases.get(mapping) is _Phase.MAPPED

    async def add(self, request: MapEngine, fds: list[int]) -> None:
        """Map; a repeated request changes nothing. Takes the descriptors out of ``fds`` when it uses them.

        Raises:
            RequestError: no number, no rank, or not one descriptor for the guards and one for each rank.
            NotAttachedError: a newer life of the block-manager took over meanwhile; nothing is mapped.
        """
        if not request.ranks or len(fds) != 1 + len(request.ranks) or request.mapping < 1:
            raise RequestError(
                "a mapping has a number, and a descriptor for its guards and for each rank",
                mapping=request.mapping,
                ranks=len(request.ranks),
                fds=len(fds),
            )
        life = self._life
        await self._until(lambda: self._phases.get(request.mapping) in (None, _Phase.MAPPED))
        self._check_life(life)
        if request.mapping in self:
            return
        taken = tuple(fds)
        fds.clear()
        self._phases[request.mapping] = _Phase.MAKING
        try:
            await self._executor.map_engine(request, taken)
        except BlockyardError:
            del self._phases[request.mapping]
            await self.jobs_changed()
            raise
        # In one step with the look at the life: a newer one must never see this mapping as its own.
        self._phases[request.mapping] = _Phase.MAPPED if life == self._life else _Phase.LEAVING
        await self.jobs_changed()
        if life != self._life:
            await self.leave(request.mapping)
            self._check_life(life)

    async def remove(self, request: UnmapEngine) -> None:
        """Unmap when no job uses it any more; unknown numbers are done already."""
        await self._until(lambda: self._phases.get(request.mapping) is not _Phase.MAKING)
        if request.mapping in self:
            self._phases[request.mapping] = _Phase.LEAVING
        await self.leave(request.mapping)

    def void(self) -> list[int]:
        """No job may use any of today's mappings; the caller awaits ``leave`` for each of those returned."""
        self._life += 1
        voided = sorted(mapping for mapping in self._phases if mapping in self)
        self._phases.update(dict.fromkeys(voided, _Phase.LEAVING))
        return voided

    async def leave(self, mapping: int) -> None:
        """Wait until no job uses a mapping that is leaving, and unmap it."""
        await self._until(lambda: not self._in_use(mapping) and self._phases.get(mapping) is not _Phase.UNMAPPING)
        if self._phases.get(mapping) is not _Phase.LEAVING:
            return
        self._phases[mapping] = _Phase.UNMAPPING
        try:
            await self._executor.unmap_engine(UnmapEngine(mapping=mapping))
        finally:
            del self._phases[mapping]
            await self.jobs_changed()

    async def jobs_changed(self) -> None:
        """Jobs have ended, or a mapping changed: whoever waits looks again."""
        async with self._changed:
            self._changed.notify_all()

    async def _until(self, condition: Callable[[], bool]) -> None:
        async with self._changed:
            await self._changed.wait_for(condition)

    def _check_life(self, life: int) -> None:
        if life != self._life:
            raise NotAttachedError("a newer life of the block-manager has attached")
