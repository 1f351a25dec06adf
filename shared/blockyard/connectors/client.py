"""Client of the block-manager for engines: one memory API over all tiers.

::

    lookup(run) -> availability per block and group   pure and repeatable
    reserve(request, run) / release(request)          lease against eviction
    load(request, run, pages) -> LoadResult           bytes into G1, exact status per row
    register(run, pages)                              rows complete in G1: offered to the lower tiers
    deregister(blocks) / reset()                      G1 blocks about to be reused
    reserve_store … close_load                        slots that ranks copy themselves (``connectors.slot_calls``)

*Pages* are the engine blocks of the rows of a run, row by row (see ``core.kv_groups``). ``lookup``, ``load`` and
``register`` take the W3C ``traceparent`` of the engine's request: what the node records about them joins that trace.
Anything else given there counts as none.
The client reconnects by itself, says hello again, announces its G1 set and asks for old writes to be settled. While
there is no connection, or the block-manager leaves a call without an answer, every call raises ``UnavailableError`` at
once: the engine goes on as if nothing were cached. A block-manager that was told too little meanwhile is told anew.
Calls are open as soon as hello was answered; of one memory block the block-manager hears in the order of the calls,
also while the set is still being announced.
Invariants: a block named in an unfinished load is in ``unsettled_blocks`` and must not be reused until it leaves it;
the engine raises a guard before the block-manager is told, and a block whose guard was not raised is not taken back;
what the block-manager refused is not announced again. Every ticket is told as settled exactly once.
Threading: one event loop; not thread-safe. Guards may be raised by another thread.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Self

from blockyard.connectors.call_columns import (
    availability_of,
    check_blocks,
    check_pages,
    column,
    wanted_pages,
    wire_run,
)
from blockyard.connectors.engine_description import EngineDescription
from blockyard.connectors.engine_guards import EngineGuards
from blockyard.connectors.engine_loads import EngineLoads
from blockyard.connectors.g1_reports import G1Reports
from blockyard.connectors.g1_set import RegisteredRun
from blockyard.connectors.load_result import LoadResult
from blockyard.connectors.manager_connector import ManagerConnector, Works
from blockyard.connectors.manager_link import CALL_TIMEOUT_SECONDS, ManagerLink, Notice
from blockyard.connectors.rank_memory import RankMemory, attach_message
from blockyard.connectors.slot_calls import SlotCalls
from blockyard.connectors.store_tickets import StoreTickets
from blockyard.core.chain_run import ChainRun
from blockyard.core.errors import (
    LayoutMismatchError,
    RequestError,
    TooManyKeysError,
)
from blockyard.core.vocabulary import (
    DEFAULT_TENANT,
    Availability,
    EngineBlockId,
    GroupId,
    Guard,
    RequestId,
    TenantDigest,
)
from blockyard.runtime.rpc.frame_buffer import close_descriptors
from blockyard.wire import connector_channel as channel
from blockyard.wire.codec import MAX_DECISIONS_PER_CALL, MAX_KEYS_PER_CALL, MAX_PAGES_PER_CALL
from blockyard.wire.trace_parent import parse_trace_parent

__all__ = ["BlockyardClient", "EngineDescription", "LoadResult"]

_ONLY_GROUP: Final = GroupId(0)


class BlockyardClient(SlotCalls):
    """Connection of one engine to the block-manager of its node; use as an async context manager."""

    def __init__(
        self,
        socket: Path,
        description: EngineDescription,
        guards: EngineGuards,
        *,
        memory: RankMemory | None = None,
        on_state: Callable[[bool], None] = lambda connected: None,
        on_loading: Callable[[bool], None] = lambda loading: None,
        on_stores_settled: Callable[[int], None] = lambda ticket: None,
    ) -> None:
        """Prepare.

        Args:
            socket: where the block-manager serves engines.
            description: who the engine is.
            guards: its guard words; raised by the engine, read here.
            memory: KV memory of an engine without rank processes of its own, whose one rank rides on this connection.
            on_state: told True after each hello and False after each loss of the connection.
            on_loading: told whether loads are switched on at the node, at first and whenever it changes.
            on_stores_settled: told each ticket of ``register`` when no store of its rows is wanted or under way any
                more, also because the call failed or the connection ended.

        Raises:
            LayoutMismatchError: guards and description name different numbers of blocks.
        """
        if guards.blocks != description.blocks:
            raise LayoutMismatchError(
                "one guard per block of the engine", guards=guards.blocks, blocks=description.blocks
            )
        self._description = description
        self._guards = guards
        self._memory = memory
        self._loads = EngineLoads()
        self._on_state = on_state
        self._on_loading = on_loading
        self._tickets = StoreTickets(on_stores_settled)
        self._loading: bool | None = None
        self._connector = ManagerConnector(
            socket, self._introduce, self._state_changed, self._noticed, who=f"engine {description.engine}"
        )
        super().__init__(self._connector.connected)
        self._reports = G1Reports(guards, self._connector.connected)

    async def __aenter__(self) -> Self:
        """Start connecting in the background."""
        self._connector.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Close the connection; the node drops this engine's G1 set, and loads in progress end."""
        await self._connector.stop()
        await self._loads.close()
        await self._end_slot_calls()

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
        return self._loads.unsettled

    # --- calls --------------------------------------------------------------------------------------------------------
    async def lookup(
        self,
        run: ChainRun,
        *,
        groups: Sequence[GroupId] = (_ONLY_GROUP,),
        tenant: TenantDigest = DEFAULT_TENANT,
        remote_wait_seconds: float = 0.0,
        trace: str = "",
    ) -> tuple[tuple[Availability, ...], ...]:
        """Best source of each block, one tuple per group; takes nothing."""
        request = channel.Lookup(
            run=wire_run(run), groups=tuple(groups), tenant=tenant, remote_wait_ms=int(remote_wait_seconds * 1_000)
        )
        reply = await self._connector.connected().call(
            request,
            channel.LookupReply,
            timeout_seconds=CALL_TIMEOUT_SECONDS + remote_wait_seconds,
            trace=parse_trace_parent(trace),
        )
        self._loading_is(reply.loading)
        return availability_of(reply, len(run), len(groups))

    async def reserve(
        self,
        request: RequestId,
        run: ChainRun,
        *,
        groups: Sequence[GroupId] = (_ONLY_GROUP,),
        ttl_seconds: float = 5.0,
    ) -> int:
        """Lease the local blocks of a request; returns how many all groups hold from the start. Idempotent."""
        message = channel.Reserve(
            request=request, run=wire_run(run), groups=tuple(groups), ttl_ms=int(ttl_seconds * 1_000)
        )
        return (await self._connector.connected().call(message, channel.Reserved)).held

    async def release(self, request: RequestId) -> None:
        """End the lease of a request; idempotent."""
        await self._connector.connected().call(channel.Release(request=request), channel.Done)

    async def register(
        self,
        run: ChainRun,
        pages: Sequence[EngineBlockId],
        *,
        group: GroupId = _ONLY_GROUP,
        tenant: TenantDigest = DEFAULT_TENANT,
        trace: str = "",
        ticket: int = 0,
        guards: Sequence[Guard] | None = None,
    ) -> None:
        """Announce rows whose writes are complete: row i of the run lies in ``pages[i*k:(i+1)*k]``.

        Kept also without a connection, and announced with the next one, without their ticket.

        Args:
            run: names of the rows.
            pages: engine blocks, k per row of the group.
            group: KV group of the rows.
            tenant: whose rows they are.
            trace: trace context of the engine's request.
            ticket: where it is not 0, ``on_stores_settled`` is told it once, after this call or during it; a number
                that no other unsettled call has.
            guards: guards of the pages when their rows were written; by default those of now.

        Raises:
            RequestError: pages and run do not fit, a block is named in an unfinished load, or the block-manager
                refused; nothing was kept.
            UnavailableError: not connected, or no answer; the rows are announced with the next connection.
        """
        self._tickets.open(ticket)
        try:
            registered = self._registered_run(run, pages, group, tenant, guards)
            await self._reports.register(registered, ticket, parse_trace_parent(trace))
        except BaseException:
            self._tickets.settle(ticket)
            raise

    async def deregister(self, blocks: Sequence[EngineBlockId]) -> None:
        """Declare G1 blocks as about to be reused or freed; the engine has raised their guards before.

        Raises:
            RequestError: there is no such block, or a guard was not raised since the block was registered; nothing
                changed.
            UnavailableError: not connected, or no answer; the next connection will not hear of these blocks.
        """
        check_blocks(blocks, self._description.blocks)
        await self._reports.deregister(blocks)

    async def reset(self) -> None:
        """Declare all G1 blocks as free; the engine has raised all guards before. Raises as ``deregister``."""
        await self._reports.reset()

    async def load(
        self,
        request: RequestId,
        run: ChainRun,
        pages: Sequence[EngineBlockId],
        *,
        group: GroupId = _ONLY_GROUP,
        ttl_seconds: float,
        tenant: TenantDigest = DEFAULT_TENANT,
        trace: str = "",
        guards: Sequence[Guard] | None = None,
    ) -> LoadResult:
        """Bring row i of the run into ``pages[i*k:(i+1)*k]``; answers when no further write can follow.

        ``NO_PAGE`` among the pages leaves that part of its row out. The guards are those of the pages now, unless the
        engine names those that it saw when it chose the pages. A lost connection, or an end that is overdue, ends the
        load with status UNKNOWN for every row, and leaves the blocks unsettled until a block-manager says that no
        write of the load can reach them.

        Raises:
            RequestError: pages and run do not fit, a block is registered (deregister it first) or named in an
                unfinished load, or the block-manager refused; nothing was begun.
            UnavailableError: not connected.
        """
        blocks = wanted_pages(pages)
        self._check_pages(run, pages, blocks, group)
        self._reports.check_unnamed(blocks)
        self._loads.check_settled(blocks)
        link = self._connector.connected()
        message = channel.OpenLoad(
            request=request,
            run=wire_run(run),
            group=group,
            tenant=tenant,
            pages=column("I", pages),
            guards=column("Q", self._guard_column(pages, guards)),
            ttl_ms=int(ttl_seconds * 1_000),
        )
        return await self._loads.run(link, message, blocks, len(run), parse_trace_parent(trace))

    async def report_decisions(self, decisions: Sequence[channel.RequestDecision]) -> None:
        """Tell what was decided for requests at their admission, so that operators can ask why something was a miss.

        Raises:
            RequestError: a decision says what cannot be.
            UnavailableError: not connected, or no answer; the decisions are forgotten.
        """
        link = self._connector.connected()
        for start in range(0, len(decisions), MAX_DECISIONS_PER_CALL):
            part = tuple(decisions[start : start + MAX_DECISIONS_PER_CALL])
            await link.call(channel.ReportDecisions(decisions=part), channel.Done)

    # --- checks -------------------------------------------------------------------------------------------------------
    def _check_pages(
        self, run: ChainRun, pages: Sequence[EngineBlockId], blocks: Sequence[EngineBlockId], group: GroupId
    ) -> None:
        check_pages(run, pages, self._description.pages_per_row(group))
        check_blocks(blocks, self._description.blocks)

    def _registered_run(
        self,
        run: ChainRun,
        pages: Sequence[EngineBlockId],
        group: GroupId,
        tenant: TenantDigest,
        guards: Sequence[Guard] | None,
    ) -> RegisteredRun:
        if len(run) > MAX_KEYS_PER_CALL:
            raise TooManyKeysError(keys=len(run), limit=MAX_KEYS_PER_CALL)
        if len(pages) > MAX_PAGES_PER_CALL:
            raise TooManyKeysError(pages=len(pages), limit=MAX_PAGES_PER_CALL)
        self._check_pages(run, pages, pages, group)
        self._loads.check_settled(pages)
        return RegisteredRun(run, tenant, group, tuple(pages), tuple(self._guard_column(pages, guards)))

    def _guard_column(self, pages: Sequence[EngineBlockId], guards: Sequence[Guard] | None) -> Sequence[Guard]:
        if guards is None:
            return self._guards.guards_of(pages)
        if len(guards) != len(pages):
            raise RequestError("one guard per page", guards=len(guards), pages=len(pages))
        return guards

    # --- connection ---------------------------------------------------------------------------------------------------
    async def _introduce(self, link: ManagerLink) -> Works:
        """Say hello; what is held by then is announced, what is registered from there on is told over this link."""
        welcome, received = await link.introduce(self._description.hello(), channel.Welcome, (self._guards.fd,))
        close_descriptors(received)
        if self._memory is not None:
            engine, memory = self._description, self._memory
            request = attach_message(
                engine.engine, engine.dp_rank, 0, memory.memory_bytes, memory.regions, life=engine.life
            )
            _, received = await link.introduce(request, channel.RankAttached, (self._memory.fd,))
            close_descriptors(received)
        self._loading_is(welcome.loading)
        self._reports.nobody_knows()
        return self._reports.announce(link), self._loads.settle(link, self._loads.unsettled)

    def _state_changed(self, connected: bool) -> None:  # noqa: FBT001 - the connector tells one fact
        if not connected:
            self._tickets.settle_all()
        self._on_state(connected)

    def _noticed(self, push: Notice) -> None:
        if isinstance(push, channel.StoresSettled):
            self._tickets.settle(push.ticket)
        elif isinstance(push, channel.LoadingSwitched):
            self._loading_is(push.loading)

    def _loading_is(self, loading: bool) -> None:  # noqa: FBT001 - one fact
        if loading is not self._loading:
            self._loading = loading
            self._on_loading(loading)
