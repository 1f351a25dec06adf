"""The channel of engines and their ranks: who they are first, then requests, each one section of the core.

::

    connected ──hello──► session ──requests──► … ──socket closed──► the engine is gone: set, leases, loads end
    connected ──AttachRank──► rank, joined to its engine as soon as both are there ──socket closed──► rank lost

A newer hello of an engine replaces its earlier session (see ``engine_names``), and one of a rank its earlier one.
Invariants: requests before hello are refused; a load is answered by exactly one push, unless its engine is gone.
Threading: one event loop; requests of one engine may be in work side by side, each decides in one section.
"""

import asyncio
from functools import partial
from pathlib import Path
from typing import Final

from blockyard.core.errors import (
    BlockyardError,
    PeerClosedError,
    RequestError,
    UnavailableError,
    UnknownSessionError,
)
from blockyard.core.onboard_plan import LoadOutcome
from blockyard.core.vocabulary import Availability, EngineId, Executor, LoadId
from blockyard.runtime.current_trace import TraceScope, current_trace
from blockyard.runtime.logs import get_logger
from blockyard.runtime.rpc.server import RpcServer
from blockyard.runtime.rpc.session import RpcSession
from blockyard.wire import connector_channel as channel
from blockyard.wire.codec import PROTOCOL_VERSION
from blockyard_block_manager import connector_requests as requests
from blockyard_block_manager.decisions import deciding
from blockyard_block_manager.engine_checks import check_alike, check_attach, check_hello, check_rank
from blockyard_block_manager.engine_mappings import ConnectedEngine, EngineMapper, EngineMappings
from blockyard_block_manager.engine_names import check_name
from blockyard_block_manager.engine_ranks import AttachedRank, EngineKey, EngineRanks
from blockyard_block_manager.engine_sessions import EngineSession
from blockyard_block_manager.engine_writes import engine_writes_settled
from blockyard_block_manager.lookups import look_up
from blockyard_block_manager.node_core import NodeCore
from blockyard_block_manager.rank_requests import RankRequests, part
from blockyard_block_manager.remote_index import RemoteIndex
from blockyard_block_manager.section_waiters import SectionWaiters

_MAX_REMOTE_WAIT_MS: Final = 10_000
_log: Final = get_logger(__name__)


