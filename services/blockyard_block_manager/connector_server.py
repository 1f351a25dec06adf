"""The channel of engines: hello first, then requests, each one section of the core.

::

    connected ──hello──► session ──requests──► … ──socket closed──► the engine is gone: set, leases, loads end

A newer hello of the same engine replaces its earlier session.
Invariants: requests before hello are refused; a load is answered by exactly one push, unless its engine is gone.
Threading: one event loop; requests of one engine may be in work side by side, each decides in one section.
"""

import contextlib
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
from blockyard.core.vocabulary import DEFAULT_TENANT, Availability, LoadId, RequestId
from blockyard.runtime.current_trace import TraceScope, current_trace
from blockyard.runtime.logs import get_logger
from blockyard.runtime.rpc.server import RpcServer
from blockyard.runtime.rpc.session import RpcSession
from blockyard.wire import connector_channel as channel
from blockyard.wire.codec import PROTOCOL_VERSION
from blockyard_block_manager import connector_requests as requests
from blockyard_block_manager.decisions import deciding
from blockyard_block_manager.engine_mappings import ConnectedEngine, EngineMapper, EngineMappings
from blockyard_block_manager.engine_sessions import EngineSession
from blockyard_block_manager.engine_writes import engine_writes_settled
from blockyard_block_manager.lookups import look_up
from blockyard_block_manager.node_core import NodeCore
from blockyard_block_manager.remote_index import RemoteIndex
from blockyard_block_manager.section_waiters import SectionWaiters

_MAX_REQUEST_NAME: Final = 256
_MAX_TTL_MS: Final = 600_000
_MAX_REMOTE_WAIT_MS: Final = 10_000
_DESCRIPTORS: Final = 2
_log: Final = get_logger(__name__)


