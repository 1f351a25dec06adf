"""The engines' channel over a real socket, above the real decisions and fake workers."""

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from tests.unit.block_manager.world import BLOCK_BYTES, MODEL, OW, MakeWorld, World
from tests.unit.block_manager.world import HELLO as ANY_HELLO

from blockyard.core.chain_run import ChainRun
from blockyard.core.errors import (
    DeadlineExceededError,
    IdentityMismatchError,
    LayoutMismatchError,
    PeerClosedError,
    RequestError,
    TooManyKeysError,
    UnavailableError,
    UnknownSessionError,
)
from blockyard.core.vocabulary import Availability, EngineId, ItemStatus, Tier
from blockyard.runtime.rpc.client import RpcClient
from blockyard.testing.blocks import chain
from blockyard.testing.fake_slots import FakeEngineMemory, payload_of
from blockyard.wire import connector_channel as channel
from blockyard.wire.codec import PROTOCOL_VERSION
from blockyard.wire.trace_parent import NO_TRACE, TraceParent
from blockyard.wire.worker_channel import MapEngine, RegionInfo, UnmapEngine
from blockyard_block_manager.connector_server import ConnectorServer
from blockyard_block_manager.engine_sessions import EngineSession
from blockyard_block_manager.remote_index import RemoteIndex
from blockyard_block_manager.section_waiters import SectionWaiters

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
        reply = await self.tell(msgspec.structs.replace(HELLO, ranks=ranks, **changes), memory())
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
        await self.attach(engine=engine)
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
    server = ConnectorServer(tmp_path / "s", world.core, mapper, index, waiters)
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


# --- hello --------------------------------------------------------------------------------------------------------
async def test_requests_before_hello_are_refused(setting: Setting) -> None:
    peer = await setting.peer()
    for request in (channel.Lookup(run=run_of(RUN)), channel.Settle(), channel.Reset()):
        with pytest.raises(UnknownSessionError):
            await peer.ask(request)


async def test_hello_names_the_node_and_the_identity(setting: Setting) -> None:
    welcome = await (await setting.peer()).join()
    assert (welcome.instance, welcome.epoch) == ("node", setting.world.core.profile.epoch)
    assert welcome.identity == MODEL.digest()


async def test_hello_without_memory_is_refused_and_leaves_no_session(setting: Setting) -> None:
    with pytest.raises(RequestError, match="descriptors"):
        await (await setting.peer()).ask(HELLO)
    assert len(setting.world.core.sessions) == 0


async def test_hello_of_another_layout_is_refused_and_can_be_corrected(setting: Setting) -> None:
    peer = await setting.peer()
    with pytest.raises(IdentityMismatchError, match="block_tokens"):
        await peer.hello(identity=msgspec.convert({**msgspec.to_builtins(MODEL), "block_tokens": 32}, type(MODEL)))
    await peer.join()
    with pytest.raises(RequestError, match="already"):
        await peer.join()


async def test_a_rank_whose_memory_the_worker_refuses_is_not_attached_and_may_try_again(setting: Setting) -> None:
    setting.mapper.refuse = LayoutMismatchError("the file is shorter than the blocks")
    peer = await setting.peer()
    with pytest.raises(LayoutMismatchError):
        await peer.join()
    assert not session_of(setting).complete
    setting.mapper.refuse = None
    await peer.attach()
    assert session_of(setting).mapping is not None


async def test_without_a_worker_memory_is_mapped_once_it_is_there(setting: Setting) -> None:
    setting.mapper.refuse = UnavailableError("the worker is away")
    peer = await setting.peer()
    await peer.join()
    session = setting.world.core.sessions.of(EngineId("e"), 0)
    assert session is not None
    assert session.mapping is None
    setting.mapper.refuse = None
    setting.server.map_engines()
    await peer.ask(channel.Lookup(run=run_of(RUN)))
    assert session.mapping == session.mapping_number


async def test_memory_is_mapped_also_where_the_worker_only_was_slow(setting: Setting) -> None:
    """It stayed attached, so nothing else would ever ask again."""
    setting.mapper.refuse = DeadlineExceededError("no reply in time")
    await (await setting.peer()).join()
    session = setting.world.core.sessions.of(EngineId("e"), 0)
    assert session is not None
    assert session.mapping is None
    setting.mapper.refuse = None
    await asyncio.wait_for(setting.waiters.until(lambda: session.mapping is not None), WAIT_SECONDS)


