"""Memory of engines at the offload-worker: mapped at hello, again in each life of the worker, unmapped at the end.

::

    hello ──► asked once, the engine waits ──done──► MAPPED ──new life of the worker──► asked in the background ─┐
                    └──no answer, worker away──► asked in the background, until it is mapped ◄───────────────────┘

The two descriptors of an engine's memory are kept for its session's life: a new life of the worker maps from them.
A worker that is there and does not answer in time is asked again; one that is away, when it has attached.
Invariants: one question per engine at a time, and nobody waits for the memory of another engine.
Threading: one event loop.
"""

import asyncio
import os
from collections.abc import Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from blockyard.core.errors import BlockyardError, UnavailableError
from blockyard.core.vocabulary import WorkerRole
from blockyard.runtime.backoff import Backoff
from blockyard.runtime.logs import get_logger
from blockyard.runtime.rpc.session import RpcSession
from blockyard.wire.worker_channel import MapEngine, UnmapEngine
from blockyard_block_manager.decisions import deciding
from blockyard_block_manager.engine_sessions import EngineSession
from blockyard_block_manager.node_core import NodeCore

_FIRST_RETRY_SECONDS: Final = 0.1
_RETRY_SECONDS: Final = 2.0
_log: Final = get_logger(__name__)


class EngineMapper(Protocol):
    """What maps engine memory: the link to the offload-worker."""

    async def map_engine(self, request: MapEngine, fds: tuple[int, int]) -> None:
        """Map an engine's memory; repeating a request is harmless."""
        ...

    async def unmap_engine(self, request: UnmapEngine) -> None:
        """Forget a mapping; answered once no job uses it."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class ConnectedEngine:
    """One connection after its hello, with the descriptors of the engine's memory; compared by identity."""

    rpc: RpcSession
    session: EngineSession
    fds: tuple[int, int]
    asking: asyncio.Lock = field(default_factory=asyncio.Lock)

    def close(self) -> None:
        """Close the descriptors."""
        for fd in self.fds:
            os.close(fd)


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
        async with engine.asking:
            if session.closed or session.mapping is not None:
                return
            message = MapEngine(
                mapping=session.mapping_number,
                blocks=session.blocks,
                block_bytes=session.block_bytes,
                stride_bytes=session.stride_bytes,
            )
            worker_epoch = self._core.recovery.epoch(WorkerRole.OFFLOAD_WORKER)
            await self._mapper.map_engine(message, engine.fds)
        if worker_epoch == self._core.recovery.epoch(WorkerRole.OFFLOAD_WORKER):
            with deciding():
                self._core.mapped(session)

    def map_later(self, engines: Iterable[ConnectedEngine]) -> None:
        """Map in the background, as long as the worker is there."""
        for engine in engines:
            self._spawn(self._until_mapped(engine))

    def unmap(self, engine: ConnectedEngine) -> None:
        """The engine is gone: unmap in the background."""
        self._spawn(self._unmap(engine))

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

    async def _unmap(self, engine: ConnectedEngine) -> None:
        """The worker answers once no job uses the mapping; one that is away forgets it with its life."""
        async with engine.asking:  # after a mapping that is being made
            pass
        try:
            await self._mapper.unmap_engine(UnmapEngine(mapping=engine.session.mapping_number))
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
