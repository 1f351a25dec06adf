"""A rank attaches its memory for as long as it lives, and maps the arena where it copies by itself."""

import asyncio
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from blockyard.connectors.rank_link import RankLink
from blockyard.connectors.rank_memory import RankMemory
from blockyard.connectors.sealed_memory import sealed_memory
from blockyard.core.errors import LayoutMismatchError
from blockyard.core.kv_groups import Region
from blockyard.core.vocabulary import EngineId
from blockyard.runtime.rpc.server import RpcServer
from blockyard.runtime.rpc.session import RpcSession
from blockyard.testing.scripted_manager import WAIT_SECONDS
from blockyard.tiers.arena import Arena
from blockyard.wire import connector_channel as channel
from blockyard.wire.worker_channel import RegionInfo

REGIONS = ((Region(64, 4_096, 1_000), Region(0, 64, 64)), (Region(0, 128, 100),))
ENGINE = EngineId("e")


class Node:
    """A block-manager that takes ranks and may hand out an arena."""

    def __init__(self, path: Path) -> None:
        self.arena: Arena | None = None
        self.seen: list[channel.AttachRank] = []
        self.inodes: list[list[int]] = []
        self.server: RpcServer[channel.Request, channel.Reply] = RpcServer(path, channel.Request, self._handle)

    async def _handle(
        self, session: RpcSession, request: channel.Request, fds: list[int]
    ) -> channel.Reply | tuple[channel.Reply, list[int]]:
        assert isinstance(request, channel.AttachRank)
        self.seen.append(request)
        self.inodes.append([os.fstat(fd).st_ino for fd in fds])
        if self.arena is None:
            return channel.RankAttached(version=1)
        return channel.RankAttached(version=1, arena=self.arena.info()), [self.arena.fd]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "c.sock"


@pytest.fixture
def memory() -> Iterator[RankMemory]:
    fd = sealed_memory("memory of a test", 8_192)
    yield RankMemory(fd, 8_000, REGIONS)
    os.close(fd)


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        while not condition():
            await asyncio.sleep(0)


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


async def test_a_rank_hands_over_its_memory_and_does_so_again_after_each_loss(path: Path, memory: RankMemory) -> None:
    states: list[bool] = []
    async with RankLink(path, ENGINE, 1, 3, memory, REGIONS, life="x", on_state=states.append) as link:
        for _ in range(2):
            node = Node(path)
            async with node.server:
                await link.wait_attached(WAIT_SECONDS)
                await until(lambda: link.attached)
            (attached,) = node.seen
            assert (attached.engine, attached.dp_rank, attached.rank, attached.memory_bytes) == ("e", 1, 3, 8_000)
            assert attached.life == "x"
            assert attached.regions[1] == (RegionInfo(offset_bytes=0, stride_bytes=128, page_bytes=100),)
            assert len(attached.regions[0]) == 2
            assert node.inodes == [[os.fstat(memory.fd).st_ino]]
            await until(lambda: not link.attached)
    assert states == [True, False, True, False]
    assert link.arena is None


async def test_a_rank_that_copies_by_itself_keeps_its_memory_and_maps_the_arena(path: Path) -> None:
    told: list[bytes | None] = []

    def on_arena(arena: Arena | None) -> None:
        told.append(None if arena is None else arena.arena_id)

    before = open_descriptors()
    with Arena.create(2, 4_096) as first, Arena.create(2, 4_096) as second:
        async with RankLink(path, ENGINE, 0, 0, None, REGIONS, on_arena=on_arena) as link:
            node = Node(path)
            node.arena = first
            async with node.server:
                await until(lambda: link.arena is not None)
                assert link.arena is not None
                first.payload(1)[:] = 7
                assert link.arena.payload(1).all()
                kept = link.arena
            await until(lambda: not link.attached)
            assert link.arena is kept  # copies may be under way
            node = Node(path)
            node.arena = first
            async with node.server:
                await until(lambda: link.attached)
                assert link.arena is kept
                node.arena = second
                for session in node.server.sessions:
                    session.push(channel.ArenaReplaced())
                await until(lambda: len(node.seen) == 2 and link.arena is not None)
            assert node.inodes == [[], []]
        assert told == [first.arena_id, None, second.arena_id, None]
        assert link.arena is None
    assert open_descriptors() == before


async def test_a_rank_that_is_refused_learns_why(path: Path, memory: RankMemory) -> None:
    async def refuse(_: RpcSession, __: channel.Request, ___: list[int]) -> channel.Reply:
        raise LayoutMismatchError(field="regions")

    server: RpcServer[channel.Request, channel.Reply] = RpcServer(path, channel.Request, refuse)
    async with server, RankLink(path, ENGINE, 0, 0, memory, REGIONS) as link:
        with pytest.raises(LayoutMismatchError, match="regions"):
            await link.wait_attached(WAIT_SECONDS)


async def test_an_arena_that_is_none_is_refused_and_leaves_no_descriptor(path: Path) -> None:
    other = sealed_memory("no arena", 4_096)
    with Arena.create(2, 4_096) as arena:

        async def lie(_: RpcSession, __: channel.Request, ___: list[int]) -> tuple[channel.Reply, list[int]]:
            return channel.RankAttached(version=1, arena=arena.info()), [other]

        before = open_descriptors()
        server: RpcServer[channel.Request, channel.Reply] = RpcServer(path, channel.Request, lie)
        async with server, RankLink(path, ENGINE, 0, 0, None, REGIONS) as link:
            await asyncio.sleep(0)
            await until(lambda: server.sessions or link.arena)
            await until(lambda: not server.sessions)
            assert link.arena is None
            assert not link.attached
        await until(lambda: open_descriptors() == before)
    os.close(other)
