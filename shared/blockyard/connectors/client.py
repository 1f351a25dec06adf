"""Client of the block-manager for engines: one memory API over all tiers.

::

    lookup(run) -> availability per block         pure and repeatable
    reserve(request, run) / release(request)      lease against eviction
    load(request, run, blocks) -> LoadResult      bytes into G1, exact status per block
    register(run, blocks)                         G1 blocks complete: offered to the lower tiers
    deregister(blocks) / reset()                  G1 blocks about to be reused

The client reconnects by itself, says hello again, announces its G1 set and asks for old writes to be settled. While
there is no connection every call raises ``UnavailableError`` at once: the engine goes on as if nothing were cached.
Invariants: a block named in an unfinished load is in ``unsettled_blocks`` and must not be reused until it leaves it;
guards are raised before the block-manager is told. Threading: one event loop; not thread-safe.
"""

import asyncio
import logging
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self, final

from blockyard.connectors.engine_memory import EngineMemory
from blockyard.connectors.g1_set import G1Set, RegisteredRun
from blockyard.connectors.manager_link import CALL_TIMEOUT_SECONDS, ManagerLink
from blockyard.core.chain_run import ChainRun
from blockyard.core.errors import (
    BlockyardError,
    IdentityMismatchError,
    LayoutMismatchError,
    TooManyKeysError,
    UnavailableError,
    UnsupportedVersionError,
)
from blockyard.core.identity import ModelIdentity
from blockyard.core.vocabulary import (
    DEFAULT_TENANT,
    Availability,
    EngineBlockId,
    EngineId,
    ItemStatus,
    LoadId,
    RequestId,
    TenantDigest,
    Tier,
)
from blockyard.runtime.backoff import Backoff
from blockyard.wire import connector_channel as channel
from blockyard.wire.codec import MAX_KEYS_PER_CALL, PROTOCOL_VERSION

_log: Final = logging.getLogger(__name__)

_SETTLE_SECONDS: Final = 30.0
"""How long after its deadline a load may still be settling before the connection is given up."""

