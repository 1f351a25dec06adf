"""A block-manager that answers engines from a script: for tests of connectors without a node.

Every request is remembered and answered with a usual reply, or by the coroutine registered for its type.
Threading: one event loop.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from blockyard.core.vocabulary import DIGEST_BYTES
from blockyard.runtime.current_trace import current_trace
from blockyard.runtime.rpc.server import RpcServer
from blockyard.runtime.rpc.session import RpcSession
from blockyard.wire import connector_channel as channel
from blockyard.wire.trace_parent import TraceParent

WAIT_SECONDS: Final = 5.0


@dataclass
class ScriptedManager:
    """A block-manager that answers from a table and remembers what it was told."""

    seen: list[channel.Request] = field(default_factory=list)
    traces: list[TraceParent] = field(default_factory=list)
    """Trace context of each request seen."""
    sessions: list[RpcSession] = field(default_factory=list)
    answers: dict[type[channel.Request], Callable[[], Awaitable[channel.Reply]]] = field(default_factory=dict)
    arrived: dict[type[channel.Request], asyncio.Event] = field(default_factory=dict)

    async def handle(self, session: RpcSession, request: channel.Request, fds: list[int]) -> channel.Reply:
        """Remember a request and answer it."""
        self.seen.append(request)
        self.traces.append(current_trace())
        if session not in self.sessions:
            self.sessions.append(session)
        self.event(type(request)).set()
        if type(request) in self.answers:
            return await self.answers[type(request)]()
        return _usual_answer(request)

    def event(self, kind: type[channel.Request]) -> asyncio.Event:
        """Set when the first request of this type arrives."""
        return self.arrived.setdefault(kind, asyncio.Event())

    async def wait_for(self, kind: type[channel.Request]) -> None:
        """Wait for the first request of this type."""
        await asyncio.wait_for(self.event(kind).wait(), WAIT_SECONDS)

    def of(self, kind: type[channel.Request]) -> list[channel.Request]:
        """Requests of this type in order of arrival."""
        return [request for request in self.seen if type(request) is kind]

    def traces_of(self, kind: type[channel.Request]) -> list[TraceParent]:
        """Trace contexts of the requests of this type in order of arrival."""
        return [trace for request, trace in zip(self.seen, self.traces, strict=True) if type(request) is kind]


def _usual_answer(request: channel.Request) -> channel.Reply:
    if isinstance(request, channel.Hello):
        return channel.Welcome(version=1, instance="n", epoch=1, session="s", identity=bytes(32))
    if isinstance(request, channel.AttachRank):
        return channel.RankAttached(version=1)
    if isinstance(request, channel.Register):
        return channel.Registered(registered=len(request.run.digests) // DIGEST_BYTES, stores=0)
    if isinstance(request, channel.Lookup):
        return channel.LookupReply(availability=bytes([2, 3, 255, 0]))
    if isinstance(request, channel.Reserve):
        return channel.Reserved(held=2, ttl_ms=request.ttl_ms)
    if isinstance(request, channel.OpenLoad):
        return channel.LoadOpened(load=7)
    return channel.Done()


@asynccontextmanager
async def served(path: Path, script: ScriptedManager) -> AsyncIterator[RpcServer[channel.Request, channel.Reply]]:
    """Serve a script on a socket."""
    server: RpcServer[channel.Request, channel.Reply] = RpcServer(path, channel.Request, script.handle)
    async with server:
        yield server