async def test_nobody_waits_for_the_memory_of_another_engine(setting: Setting) -> None:
    setting.mapper.slow.add((setting.world.core.profile.epoch << 20) + 1)
    hung = asyncio.create_task((await setting.peer()).join(engine="hung"))
    while not setting.mapper.asked:
        await asyncio.sleep(0)
    await (await setting.peer()).join(engine="other")
    assert not hung.done()
    hung.cancel()
    await asyncio.gather(hung, return_exceptions=True)


async def test_what_an_engine_waited_for_is_forgotten_when_it_goes(setting: Setting) -> None:
    peer = await setting.peer()
    await peer.join()
    await peer.ask(fill(setting, RUN))
    setting.world.settle()
    await peer.ask(
        channel.OpenLoad(request="r", run=run_of(RUN), pages=u32(4, 5, 6, 7), guards=u64(0, 0, 0, 0), ttl_ms=1_000)
    )
    setting.world.submit(OW)
    job = setting.world.workers[OW].start()
    assert job is not None
    peer.rpc.close()
    again = await setting.peer()
    await again.join()
    asking = asyncio.create_task(again.ask(channel.Settle()))
    while not len(setting.waiters):
        await asyncio.sleep(0)
    again.rpc.close()
    with pytest.raises(PeerClosedError):
        await asking
    while len(setting.world.core.sessions):
        await asyncio.sleep(0)
    assert len(setting.waiters) == 0
    setting.world.workers[OW].finish(job)
    setting.world.settle()


async def test_a_second_hello_of_an_engine_replaces_the_first(setting: Setting) -> None:
    first, second = await setting.peer(), await setting.peer()
    await first.join()
    await first.ask(fill(setting, RUN))
    await second.join()
    with pytest.raises((PeerClosedError, UnknownSessionError)):
        await first.ask(channel.Reset())
    assert len(setting.world.core.sessions) == 1
    assert setting.world.announced(Tier.G1) == set()


async def test_an_engine_that_closes_its_socket_is_gone_with_its_mapping(setting: Setting) -> None:
    peer = await setting.peer()
    await peer.join()
    await peer.ask(fill(setting, RUN))
    await peer.ask(channel.Reserve(request="r", run=run_of(RUN)))
    peer.rpc.close()
    number = await asyncio.wait_for(setting.mapper.unmapped.get(), WAIT_SECONDS)
    assert number in setting.mapper.mapped
    assert len(setting.world.core.sessions) == 0
    assert setting.world.announced(Tier.G1) == set()


# --- requests -----------------------------------------------------------------------------------------------------
async def test_a_run_is_registered_stored_found_and_loaded(setting: Setting) -> None:
    peer = await setting.peer()
    await peer.join()
    assert await peer.ask(fill(setting, RUN)) == channel.Registered(registered=4, stores=4)
    setting.world.settle()
    found = await peer.ask(channel.Lookup(run=run_of(chain("a", 5))))
    assert found == channel.LookupReply(availability=bytes([Availability.G2] * 4 + [Availability.MISS]))
    assert await peer.ask(channel.Reserve(request="r", run=run_of(RUN), ttl_ms=600_000)) == channel.Reserved(
        held=4, ttl_ms=60_000
    )
    opened = await peer.ask(
        channel.OpenLoad(request="r", run=run_of(RUN), pages=u32(10, 11, 12, 13), guards=u64(0, 0, 0, 0), ttl_ms=1_000)
    )
    assert isinstance(opened, channel.LoadOpened)
    setting.world.settle()
    finished = await peer.finished()
    assert finished == channel.LoadFinished(load=opened.load, status=bytes(4), sources=bytes([Tier.G2] * 4))
    assert setting.mapper.memory.blocks[10:14] == [payload_of(RUN.digest(index)) for index in range(4)]
    setting.world.at_rest()


async def test_a_load_without_hits_is_answered_at_once(setting: Setting) -> None:
    peer = await setting.peer()
    await peer.join()
    await peer.ask(
        channel.OpenLoad(request="r", run=run_of(RUN), pages=u32(0, 1, 2, 3), guards=u64(0, 0, 0, 0), ttl_ms=1_000)
    )
    finished = await peer.finished()
    assert finished.status == bytes([ItemStatus.NOT_FOUND] * 4)
    assert finished.sources == bytes(4)