_REFUSALS: Final = (IdentityMismatchError, LayoutMismatchError, UnsupportedVersionError)
"""Answers to ``Hello`` that no reconnect can change."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class EngineDescription:
    """Who the engine is; sent with every hello."""

    engine: EngineId
    identity: ModelIdentity
    dp_rank: int = 0


@final
@dataclass(frozen=True, slots=True)
class LoadResult:
    """End of a load: per block a status and the tier its bytes came from (None where nothing was loaded)."""

    statuses: tuple[ItemStatus, ...]
    sources: tuple[Tier | None, ...]

    @property
    def usable(self) -> int:
        """Length of the run of loaded blocks from the start: the part that is a valid prefix."""
        return next(
            (index for index, status in enumerate(self.statuses) if status is not ItemStatus.OK), len(self.statuses)
        )


class BlockyardClient:
    """Connection of one engine to the block-manager of its node; use as an async context manager."""

    def __init__(
        self,
        socket: Path,
        description: EngineDescription,
        memory: EngineMemory,
        *,
        on_state: Callable[[bool], None] = lambda connected: None,
    ) -> None:
        """Prepare; ``on_state`` is told True after each hello and False after each loss of the connection."""
        self._socket = socket
        self._description = description
        self._memory = memory
        self._on_state = on_state
        self._link: ManagerLink | None = None
        self._set = G1Set()
        self._unsettled: set[EngineBlockId] = set()
        self._connector: asyncio.Task[None] | None = None
        self._closing_loads: set[asyncio.Task[None]] = set()
        self._answered = asyncio.Event()
        self._refusal: BlockyardError | None = None

    async def __aenter__(self) -> Self:
        """Start connecting in the background."""
        self._connector = asyncio.create_task(self._stay_connected(), name="blockyard-client")
        self._connector.add_done_callback(self._connector_ended)
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Close the connection; the node drops this engine's G1 set."""
        tasks = [task for task in (self._connector, *self._closing_loads) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)  # a defect was logged when it happened

    # --- state --------------------------------------------------------------------------------------------------------
    async def wait_connected(self, timeout_seconds: float) -> None:
        """Wait until hello was answered.

        Raises:
            UnavailableError: no block-manager answered in time.
            IdentityMismatchError, LayoutMismatchError, UnsupportedVersionError: it refused this engine.
        """
        try:
            await asyncio.wait_for(self._answered.wait(), timeout_seconds)
        except TimeoutError:
            raise UnavailableError("no block-manager answered", socket=str(self._socket)) from None
        if self._refusal is not None:
            raise self._refusal
        if self._connector is not None and self._connector.done():
            self._connector.result()

    @property
    def connected(self) -> bool:
        """Whether calls can be made now."""
        return self._link is not None

    @property
    def unsettled_blocks(self) -> frozenset[EngineBlockId]:
        """G1 blocks that a write may still reach; not to be reused."""
        return frozenset(self._unsettled)

    # --- calls --------------------------------------------------------------------------------------------------------
    async def lookup(
        self, run: ChainRun, *, tenant: TenantDigest = DEFAULT_TENANT, remote_wait_seconds: float = 0.0
    ) -> tuple[Availability, ...]:
        """Best source of each block; takes nothing."""
        request = channel.Lookup(run=_wire_run(run), tenant=tenant, remote_wait_ms=int(remote_wait_seconds * 1_000))
        timeout_seconds = CALL_TIMEOUT_SECONDS + remote_wait_seconds
        reply = await self._connected().call(request, channel.LookupReply, timeout_seconds=timeout_seconds)
        return tuple(Availability(value) for value in reply.availability)

    async def reserve(self, request: RequestId, run: ChainRun, *, ttl_seconds: float = 5.0) -> int:
        """Lease the local blocks of a request; returns how many are held from the start. Idempotent."""
        message = channel.Reserve(request=request, run=_wire_run(run), ttl_ms=int(ttl_seconds * 1_000))
        return (await self._connected().call(message, channel.Reserved)).held

    async def release(self, request: RequestId) -> None:
        """End the lease of a request; idempotent."""
        await self._connected().call(channel.Release(request=request), channel.Done)

    async def register(
        self, run: ChainRun, blocks: Sequence[EngineBlockId], *, tenant: TenantDigest = DEFAULT_TENANT
    ) -> None:
        """Announce G1 blocks whose writes are complete: block i of the run lies in ``blocks[i]``.

        Kept also without a connection, and announced with the next one.

        Raises:
            TooManyKeysError: more blocks than one call carries; nothing was kept.
        """
        if len(run) > MAX_KEYS_PER_CALL:
            raise TooManyKeysError(keys=len(run), limit=MAX_KEYS_PER_CALL)
        registered = RegisteredRun(run, tenant, tuple(blocks))
        self._set.add(registered)
        await self._announce(self._connected(), registered)

    async def deregister(self, blocks: Sequence[EngineBlockId]) -> None:
        """Declare G1 blocks as about to be reused or freed; guards are raised even without a connection."""
        self._memory.raise_guards(blocks)
        self._set.discard(blocks)
        await self._connected().call(channel.Deregister(blocks=_column("I", blocks)), channel.Done)

    async def reset(self) -> None:
        """Declare all G1 blocks as free; guards are raised even without a connection."""
        self._memory.raise_guards([EngineBlockId(block) for block in range(self._memory.blocks)])
        self._set.clear()
        await self._connected().call(channel.Reset(), channel.Done)

    async def load(
        self,
        request: RequestId,
        run: ChainRun,
        blocks: Sequence[EngineBlockId],
        *,
        ttl_seconds: float,
        tenant: TenantDigest = DEFAULT_TENANT,
    ) -> LoadResult:
        """Bring block i of the run into G1 block ``blocks[i]``; answers when no further write can follow.

        A lost connection ends the load with status UNKNOWN for every block, and leaves the blocks unsettled until a
        block-manager says that no write of the old life can reach them.
        """
        link = self._connected()
        message = channel.OpenLoad(
            request=request,
            run=_wire_run(run),
            tenant=tenant,
            blocks=_column("I", blocks),
            guards=_column("Q", [self._memory.guard(block) for block in blocks]),
            ttl_ms=int(ttl_seconds * 1_000),
        )
        self._unsettled.update(blocks)
        try:
            finished = await self._run_load(link, message, blocks, ttl_seconds + _SETTLE_SECONDS)
        except UnavailableError:
            link.close()  # the next connection settles the blocks
            return LoadResult((ItemStatus.UNKNOWN,) * len(blocks), (None,) * len(blocks))
        self._unsettled.difference_update(blocks)
        statuses = tuple(ItemStatus(value) for value in finished.status)
        return LoadResult(statuses, tuple(Tier(value) if value else None for value in finished.sources))

    # --- loads --------------------------------------------------------------------------------------------------------
    async def _run_load(
        self, link: ManagerLink, message: channel.OpenLoad, blocks: Sequence[EngineBlockId], timeout_seconds: float
    ) -> channel.LoadFinished:
        try:
            opened = await link.call(message, channel.LoadOpened)
        except UnavailableError:
            raise
        except BlockyardError:
            self._unsettled.difference_update(blocks)  # refused before anything was planned
            raise
        except asyncio.CancelledError:
            link.close()  # opened or not is unknown: the next connection settles the blocks
            raise
        try:
            return await link.finished(LoadId(opened.load), timeout_seconds)
        except asyncio.CancelledError:
            task = asyncio.create_task(self._close_load(link, LoadId(opened.load), tuple(blocks)))
            self._closing_loads.add(task)
            task.add_done_callback(self._closing_loads.discard)
            raise

    async def _close_load(self, link: ManagerLink, load: LoadId, blocks: tuple[EngineBlockId, ...]) -> None:
        try:
            await link.call(channel.CloseLoad(load=load), channel.Done, timeout_seconds=_SETTLE_SECONDS)
        except BlockyardError:
            link.close()  # the next connection settles the blocks
        else:
            link.forget(load)
            self._unsettled.difference_update(blocks)

    # --- connection ---------------------------------------------------------------------------------------------------
    def _connected(self) -> ManagerLink:
        if self._link is None:
            raise UnavailableError("not connected to a block-manager", socket=str(self._socket))
        return self._link

    def _connector_ended(self, task: asyncio.Task[None]) -> None:
        """Wake who waits for a connection; a defect in the connector must not look like a manager that is away."""
        self._answered.set()
        if not task.cancelled() and (defect := task.exception()) is not None:
            _log.error("the client stopped connecting", exc_info=defect)

    async def _stay_connected(self) -> None:
        backoff = Backoff(first_seconds=0.05, max_seconds=1.0)
        while True:
            try:
                await self._serve_one_link(backoff)
            except _REFUSALS as error:
                self._refusal = error
                return
            except BlockyardError:
                pass  # a block-manager that is away or restarting: try again below
            await asyncio.sleep(backoff.next_seconds())

    async def _serve_one_link(self, backoff: Backoff) -> None:
        link = await ManagerLink.open(self._socket)
        try:
            await self._say_hello(link)
            backoff.reset()
            self._link = link
            self._answered.set()
            self._on_state(True)
            async with asyncio.TaskGroup() as group:
                settling = group.create_task(self._settle(link))
                await link.wait_closed()
                settling.cancel()
        finally:
            if self._link is link:
                self._link = None
                self._answered.clear()
                self._on_state(False)
            link.close()

    async def _say_hello(self, link: ManagerLink) -> None:
        hello = channel.Hello(
            version=PROTOCOL_VERSION,
            engine=self._description.engine,
            dp_rank=self._description.dp_rank,
            identity=self._description.identity,
            blocks=self._memory.blocks,
            block_bytes=self._memory.block_bytes,
            stride_bytes=self._memory.block_bytes,
        )
        await link.call(hello, channel.Welcome, fds=(self._memory.kv_fd, self._memory.guard_fd))
        for registered in self._set.runs(MAX_KEYS_PER_CALL):
            await self._announce(link, registered)

    async def _settle(self, link: ManagerLink) -> None:
        """Wait until writes of an earlier life are over, then give the blocks back to the engine."""
        waiting = set(self._unsettled)
        if not waiting:
            return
        try:
            await link.call(channel.Settle(), channel.Done, timeout_seconds=_SETTLE_SECONDS)
        except BlockyardError:
            link.close()  # still not settled: the next connection asks again
        else:
            self._unsettled -= waiting

    async def _announce(self, link: ManagerLink, registered: RegisteredRun) -> None:
        message = channel.Register(
            run=_wire_run(registered.run),
            tenant=registered.tenant,
            blocks=_column("I", registered.blocks),
            guards=_column("Q", [self._memory.guard(block) for block in registered.blocks]),
        )
        await link.call(message, channel.Registered)


def _wire_run(run: ChainRun) -> channel.Run:
    return channel.Run(digests=run.digests, first_position=run.first_position, parent=run.parent)


def _column(code: str, values: Sequence[int]) -> bytes:
    """Packed column; the platforms of the engines (x86-64, arm64) are little-endian."""
    return array(code, values).tobytes()
