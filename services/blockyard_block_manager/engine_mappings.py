"""Memory of engines at the offload-worker: mapped when all ranks are there, again in each life of the worker.

::

    all ranks ──► asked once, the last one waits ──done──► MAPPED ──new life of the worker──► asked in background ─┐
                    └──no answer, worker away──► asked in the background, until it is mapped ◄─────────────────────┘
    a rank is lost, or the engine ──► unmapped in the background

The descriptors of guards and ranks are kept while their owners are there: a new life of the worker maps from them.
A worker that is there and does not answer in time is asked again; one that is away, when it has attached.
Invariants: one question per engine at a time, and nobody waits for the memory of another engine; what is mapped under
a number that counts no more is unmapped after it.
Threading: one event loop.
"""

import asyncio
import os
from collections.abc import Coroutine, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from blockyard.core.errors import BlockyardError, UnavailableError
from blockyard.core.vocabulary import Executor, WorkerRole
from blockyard.runtime.backoff import Backoff
from blockyard.runtime.logs import get_logger
from blockyard.runtime.rpc.session import RpcSession
from blockyard.wire.worker_channel import GroupLayout, MapEngine, RankInfo, UnmapEngine
from blockyard_block_manager.decisions import deciding
from blockyard_block_manager.engine_ranks import AttachedRank, MemoryId
from blockyard_block_manager.engine_sessions import EngineSession
from blockyard_block_manager.node_core import NodeCore

_FIRST_RETRY_SECONDS: Final = 0.1
_RETRY_SECONDS: Final = 2.0
_log: Final = get_logger(__name__)


class EngineMapper(Protocol):
    """What maps engine memory: the link to the offload-worker."""

    async def map_engine(self, request: MapEngine, fds: Sequence[int]) -> None:
        """Map an engine's memory; repeating a request is harmless. The descriptors stay the caller's."""
        ...

    async def unmap_engine(self, request: UnmapEngine) -> None:
        """Forget a mapping; answered once no job uses it."""
        ...


@dataclass(slots=True, eq=False)
class ConnectedEngine:
    """One connection after its hello, with its guards and the ranks that joined it; compared by identity."""

    rpc: RpcSession
    session: EngineSession
    guards: int
    """Descriptor of the guard words."""
    ranks: dict[int, AttachedRank] = field(default_factory=dict)
    memories: dict[int, MemoryId | None] = field(default_factory=dict)
    """Memory that each rank had when it was there last."""
    asking: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def joined(self) -> tuple[AttachedRank, ...]:
        """Its ranks in order, as far as they are there."""
        return tuple(self.ranks[number] for number in sorted(self.ranks))

    def close(self) -> None:
        """Close the descriptor of the guards; those of ranks live as long as the ranks."""
        os.close(self.guards)


class EngineMappings:
    """Asks the worker; ``close`` ends what goes on in the background."""

    def __init__(self, core: NodeCore, mapper: EngineMapper) -> None:
        """Map by ``mapper``, tell ``core``."""
        self._core = core
        self._mapper = mapper
        self._tasks: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        """End the background tasks."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def map(self, engine: ConnectedEngine) -> None:
        """Map if that is still to be done.

        Raises:
            UnavailableError: the worker is away or does not answer in time.
            BlockyardError: it refuses the memory.
        """
        session = engine.session
        if session.executor is Executor.ENGINE:
            return
        async with engine.asking:
            number = session.mapping_number
            if number is None or session.mapping is not None:
                return
            worker_epoch = self._core.recovery.epoch(WorkerRole.OFFLOAD_WORKER)
            fds = [os.dup(fd) for fd in _descriptors(engine)]  # a rank may go, and its descriptor with it
            try:
                await self._mapper.map_engine(_message(engine, number), fds)
            finally:
                for fd in fds:
                    os.close(fd)
        if worker_epoch == self._core.recovery.epoch(WorkerRole.OFFLOAD_WORKER):
            with deciding():
                self._core.mapped(session, number)

    def map_later(self, engines: Iterable[ConnectedEngine]) -> None:
        """Map in the background, as long as the worker is there."""
        for engine in engines:
            self._spawn(self._until_mapped(engine))

    def unmap(self, engine: ConnectedEngine, number: int) -> None:
        """The engine, or a rank of it, is gone: unmap in the background."""
        if engine.session.executor is not Executor.ENGINE:
            self._spawn(self._unmap(engine, number))

    # --- inside -------------------------------------------------------------------------------------------------------
    async def _until_mapped(self, engine: ConnectedEngine) -> None:
        backoff = Backoff(_FIRST_RETRY_SECONDS, _RETRY_SECONDS)
        while self._core.desk.attached(WorkerRole.OFFLOAD_WORKER):
            try:
                await self.map(engine)
            except UnavailableError as error:
                _log.info("engine memory is not mapped yet", engine=engine.session.engine, reason=str(error))
            except BlockyardError as error:
                _log.warning("engine memory cannot be mapped", engine=engine.session.engine, reason=str(error))
                return
            else:
                return
            await asyncio.sleep(backoff.next_seconds())

    async def _unmap(self, engine: ConnectedEngine, number: int) -> None:
        """The worker answers once no job uses the mapping; one that is away forgets it with its life."""
        async with engine.asking:  # after a mapping that is being made
            pass
        try:
            await self._mapper.unmap_engine(UnmapEngine(mapping=number))
        except BlockyardError as error:
            _log.info("engine memory was not unmapped", engine=engine.session.engine, reason=str(error))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._task_ended)

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.result()  # an error here is a bug: it reaches the handler of the event loop


def _descriptors(engine: ConnectedEngine) -> list[int]:
    return [engine.guards, *(rank.fd for rank in engine.joined if rank.fd is not None)]


def _message(engine: ConnectedEngine, number: int) -> MapEngine:
    session = engine.session
    return MapEngine(
        mapping=number,
        blocks=session.blocks,
        groups=tuple(
            GroupLayout(group=group.group, pages_per_row=pages, replicated=group.replicated)
            for group, pages in zip(session.groups, session.pages_per_row, strict=True)
        ),
        ranks=tuple(
            RankInfo(memory_bytes=rank.request.memory_bytes, regions=rank.request.regions) for rank in engine.joined
        ),
        executor=session.executor.value,
    )