async def test_closing_a_load_waits_for_its_copy(setting: Setting) -> None:
    peer = await setting.peer()
    await peer.join()
    await peer.ask(fill(setting, RUN))
    setting.world.settle()
    opened = await peer.ask(
        channel.OpenLoad(request="r", run=run_of(RUN), pages=u32(4, 5, 6, 7), guards=u64(0, 0, 0, 0), ttl_ms=1_000)
    )
    assert isinstance(opened, channel.LoadOpened)
    setting.world.submit(OW)
    job = setting.world.workers[OW].start()
    assert job is not None
    closing = asyncio.create_task(peer.ask(channel.CloseLoad(load=opened.load)))
    await peer.ask(channel.Lookup(run=run_of(RUN)))
    assert not closing.done()
    setting.world.workers[OW].finish(job)
    setting.world.settle()
    assert await closing == channel.Done()


async def test_settle_is_answered_once_no_earlier_life_can_write(setting: Setting) -> None:
    peer = await setting.peer()
    await peer.join()
    assert await peer.ask(channel.Settle()) == channel.Done()


async def test_deregister_release_and_reset_are_answered(setting: Setting) -> None:
    peer = await setting.peer()
    await peer.join()
    await peer.ask(fill(setting, RUN))
    assert await peer.ask(channel.Deregister(blocks=u32(3))) == channel.Done()
    assert len(setting.world.announced(Tier.G1)) == 3
    assert await peer.ask(channel.Release(request="r")) == channel.Done()
    assert await peer.ask(channel.Reset()) == channel.Done()
    assert setting.world.announced(Tier.G1) == set()


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        (channel.Register(run=run_of(RUN), pages=u32(0, 1, 2), guards=u64(0, 0, 0, 0)), "pages=3"),
        (channel.Register(run=run_of(RUN), pages=u32(0, 1, 2, 3), guards=u64(0)), "guards=1"),
        (channel.Register(run=run_of(RUN), pages=u32(0, 1, 2, 3)[:-1], guards=u64(0, 0, 0, 0)), "pages"),
        (channel.Register(run=run_of(RUN), pages=u32(0, 1, 2, BLOCKS), guards=u64(0, 0, 0, 0)), "block=32"),
        (channel.Register(run=run_of(RUN), pages=u32(0, 1, 2, 2), guards=u64(0, 0, 0, 0)), "pages"),
        (channel.Register(run=run_of(RUN), tenant=b"x", pages=u32(0, 1, 2, 3), guards=u64(0, 0, 0, 0)), "tenant"),
        (channel.Deregister(blocks=b"abc"), "blocks"),
        (channel.Deregister(blocks=u32(BLOCKS)), "block=32"),
        (channel.Lookup(run=channel.Run(digests=b"short")), "digests"),
        (channel.Lookup(run=channel.Run(digests=RUN.digests, first_position=2)), "position"),
        (channel.Lookup(run=channel.Run(digests=RUN.digests, parent=b"x" * 16)), "position"),
        (channel.Lookup(run=channel.Run(digests=RUN.digests + RUN.digests)), "twice"),
        (
            channel.Lookup(run=channel.Run(digests=RUN.digests, first_position=2**32 - 2, parent=b"x" * 16)),
            "first_position",
        ),
        (channel.Reserve(request="", run=run_of(RUN)), "request"),
        (channel.Reserve(request="r" * 300, run=run_of(RUN)), "request"),
        (channel.Reserve(request="r", run=run_of(RUN), ttl_ms=0), "ttl_ms"),
        (
            channel.OpenLoad(request="r", run=run_of(RUN), pages=u32(0, 1, 2, 3), guards=u64(0, 0, 0, 0), ttl_ms=-5),
            "ttl_ms",
        ),
    ],
)
async def test_a_request_that_does_not_fit_is_refused_and_changes_nothing(
    setting: Setting, request_: channel.Request, field: str
) -> None:
    peer = await setting.peer()
    await peer.join()
    before = setting.world.outbox.last_seq
    with pytest.raises(RequestError, match=field):
        await peer.ask(request_)
    assert setting.world.outbox.last_seq == before
    setting.world.at_rest()
    assert await peer.ask(channel.Lookup(run=run_of(RUN))) == channel.LookupReply(availability=bytes(4))


async def test_too_many_keys_are_refused(setting: Setting) -> None:
    peer = await setting.peer()
    await peer.join()
    with pytest.raises(TooManyKeysError):
        await peer.ask(channel.Lookup(run=channel.Run(digests=bytes(32 * 4_097))))