class ConnectorServer:
    """Serves engines; use as ``async with``."""

    def __init__(
        self,
        socket: Path,
        core: NodeCore,
        mapper: EngineMapper,
        index: RemoteIndex,
        waiters: SectionWaiters,
        slots: RankRequests,
    ) -> None:
        """Prepare to serve on ``socket``; engine memory is mapped by ``mapper``, ranks that copy ask ``slots``."""
        self._core = core
        self._index = index
        self._waiters = waiters
        self._slots = slots
        self._engines: dict[RpcSession, ConnectedEngine] = {}
        self._ranks = EngineRanks()
        self._mappings = EngineMappings(core, mapper)
        core.loading.follow(self._loading_switched)
        self._rpc: RpcServer[channel.Request, channel.Reply] = RpcServer(
            socket, channel.Request, self._handle, on_disconnect=self._disconnected
        )

    async def __aenter__(self) -> "ConnectorServer":
        """Bind and accept."""
        await self._rpc.__aenter__()
        return self

    async def __aexit__(self, *exc: object) -> None:
        """End all sessions."""
        try:
            await self._rpc.__aexit__(None, None, None)
        finally:
            await self._mappings.close()
            self._ranks.close()

    def map_engines(self) -> None:
        """The offload-worker has attached: map what its life does not map yet, in the background."""
        self._mappings.map_later(self._engines.values())

    def arena_replaced(self) -> None:
        """Copies are made between engine memory and another arena now: all of it is mapped under new numbers."""
        for engine in list(self._engines.values()):
            number = engine.session.mapping_number
            if number is not None:
                with deciding():
                    self._core.ranks_attached(engine.session, len(engine.ranks))
                self._mappings.unmap(engine, number)

    # --- requests -----------------------------------------------------------------------------------------------------
    async def _handle(
        self, rpc: RpcSession, request: channel.Request, fds: list[int]
    ) -> channel.Reply | tuple[channel.Reply, list[int]]:
        if isinstance(request, channel.Hello):
            return await self._hello(rpc, request, fds)
        if isinstance(request, channel.AttachRank):
            return await self._attach_rank(rpc, request, fds)
        engine = self._engines.get(rpc)
        if engine is None or engine.session.closed:
            raise UnknownSessionError("say hello first")
        with deciding():
            return await self._dispatch(engine, request)

    async def _dispatch(self, engine: ConnectedEngine, request: channel.Request) -> channel.Reply:
        session, core = engine.session, self._core
        match request:
            case channel.Register():
                return self._register(engine, request)
            case channel.Deregister():
                core.deregister(session, requests.engine_blocks(session, request.blocks))
            case channel.Lookup():
                return await self._lookup(session, request)
            case channel.Reserve():
                return self._reserve(session, request)
            case channel.Release():
                core.release(session, requests.request_id(request.request))
            case channel.OpenLoad():
                return self._open_load(engine, request)
            case channel.CloseLoad():
                load = LoadId(request.load)
                core.close_load(session, load)
                await self._waiters.until(lambda: session.closed or not core.loads.is_open(session, load))
            case channel.ReserveStore():
                return self._slots.reserve_store(session, request)
            case channel.CommitStore():
                self._slots.commit_store(session, request)
            case channel.AbortStore():
                self._slots.abort_store(session, request)
            case channel.ReportDecisions():
                core.decisions.report(session.engine, session.dp_rank, request.decisions)
            case channel.Settle():
                await self._waiters.until(lambda: session.closed or engine_writes_settled(core))
            case channel.Reset():
                core.reset(session)
            case channel.Hello() | channel.AttachRank():
                raise RequestError("who this is was said already")
        return channel.Done()

    def _register(self, engine: ConnectedEngine, request: channel.Register) -> channel.Reply:
        session, names = engine.session, requests.names_in(request.run)
        scope = requests.scope_of(session, request.tenant, self._core.profile.block_tokens, request.group)
        pages, guards = requests.pages_of(session, scope.group, len(names), request.pages, request.guards, gaps=False)
        rows = requests.g1_rows(scope, names, pages, guards)
        settled = partial(_push, engine, channel.StoresSettled(ticket=request.ticket)) if request.ticket else None
        spans = self._core.spans
        with spans.store(current_trace(), len(names)) as span, TraceScope(span.traceparent):
            registered, stores = self._core.register(session, rows, span.traceparent, settled)
            spans.stored(span, registered, stores)
        return channel.Registered(registered=registered, stores=stores)

    async def _lookup(self, session: EngineSession, request: channel.Lookup) -> channel.Reply:
        names = requests.names_in(request.run)
        groups = requests.groups_in(session, request.groups, len(names))
        block_tokens = self._core.profile.block_tokens
        scopes = [requests.scope_of(session, request.tenant, block_tokens, group) for group in groups]
        missing = channel.LookupReply(availability=bytes([Availability.MISS]) * len(names) * len(groups), loading=False)
        if not self._core.loading.enabled:
            return missing  # not counted as a lookup: nothing was asked
        wait_ms = min(max(request.remote_wait_ms, 0), _MAX_REMOTE_WAIT_MS)
        trace = current_trace()
        answers = await asyncio.gather(
            *(look_up(self._core, self._index, scope, names, wait_ms / 1_000, trace) for scope in scopes)
        )
        found = channel.LookupReply(availability=b"".join(map(bytes, answers)))
        return found if self._core.loading.enabled else missing

    def _reserve(self, session: EngineSession, request: channel.Reserve) -> channel.Reply:
        names = requests.names_in(request.run)
        groups = requests.groups_in(session, request.groups, len(names))
        ttl_ms = min(requests.ttl(request.ttl_ms), self._core.profile.max_lease_ms)
        held = self._core.reserve(session, requests.request_id(request.request), names, groups, ttl_ms)
        return channel.Reserved(held=held, ttl_ms=ttl_ms)

    def _open_load(self, engine: ConnectedEngine, request: channel.OpenLoad) -> channel.Reply:
        session, names = engine.session, requests.names_in(request.run)
        scope = requests.scope_of(session, request.tenant, self._core.profile.block_tokens, request.group)
        gaps = session.executor is not Executor.ENGINE
        if not gaps:
            self._slots.check_stage(session, request, len(names))
        count = len(names) if gaps else 0  # ranks that copy know their pages themselves
        pages, guards = requests.pages_of(session, scope.group, count, request.pages, request.guards, gaps=gaps)
        load = self._core.open_load(
            session,
            requests.request_id(request.request),
            scope,
            names,
            pages,
            guards,
            requests.ttl(request.ttl_ms),
            lambda load, outcome: self._load_finished(engine, load, outcome),
            current_trace(),
        )
        return channel.LoadOpened(load=load)

    def _load_finished(self, engine: ConnectedEngine, load: LoadId, outcome: LoadOutcome) -> None:
        if engine.session.executor is Executor.ENGINE:
            _push(engine, self._slots.staged_push(load, outcome))
            return
        _push(
            engine,
            channel.LoadFinished(
                load=load,
                status=bytes(outcome.status),
                sources=bytes(0 if tier is None else tier for tier in outcome.sources),
            ),
        )

    def _loading_switched(self, enabled: bool) -> None:  # noqa: FBT001 - one fact
        for engine in list(self._engines.values()):
            _push(engine, channel.LoadingSwitched(loading=enabled))

    # --- hello --------------------------------------------------------------------------------------------------------
    async def _hello(self, rpc: RpcSession, request: channel.Hello, fds: list[int]) -> channel.Reply:
        if rpc in self._engines:
            raise RequestError("hello was answered already")
        check_hello(request, self._core.profile)
        if len(fds) != 1:
            raise RequestError("hello brings one descriptor: the guards", field="descriptors", descriptors=len(fds))
        self._replace(request, rpc)
        with deciding():
            engine = ConnectedEngine(rpc, self._core.open_session(request), fds.pop())
        self._engines[rpc] = engine
        self._join_waiting(engine)
        try:
            await self._map(engine)
        except BlockyardError:
            self._drop(engine)
            raise
        if rpc.closed.is_set():
            self._drop(engine)
        _log.info("engine connected", engine=request.engine, dp_rank=request.dp_rank, blocks=request.blocks)
        session = engine.session
        return channel.Welcome(
            version=PROTOCOL_VERSION,
            instance=self._core.profile.instance,
            epoch=self._core.profile.epoch,
            session=session.session,
            identity=session.identity,
            loading=self._core.loading.enabled,
        )

    def _replace(self, hello: channel.Hello, rpc: RpcSession) -> None:
        engine = self._engine((EngineId(hello.engine), hello.dp_rank))
        if engine is not None:
            check_name(hello, rpc, engine)
            _log.info("an engine said hello again: its earlier session ends", engine=hello.engine)
            self._drop(engine)
            engine.rpc.close(UnknownSessionError("the engine has another connection"))

    def _engine(self, key: EngineKey) -> ConnectedEngine | None:
        session = self._core.sessions.of(*key)
        return next((engine for engine in self._engines.values() if engine.session is session), None)

    def _disconnected(self, rpc: RpcSession) -> None:
        engine = self._engines.get(rpc)
        if engine is not None:
            _log.info("engine gone", engine=engine.session.engine, dp_rank=engine.session.dp_rank)
            self._drop(engine)
        for rank in self._ranks.on_connection(rpc):
            self._rank_lost(rank)

    def _drop(self, engine: ConnectedEngine) -> None:
        if self._engines.pop(engine.rpc, None) is None:
            return
        number = engine.session.mapping_number
        with deciding():
            self._core.close_session(engine.session)
        engine.close()
        if number is not None:
            self._mappings.unmap(engine, number)
        part(engine, self._slots.awaited(), self._rank_lost)

    # --- ranks --------------------------------------------------------------------------------------------------------
    async def _attach_rank(
        self, rpc: RpcSession, request: channel.AttachRank, fds: list[int]
    ) -> channel.Reply | tuple[channel.Reply, list[int]]:
        check_attach(request)
        key = EngineId(request.engine), request.dp_rank
        own = self._engines.get(rpc)
        if own is not None and (own.session.engine, own.session.dp_rank) != key:
            raise RequestError("the connection belongs to another engine", field="engine", engine=request.engine)
        if len(fds) > 1:
            raise RequestError("a rank brings one descriptor: its memory", field="descriptors", descriptors=len(fds))
        rank = AttachedRank(rpc, request, fds[0] if fds else None)
        self._check_new(key, rank)
        process = None if fds else await self._slots.admit(request, rpc)
        try:
            engine, earlier = self._check_new(key, rank)
        except BlockyardError:
            self._slots.withdraw(process)
            raise
        if earlier is not None:
            _log.info("a rank attached again: its earlier connection ends", engine=request.engine, rank=request.rank)
            self._rank_lost(earlier)
            if earlier.rpc not in self._engines:
                earlier.rpc.close(UnknownSessionError("the rank has another connection"))
        fds.clear()
        self._ranks.attach(rank)
        answer = None if process is None else self._slots.attach(rank, process)
        if engine is not None:
            self._join(engine, rank)
            try:
                await self._map(engine)
            except BlockyardError:
                self._rank_lost(rank)
                raise
        if rpc.closed.is_set():
            self._rank_lost(rank)
        _log.info("rank attached", engine=request.engine, dp_rank=request.dp_rank, rank=request.rank)
        return answer or channel.RankAttached(version=PROTOCOL_VERSION)

    def _check_new(self, key: EngineKey, rank: AttachedRank) -> tuple[ConnectedEngine | None, AttachedRank | None]:
        """Engine of a rank and its earlier attachment, as far as they are there; raises where it fits neither."""
        engine, earlier = self._engine(key), self._ranks.of(key).get(rank.request.rank)
        if earlier is not None and earlier.rpc is rank.rpc:
            raise RequestError("the rank is attached already", field="rank", rank=rank.request.rank)
        if engine is not None:
            self._check_rank(engine, rank)
        return engine, earlier

    def _join_waiting(self, engine: ConnectedEngine) -> None:
        """An engine said hello: take over those of its ranks that came before it."""
        session = engine.session
        for rank in self._ranks.of((session.engine, session.dp_rank)).values():
            try:
                self._check_rank(engine, rank)
            except BlockyardError as error:
                _log.warning("a rank does not fit its engine", engine=session.engine, reason=str(error))
                self._rank_lost(rank)
                rank.rpc.close(error)
            else:
                self._join(engine, rank)

    def _check_rank(self, engine: ConnectedEngine, rank: AttachedRank) -> None:
        session = engine.session
        check_rank(
            rank.request,
            session.groups,
            life=session.life,
            ranks=session.ranks,
            blocks=session.blocks,
            executor=session.executor,
            has_memory=rank.fd is not None,
            profile=self._core.profile,
        )
        check_alike(rank.request, (other.request for other in engine.joined))

    def _join(self, engine: ConnectedEngine, rank: AttachedRank) -> None:
        number, session = rank.request.rank, engine.session
        engine.ranks[number] = rank
        with deciding():
            if engine.memories.setdefault(number, rank.memory) != rank.memory:
                engine.memories[number] = rank.memory
                self._core.reset(session)  # what was registered lies in memory that is gone
            self._core.ranks_attached(session, len(engine.ranks))

    async def _map(self, engine: ConnectedEngine) -> None:
        try:
            await self._mappings.map(engine)
        except UnavailableError as error:
            _log.info("engine memory is mapped later", engine=engine.session.engine, reason=str(error))
            self._mappings.map_later([engine])

    def _rank_lost(self, rank: AttachedRank) -> None:
        """A rank is gone. Idempotent."""
        if not self._ranks.drop(rank):
            return
        _log.info("rank gone", engine=rank.request.engine, dp_rank=rank.request.dp_rank, rank=rank.request.rank)
        engine = self._engine(rank.engine)
        if engine is None or engine.ranks.get(rank.request.rank) is not rank:
            self._slots.detach(rank)
            return
        del engine.ranks[rank.request.rank]
        number = engine.session.mapping_number
        with deciding():
            self._core.ranks_attached(engine.session, len(engine.ranks))
        self._slots.detach(rank)
        if number is not None:
            self._mappings.unmap(engine, number)
        part(engine, self._slots.awaited(), self._rank_lost)


def _push(engine: ConnectedEngine, push: channel.Push) -> None:
    try:
        engine.rpc.push(push)
    except PeerClosedError:
        _log.debug("an engine went before it was told", engine=engine.session.engine, push=type(push).__name__)
