"""A served node over a real socket, for tests that speak as engines and ranks; below it are fake workers."""

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from tests.unit.block_manager.world import BLOCK_BYTES, OW, MakeWorld, World
from tests.unit.block_manager.world import HELLO as ANY_HELLO

from blockyard.core.chain_run import ChainRun
from blockyard.core.vocabulary import EngineId
from blockyard.runtime.rpc.client import RpcClient
from blockyard.testing.blocks import chain
from blockyard.testing.fake_slots import FakeEngineMemory
from blockyard.wire import connector_channel as channel
from blockyard.wire.codec import PROTOCOL_VERSION
from blockyard.wire.trace_parent import NO_TRACE, TraceParent
from blockyard.wire.worker_channel import ArenaInfo, MapEngine, RegionInfo, UnmapEngine
from blockyard_block_manager.arena_keeper import ArenaKeeper
from blockyard_block_manager.connector_server import ConnectorServer
from blockyard_block_manager.engine_sessions import EngineSession
from blockyard_block_manager.rank_requests import RankRequests
from blockyard_block_manager.remote_index import RemoteIndex
from blockyard_block_manager.section_waiters import SectionWaiters
from blockyard_block_manager.writer_processes import WriterProcesses

WAIT_SECONDS = 5.0
MEMORY_NAME = "memory of an engine"
BLOCKS = 32
HELLO = msgspec.structs.replace(ANY_HELLO, blocks=BLOCKS)
REGION = RegionInfo(offset_bytes=0, stride_bytes=BLOCK_BYTES, page_bytes=BLOCK_BYTES)
ATTACH = channel.AttachRank(
    version=PROTOCOL_VERSION, engine="e", memory_bytes=BLOCKS * BLOCK_BYTES, regions=((REGION,),)
)
RUN = chain("a", 4)


@dataclass
class Mapper:
    """Maps nothing real: the fake worker gets the memory by the number of the mapping."""

    world: World
    mapped: dict[int, FakeEngineMemory] = field(default_factory=dict)
    unmapped: asyncio.Queue[int] = field(default_factory=asyncio.Queue)
    refuse: Exception | None = None
    slow: set[int] = field(default_factory=set)
    requests: list[MapEngine] = field(default_factory=list)
    descriptors: list[int] = field(default_factory=list)
    """How many came with each request."""
    _files: dict[tuple[int, int], FakeEngineMemory] = field(default_factory=dict)

    @property
    def asked(self) -> list[int]:
        return [request.mapping for request in self.requests]

    @property
    def memory(self) -> FakeEngineMemory:
        """What was mapped last."""
        return self.mapped[max(self.mapped)]

    async def map_engine(self, request: MapEngine, fds: Sequence[int]) -> None:
        self.requests.append(request)
        self.descriptors.append(len(fds))
        if self.refuse is not None:
            raise self.refuse
        if request.mapping in self.slow:
            await asyncio.Event().wait()
        files = [(found.st_dev, found.st_ino) for found in map(os.fstat, fds)]
        memory = self._files.setdefault(files[1], FakeEngineMemory.of(request.blocks))
        self.mapped[request.mapping] = self.world.workers[OW].engines[request.mapping] = memory

    async def unmap_engine(self, request: UnmapEngine) -> None:
        self.unmapped.put_nowait(request.mapping)


def memory() -> int:
    """Descriptor of a memory file."""
    return os.memfd_create(MEMORY_NAME, os.MFD_CLOEXEC)


