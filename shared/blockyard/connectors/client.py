"""Client of the block-manager for engines: one memory API over all tiers.

::

    lookup(run) -> availability per block         pure and repeatable
    reserve(request, run) / release(request)      lease against eviction
    load(request, run, blocks) -> LoadResult      bytes into G1, exact status per block
    register(run, blocks)                         G1 blocks complete: offered to the lower tiers
    deregister(blocks) / reset()                  G1 blocks about to be reused

``lookup``, ``load`` and ``register`` take the W3C ``traceparent`` of the engine's request: what the node records about
them joins that trace. Anything else given there counts as none.
The client reconnects by itself, says hello again, announces its G1 set and asks for old writes to be settled. While
there is no connection, or the block-manager leaves a call without an answer, every call raises ``UnavailableError`` at
once: the engine goes on as if nothing were cached. A block-manager that was told too little meanwhile is told anew.
Calls are open as soon as hello was answered; of one memory block the block-manager hears in the order of the calls,
also while the set is still being announced.
Invariants: a block named in an unfinished load is in ``unsettled_blocks`` and must not be reused until it leaves it;
guards are raised before the block-manager is told; what the block-manager refused is not announced again.
Threading: one event loop; not thread-safe.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self, final

from blockyard.connectors.call_columns import availability_of, check_blocks, check_places, column, wire_run
from blockyard.connectors.engine_memory import EngineMemory
from blockyard.connectors.g1_set import G1Set, RegisteredRun
from blockyard.connectors.load_result import LoadResult
from blockyard.connectors.manager_connector import ManagerConnector
from blockyard.connectors.manager_link import CALL_TIMEOUT_SECONDS, PATIENT_SECONDS, ManagerLink
from blockyard.core.chain_run import ChainRun
from blockyard.core.errors import (
    BlockyardError,
    DeadlineExceededError,
    PeerClosedError,
    RequestError,
    TooManyKeysError,
    UnavailableError,
)
from blockyard.core.identity import ModelIdentity
from blockyard.core.vocabulary import (
    DEFAULT_TENANT,
    Availability,
    EngineBlockId,
    EngineId,
    LoadId,
    RequestId,
    TenantDigest,
)
from blockyard.wire import connector_channel as channel
from blockyard.wire.codec import MAX_KEYS_PER_CALL, PROTOCOL_VERSION
from blockyard.wire.trace_parent import NO_TRACE, TraceParent, parse_trace_parent

__all__ = ["BlockyardClient", "EngineDescription", "LoadResult"]

_log: Final = logging.getLogger(__name__)

_SETTLE_SECONDS: Final = 30.0
"""How long after its deadline a load may still be settling before the connection is given up."""
_OVERDUE_SECONDS: Final = 0.25
"""How long after its deadline the end of a load is waited for: its request goes on then, its blocks stay unsettled."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class EngineDescription:
    """Who the engine is; sent with every hello."""

    engine: EngineId
    identity: ModelIdentity
    dp_rank: int = 0


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
        self._description = description
        self._memory = memory
        self._set = G1Set()
        self._unsettled: set[EngineBlockId] = set()
        self._abandoned: set[asyncio.Task[None]] = set()
        """Ends of loads whose callers were cancelled."""
        self._connector = ManagerConnector(socket, self._hello, self._welcomed, on_state)

    async def __aenter__(self) -> Self:
        """Start connecting in the background."""
        self._connector.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Close the connection; the node drops this engine's G1 set, and loads in progress end."""
        for task in self._abandoned:
            task.cancel()
        await asyncio.gather(self._connector.stop(), *self._abandoned, return_exceptions=True)

    # --- state --------------------------------------------------------------------------------------------------------
    async def wait_connected(self, timeout_seconds: float) -> None:
        """Wait until hello was answered.

        Raises:
            UnavailableError: no block-manager answered in time; says what stood in the way.
            RequestError: it refused this engine.
            ConfigurationError: there can be no socket at this path.
        """
        await self._connector.wait_connected(timeout_seconds)

    @property
    def connected(self) -> bool:
        """Whether calls can be made now."""
        return self._connector.link is not None

    @property
    def unsettled_blocks(self) -> frozenset[EngineBlockId]:
        """G1 blocks that a write may still reach; not to be reused."""
        return frozenset(self._unsettled)

    # --- calls --------------------------------------------------------------------------------------------------------
    async def lookup(
        self, run: ChainRun, *, tenant: TenantDigest = DEFAULT_TENANT, remote_wait_seconds: float = 0.0, trace: str = ""
    ) -> tuple[Availability, ...]:
        """Best source of each block; takes nothing."""
        request = channel.Lookup(run=wire_run(run), tenant=tenant, remote_wait_ms=int(remote_wait_seconds * 1_000))
        reply = await self._connector.connected().call(
            request,
            channel.LookupReply,
            timeout_seconds=CALL_TIMEOUT_SECONDS + remote_wait_seconds,
            trace=parse_trace_parent(trace),
        )
        return availability_of(reply, len(run))

    async def reserve(self, request: RequestId, run: ChainRun, *, ttl_seconds: float = 5.0) -> int:
        """Lease the local blocks of a request; returns how many are held from the start. Idempotent."""
        message = channel.Reserve(request=request, run=wire_run(run), ttl_ms=int(ttl_seconds * 1_000))
        return (await self._connector.connected().call(message, channel.Reserved)).held

    async def release(self, request: RequestId) -> None:
        """End the lease of a request; idempotent."""
        await self._connector.connected().call(channel.Release(request=request), channel.Done)

    async def register(
        self,
        run: ChainRun,
        blocks: Sequence[EngineBlockId],
        *,
        tenant: TenantDigest = DEFAULT_TENANT,
        trace: str = "",
    ) -> None:
        """Announce G1 blocks whose writes are complete: block i of the run lies in ``blocks[i]``.

        Kept also without a connection, and announced with the next one.

        Raises:
            RequestError: blocks and run do not fit, a block is named in an unfinished load, or the block-manager
                refused; nothing was kept.
            UnavailableError: not connected, or no answer; the blocks are announced with the next connection.
        """
        if len(run) > MAX_KEYS_PER_CALL:
            raise TooManyKeysError(keys=len(run), limit=MAX_KEYS_PER_CALL)
        check_places(run, blocks, self._memory.blocks)
        if unfinished := self._unsettled.intersection(blocks):
            raise RequestError("a block is named in an unfinished load", block=min(unfinished))
        registered = RegisteredRun(run, tenant, tuple(blocks))
        self._set.add(registered)
        try:
            await self._tell(self._register_message(registered), channel.Registered, parse_trace_parent(trace))
        except RequestError:
            self._set.withdraw(registered)
            raise

    async def deregister(self, blocks: Sequence[EngineBlockId]) -> None:
        """Declare G1 blocks as about to be reused or freed; guards are raised even without a connection.

        Raises:
            RequestError: there is no such block; nothing changed.
            UnavailableError: not connected, or no answer; the next connection will not hear of these blocks.
        """
        check_blocks(blocks, self._memory.blocks)
        self._memory.raise_guards(blocks)
        self._set.discard(blocks)
        await self._tell(channel.Deregister(blocks=column("I", blocks)), channel.Done)

    async def reset(self) -> None:
        """Declare all G1 blocks as free; guards are raised even without a connection."""
        self._memory.raise_guards([EngineBlockId(block) for block in range(self._memory.blocks)])
        self._set.clear()
        await self._tell(channel.Reset(), channel.Done)

    async def load(
        self,
        request: RequestId,
        run: ChainRun,
        blocks: Sequence[EngineBlockId],
        *,
        ttl_seconds: float,
        tenant: TenantDigest = DEFAULT_TENANT,
        trace: str = "",
    ) -> LoadResult:
        """Bring block i of the run into G1 block ``blocks[i]``; answers when no further write can follow.

        A lost connection, or an end that is overdue, ends the load with status UNKNOWN for every block, and leaves the
        blocks unsettled until a block-manager says that no write of the load can reach them.

        Raises:
            RequestError: blocks and run do not fit, a block is registered (deregister it first) or named in an
                unfinished load, or the block-manager refused; nothing was begun.
            UnavailableError: not connected.
        """
        check_places(run, blocks, self._memory.blocks)
        if registered := self._set.registered(blocks):
            raise RequestError("deregister a block before something is loaded into it", block=min(registered))
        if unfinished := self._unsettled.intersection(blocks):
            raise RequestError("a block is named in an unfinished load", block=min(unfinished))
        link = self._connector.connected()
        message = channel.OpenLoad(
            request=request,
            run=wire_run(run),
            tenant=tenant,
            blocks=column("I", blocks),
            guards=column("Q", [self._memory.guard(block) for block in blocks]),
            ttl_ms=int(ttl_seconds * 1_000),
        )
        self._unsettled.update(blocks)
        try:
            open_call = link.call(message, channel.LoadOpened, trace=parse_trace_parent(trace))
            finished = await self._run_load(link, open_call, blocks, ttl_seconds + _OVERDUE_SECONDS)
        except (PeerClosedError, DeadlineExceededError):
            link.give_up()  # written or not is unknown: the next connection settles the blocks
            return LoadResult.unknown(len(blocks))
        except UnavailableError:
            self._unsettled.difference_update(blocks)  # the node is not ready: nothing was begun
            return LoadResult.unknown(len(blocks))
        except BlockyardError:
            self._unsettled.difference_update(blocks)  # refused before anything was planned
            raise
        if finished is None:
            return LoadResult.unknown(len(blocks))
        self._unsettled.difference_update(blocks)
        return LoadResult.of(finished, len(blocks))

    # --- loads --------------------------------------------------------------------------------------------------------
    async def _run_load(
        self,
        link: ManagerLink,
        open_call: Coroutine[object, object, channel.LoadOpened],
        blocks: Sequence[EngineBlockId],
        timeout_seconds: float,
    ) -> channel.LoadFinished | None:
        """The end of a load; None where it is overdue, and settled in the background."""
        opening = asyncio.create_task(open_call)
        try:
            # Shielded: a caller that goes away must not take with it the number by which the load can be closed.
            opened = await asyncio.shield(opening)
        except asyncio.CancelledError:
            self._abandon(link, opening, blocks)
            raise
        try:
            return await link.finished(LoadId(opened.load), timeout_seconds)
        except asyncio.CancelledError:
            self._abandon(link, opening, blocks)
            raise
        except DeadlineExceededError:
            self._abandon(link, opening, blocks)
            return None

    def _abandon(
        self, link: ManagerLink, opening: asyncio.Task[channel.LoadOpened], blocks: Sequence[EngineBlockId]
    ) -> None:
        task = asyncio.create_task(self._close_load(link, opening, tuple(blocks)))
        self._abandoned.add(task)
        task.add_done_callback(self._abandoned.discard)

    async def _close_load(
        self, link: ManagerLink, opening: asyncio.Task[channel.LoadOpened], blocks: tuple[EngineBlockId, ...]
    ) -> None:
        """Give the blocks of an abandoned load back once no write can follow."""
        try:
            load = LoadId((await opening).load)
        except (PeerClosedError, DeadlineExceededError):
            link.give_up()  # the next connection settles the blocks
        except BlockyardError:
            self._unsettled.difference_update(blocks)  # refused before anything was planned
        else:
            try:
                await link.call(channel.CloseLoad(load=load), channel.Done, timeout_seconds=_SETTLE_SECONDS)
            except BlockyardError:
                link.give_up()
            else:
                link.forget(load)
                self._unsettled.difference_update(blocks)

    # --- connection ---------------------------------------------------------------------------------------------------
    def _hello(self) -> tuple[channel.Hello, tuple[int, int]]:
        hello = channel.Hello(
            version=PROTOCOL_VERSION,
            engine=self._description.engine,
            dp_rank=self._description.dp_rank,
            identity=self._description.identity,
            blocks=self._memory.blocks,
            block_bytes=self._memory.block_bytes,
            stride_bytes=self._memory.block_bytes,
        )
        return hello, (self._memory.kv_fd, self._memory.guard_fd)

    def _welcomed(self, link: ManagerLink) -> Sequence[Coroutine[object, object, None]]:
        """A connection is open: what is held by now is announced, what is registered from here on is told over it."""
        self._set.announce_all()
        return self._announce_set(link), self._settle(link, frozenset(self._unsettled))

    async def _tell(
        self,
        message: channel.Request,
        kind: type[channel.Registered] | type[channel.Done],
        trace: TraceParent = NO_TRACE,
    ) -> None:
        """Report a change of the G1 set; where it was not carried out, the next connection announces the whole set."""
        link = self._connector.connected()
        try:
            await link.call(message, kind, trace=trace)
        except DeadlineExceededError:
            raise  # sent, and carried out in its turn
        except UnavailableError:
            link.give_up()
            raise

    async def _announce_set(self, link: ManagerLink) -> None:
        while (registered := self._set.next_run(MAX_KEYS_PER_CALL)) is not None:
            try:
                message = self._register_message(registered)
                await link.call(message, channel.Registered, timeout_seconds=PATIENT_SECONDS)
            except UnavailableError:
                link.give_up()  # the next connection announces the whole set
                return
            except BlockyardError as error:
                _log.warning("the block-manager refuses blocks of the engine's set: %s", error)
                self._set.withdraw(registered)

    async def _settle(self, link: ManagerLink, blocks: frozenset[EngineBlockId]) -> None:
        """Wait until writes of an earlier connection are over, then give their blocks back to the engine."""
        if not blocks:
            return
        try:
            await link.call(channel.Settle(), channel.Done, timeout_seconds=_SETTLE_SECONDS)
        except BlockyardError:
            link.give_up()  # still not settled: the next connection asks again
        else:
            self._unsettled -= blocks

    def _register_message(self, registered: RegisteredRun) -> channel.Register:
        return channel.Register(
            run=wire_run(registered.run),
            tenant=registered.tenant,
            blocks=column("I", registered.blocks),
            guards=column("Q", [self._memory.guard(block) for block in registered.blocks]),
        )