class ConnectorServer:
    """Serves engines; use as ``async with``."""

    def __init__(
        self, socket: Path, core: NodeCore, mapper: EngineMapper, index: RemoteIndex, waiters: SectionWaiters
    ) -> None:
        """Prepare to serve on ``socket``; engine memory is mapped by ``mapper``."""
        self._core = core
        self._index = index
        self._waiters = waiters
        self._engines: dict[RpcSession, ConnectedEngine] = {}
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

    def map_engines(self) -> None:
        """The offload-worker has attached: map what its life does not map yet, in the background."""
        self._mappings.map_later(self._engines.values())

    # --- requests -----------------------------------------------------------------------------------------------------
    async def _handle(self, rpc: RpcSession, request: channel.Request, fds: list[int]) -> channel.Reply:
        if isinstance(request, channel.Hello):
            return await self._hello(rpc, request, fds)
        engine = self._engines.get(rpc)
        if engine is None or engine.session.closed:
            raise UnknownSessionError("say hello first")
        with deciding():
            return await self._dispatch(engine, request)

    async def _dispatch(self, engine: ConnectedEngine, request: channel.Request) -> channel.Reply:
        session, core = engine.session, self._core
        match request:
            case channel.Register():
                return self._register(session, request)
            case channel.Deregister():
                core.deregister(session, requests.engine_blocks(session, request.blocks))
            case channel.Lookup():
                return await self._lookup(session, request)
            case channel.Reserve():
                return self._reserve(session, request)
            case channel.Release():
                core.release(session, _request_id(request.request))
            case channel.OpenLoad():
                return self._open_load(engine, request)
            case channel.CloseLoad():
                load = LoadId(request.load)
                core.close_load(session, load)
                await self._waiters.until(lambda: session.closed or not core.loads.is_open(session, load))
            case channel.ReportDecisions():
                core.decisions.report(session.engine, session.dp_rank, request.decisions)
            case channel.Settle():
                await self._waiters.until(lambda: session.closed or engine_writes_settled(core))
            case channel.Reset():
                core.reset(session)
            case channel.Hello():
                raise RequestError("hello was answered already")
        return channel.Done()

    def _register(self, session: EngineSession, request: channel.Register) -> channel.Reply:
        names = requests.names_in(request.run)
        scope = requests.scope_of(session, request.tenant, self._core.profile.block_tokens)
        blocks, guards = requests.places(session, len(names), request.blocks, request.guards)
        entries = requests.g1_blocks(scope, names, blocks, guards)
        spans = self._core.spans
        with spans.store(current_trace(), len(names)) as span, TraceScope(span.traceparent):
            registered, stores = self._core.register(session, entries, span.traceparent)
            spans.stored(span, registered, stores)
        return channel.Registered(registered=registered, stores=stores)

    async def _lookup(self, session: EngineSession, request: channel.Lookup) -> channel.Reply:
        names = requests.names_in(request.run)
        scope = requests.scope_of(session, request.tenant, self._core.profile.block_tokens)
        if not self._core.loading.enabled:
            # Not counted as a lookup: nothing was asked.
            return channel.LookupReply(availability=bytes([Availability.MISS]) * len(names), loading=False)
        wait_ms = min(max(request.remote_wait_ms, 0), _MAX_REMOTE_WAIT_MS)
        answer = await look_up(self._core, self._index, scope, names, wait_ms / 1_000, current_trace())
        return channel.LookupReply(availability=bytes(answer))

    def _reserve(self, session: EngineSession, request: channel.Reserve) -> channel.Reply:
        names = requests.names_in(request.run)
        scope = requests.scope_of(session, DEFAULT_TENANT, self._core.profile.block_tokens)
        ttl_ms = min(_ttl(request.ttl_ms), self._core.profile.max_lease_ms)
        held = self._core.reserve(session, _request_id(request.request), scope, names, ttl_ms)
        return channel.Reserved(held=held, ttl_ms=ttl_ms)

    def _open_load(self, engine: ConnectedEngine, request: channel.OpenLoad) -> channel.Reply:
        names = requests.names_in(request.run)
        scope = requests.scope_of(engine.session, request.tenant, self._core.profile.block_tokens)
        blocks, guards = requests.places(engine.session, len(names), request.blocks, request.guards)
        load = self._core.open_load(
            engine.session,
            _request_id(request.request),
            scope,
            names,
            blocks,
            guards,
            _ttl(request.ttl_ms),
            lambda load, outcome: self._load_finished(engine, load, outcome),
            current_trace(),
        )
        return channel.LoadOpened(load=load)

    def _load_finished(self, engine: ConnectedEngine, load: LoadId, outcome: LoadOutcome) -> None:
        push = channel.LoadFinished(
            load=load,
            status=bytes(outcome.status),
            sources=bytes(0 if tier is None else tier for tier in outcome.sources),
        )
        try:
            engine.rpc.push(push)
        except PeerClosedError:
            _log.debug("an engine went before its load was answered", engine=engine.session.engine)

    def _loading_switched(self, enabled: bool) -> None:  # noqa: FBT001 - one fact
        for engine in self._engines.values():
            with contextlib.suppress(PeerClosedError):  # an engine that is gone needs no word
                engine.rpc.push(channel.LoadingSwitched(loading=enabled))

    # --- hello and memory ---------------------------------------------------------------------------------------------
    async def _hello(self, rpc: RpcSession, request: channel.Hello, fds: list[int]) -> channel.Reply:
        if rpc in self._engines:
            raise RequestError("hello was answered already")
        self._core.sessions.check(request)
        if len(fds) != _DESCRIPTORS:
            raise RequestError("hello brings two descriptors: memory and guards", descriptors=len(fds))
        self._replace(request)
        memory, guards = fds
        with deciding():
            engine = ConnectedEngine(rpc, self._core.open_session(request), (memory, guards))
        fds.clear()
        self._engines[rpc] = engine
        try:
            await self._mappings.map(engine)
        except UnavailableError as error:
            _log.info("engine memory is mapped later", engine=request.engine, reason=str(error))
            self._mappings.map_later([engine])
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

    def _replace(self, hello: channel.Hello) -> None:
        for engine in list(self._engines.values()):
            if (engine.session.engine, engine.session.dp_rank) == (hello.engine, hello.dp_rank):
                _log.info("an engine said hello again: its earlier session ends", engine=hello.engine)
                self._drop(engine)
                engine.rpc.close(UnknownSessionError("the engine has another connection"))

    def _disconnected(self, rpc: RpcSession) -> None:
        engine = self._engines.get(rpc)
        if engine is not None:
            _log.info("engine gone", engine=engine.session.engine, dp_rank=engine.session.dp_rank)
            self._drop(engine)

    def _drop(self, engine: ConnectedEngine) -> None:
        if self._engines.pop(engine.rpc, None) is None:
            return
        with deciding():
            self._core.close_session(engine.session)
        engine.close()
        self._mappings.unmap(engine)


def _request_id(name: str) -> RequestId:
    if not name or len(name) > _MAX_REQUEST_NAME:
        raise RequestError("a request has a name", field="request", limit=_MAX_REQUEST_NAME)
    return RequestId(name)


def _ttl(ttl_ms: int) -> int:
    if not 1 <= ttl_ms <= _MAX_TTL_MS:
        raise RequestError("a time to live is positive and bounded", field="ttl_ms", limit=_MAX_TTL_MS)
    return ttl_ms