@dataclass
class Peer:
    """One engine's connection."""

    rpc: RpcClient[channel.Reply, channel.Push]
    pushes: asyncio.Queue[channel.Push]

    async def ask(
        self, request: channel.Request, fds: tuple[int, ...] = (), trace: TraceParent = NO_TRACE
    ) -> channel.Reply:
        return await self.rpc.call(request, timeout_seconds=WAIT_SECONDS, fds=fds, trace=trace)

    async def tell(self, request: channel.Request, *fds: int) -> channel.Reply:
        """Ask, with descriptors that are closed then, as an engine may do."""
        try:
            return await self.ask(request, fds)
        finally:
            for fd in fds:
                os.close(fd)

    async def hello(self, *, ranks: int = 1, **changes: object) -> channel.Welcome:
        """Say hello without ranks."""
        identity = replace(HELLO.identity, parallel_shape=f"tp{ranks}")
        hello = msgspec.structs.replace(HELLO, ranks=ranks, identity=identity)
        reply = await self.tell(msgspec.structs.replace(hello, **changes), memory())
        assert isinstance(reply, channel.Welcome)
        return reply

    async def attach(self, *, fd: int | None = None, **changes: object) -> channel.RankAttached:
        """Attach a rank."""
        reply = await self.tell(msgspec.structs.replace(ATTACH, **changes), memory() if fd is None else fd)
        assert isinstance(reply, channel.RankAttached)
        return reply

    async def join(self, engine: str = "e", **changes: Any) -> channel.Welcome:
        """Say hello and attach the only rank: an engine in one process."""
        welcome = await self.hello(engine=engine, **changes)
        await self.attach(engine=engine, **{name: changes[name] for name in ("life", "dp_rank") if name in changes})
        return welcome

    async def told(self) -> channel.Push:
        """The next push."""
        return await asyncio.wait_for(self.pushes.get(), WAIT_SECONDS)

    async def finished(self) -> channel.LoadFinished:
        push = await self.told()
        assert isinstance(push, channel.LoadFinished)
        return push


@dataclass
class Setting:
    """A served world."""

    world: World
    server: ConnectorServer
    mapper: Mapper
    waiters: SectionWaiters
    socket: Path
    peers: list[Peer] = field(default_factory=list)

    async def peer(self) -> Peer:
        pushes: asyncio.Queue[channel.Push] = asyncio.Queue()
        rpc: RpcClient[channel.Reply, channel.Push] = await RpcClient.connect(
            self.socket, channel.Reply, channel.Push, pushes.put_nowait
        )
        self.peers.append(Peer(rpc, pushes))
        return self.peers[-1]


@pytest.fixture
async def setting(make_world: MakeWorld, tmp_path: Path) -> AsyncIterator[Setting]:
    world: World = make_world(g4=False).ready()
    waiters = SectionWaiters()
    world.core.on_section_end = waiters.section_ended
    mapper = Mapper(world)
    index = RemoteIndex(world.clock)
    with ArenaKeeper() as arena, WriterProcesses(tmp_path / "writers") as processes:
        arena.keep(ArenaInfo(arena=bytes(16), slots=16, stride_bytes=4_096, bytes=65_536), os.memfd_create("arena"))
        slots = RankRequests(world.core, arena, processes)
        server = ConnectorServer(tmp_path / "s", world.core, mapper, index, waiters, slots)
        async with server:
            made = Setting(world, server, mapper, waiters, tmp_path / "s")
            yield made
            for peer in made.peers:
                peer.rpc.close()
    await index.close()


def session_of(setting: Setting, engine: str = "e") -> EngineSession:
    session = setting.world.core.sessions.of(EngineId(engine), 0)
    assert session is not None
    return session


def run_of(run: ChainRun) -> channel.Run:
    return channel.Run(digests=run.digests, first_position=run.first_position, parent=run.parent)


def u32(*values: int) -> bytes:
    return np.array(values, "<u4").tobytes()


def u64(*values: int) -> bytes:
    return np.array(values, "<u8").tobytes()


def fill(setting: Setting, run: ChainRun, first_block: int = 0) -> channel.Register:
    guards = [setting.mapper.memory.fill(first_block + index, run.digest(index)) for index in range(len(run))]
    pages = u32(*range(first_block, first_block + len(run)))
    return channel.Register(run=run_of(run), pages=pages, guards=u64(*guards))
