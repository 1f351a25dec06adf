"""Ranks over a real socket: they join their engine in any order, and their connections are their lives."""

import asyncio
import os
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.unit.block_manager.connector_kit import (
    ATTACH,
    BLOCKS,
    MEMORY_NAME,
    RUN,
    WAIT_SECONDS,
    Peer,
    Setting,
    fill,
    memory,
    run_of,
    session_of,
    setting,
    u32,
    u64,
)
from tests.unit.block_manager.world import BLOCK_BYTES, OW

from blockyard.core.errors import (
    LayoutMismatchError,
    PeerClosedError,
    RequestError,
    UnavailableError,
    UnknownSessionError,
)
from blockyard.core.vocabulary import ItemStatus, Tier
from blockyard.runtime.node_folder import replace_file
from blockyard.wire import connector_channel as channel
from blockyard.wire.worker_channel import RegionInfo

__all__ = ["setting"]

HALF = RegionInfo(offset_bytes=0, stride_bytes=BLOCK_BYTES, page_bytes=BLOCK_BYTES // 2)
OF_TWO: dict[str, Any] = {"regions": ((HALF,),)}
"""Memory of one of two ranks: a row is as large as a slot with both."""
LOAD = channel.OpenLoad(request="r", run=run_of(RUN), pages=u32(8, 9, 10, 11), guards=u64(0, 0, 0, 0), ttl_ms=1_000)


def open_memories() -> int:
    """Descriptors of engine memory in this process."""
    links = [entry for entry in Path("/proc/self/fd").iterdir() if entry.is_symlink()]
    return sum(MEMORY_NAME in os.readlink(link) for link in links)


async def two_ranks(setting: Setting) -> tuple[Peer, Peer, Peer]:
    engine, first, second = await setting.peer(), await setting.peer(), await setting.peer()
    await engine.hello(ranks=2)
    await first.attach(rank=0, **OF_TWO)
    await second.attach(rank=1, **OF_TWO)
    return engine, first, second


async def test_an_engine_is_mapped_once_its_last_rank_is_there(setting: Setting) -> None:
    engine, first, second = await setting.peer(), await setting.peer(), await setting.peer()
    await engine.hello(ranks=2)
    await first.attach(rank=1, **OF_TWO)
    assert setting.mapper.asked == []
    await second.attach(rank=0, **OF_TWO)
    session = session_of(setting)
    assert setting.mapper.asked == [session.mapping]
    (request,) = setting.mapper.requests
    assert [len(rank.regions) for rank in request.ranks] == [1, 1]
    assert setting.mapper.descriptors == [3], "guards and two memories"


async def test_ranks_may_come_before_their_engine(setting: Setting) -> None:
    first, second, engine = await setting.peer(), await setting.peer(), await setting.peer()
    await first.attach(rank=0, **OF_TWO)
    await second.attach(rank=1, **OF_TWO)
    assert len(setting.world.core.sessions) == 0
    await engine.hello(ranks=2)
    assert session_of(setting).mapping is not None


async def test_ranks_outlive_their_engine_and_serve_the_next(setting: Setting) -> None:
    engine, _, _ = await two_ranks(setting)
    before = session_of(setting).mapping
    engine.rpc.close()
    assert await asyncio.wait_for(setting.mapper.unmapped.get(), WAIT_SECONDS) == before
    await (await setting.peer()).hello(ranks=2)
    after = session_of(setting).mapping
    assert after is not None
    assert after != before


async def test_a_lost_rank_unmaps_the_engine_until_it_is_back_under_a_new_number(setting: Setting) -> None:
    _, first, _ = await two_ranks(setting)
    session = session_of(setting)
    before = session.mapping
    first.rpc.close()
    assert await asyncio.wait_for(setting.mapper.unmapped.get(), WAIT_SECONDS) == before
    assert session.mapping is None
    assert not session.complete
    await (await setting.peer()).attach(rank=0, **OF_TWO)
    assert session.mapping is not None
    assert session.mapping != before


async def test_a_load_of_an_engine_that_loses_a_rank_ends_as_unknown(setting: Setting) -> None:
    engine, first, _ = await two_ranks(setting)
    world = setting.world
    await engine.ask(fill(setting, RUN))
    world.settle()
    opened = await engine.ask(LOAD)
    assert isinstance(opened, channel.LoadOpened)
    first.rpc.close()
    await asyncio.wait_for(setting.mapper.unmapped.get(), WAIT_SECONDS)
    world.tick()  # the cancel goes out
    world.settle()
    assert ItemStatus.OK not in (await engine.finished()).status
    again = await engine.ask(msgspec.structs.replace(LOAD, request="s"))
    assert isinstance(again, channel.LoadOpened)
    assert (await engine.finished()).status == bytes([ItemStatus.UNKNOWN] * len(RUN))
    world.at_rest()


async def test_writes_by_the_mapping_of_a_lost_rank_are_settled_before_the_engine_is_told_so(setting: Setting) -> None:
    engine, first, _ = await two_ranks(setting)
    world = setting.world
    await engine.ask(fill(setting, RUN))
    world.settle()
    await engine.ask(LOAD)
    world.submit(OW)
    job = world.workers[OW].start()
    assert job is not None
    first.rpc.close()
    await asyncio.wait_for(setting.mapper.unmapped.get(), WAIT_SECONDS)
    settling = asyncio.create_task(engine.ask(channel.Settle()))
    await engine.ask(channel.Lookup(run=run_of(RUN)))
    assert not settling.done()
    world.workers[OW].finish(job)
    world.settle()
    assert await settling == channel.Done()


async def test_what_an_engine_holds_is_stored_when_its_rank_is_back(setting: Setting) -> None:
    engine, first, world = await setting.peer(), await setting.peer(), setting.world
    await engine.hello()
    shared = memory()
    await first.attach(fd=os.dup(shared))
    await engine.ask(fill(setting, RUN))
    first.rpc.close()
    await asyncio.wait_for(setting.mapper.unmapped.get(), WAIT_SECONDS)
    world.tick()
    world.settle()
    assert world.held(Tier.G2) == set()
    await (await setting.peer()).attach(fd=shared)
    world.settle()
    assert len(world.held(Tier.G2)) == len(RUN)


async def test_a_rank_that_comes_back_with_other_memory_brings_none_of_the_old_blocks(setting: Setting) -> None:
    engine, first, _ = await two_ranks(setting)
    world = setting.world
    await engine.ask(fill(setting, RUN))
    first.rpc.close()
    await asyncio.wait_for(setting.mapper.unmapped.get(), WAIT_SECONDS)
    await (await setting.peer()).attach(rank=0, **OF_TWO)
    assert world.announced(Tier.G1) == set()
    world.tick()
    world.settle()
    assert world.held(Tier.G2) == set()


async def test_the_same_memory_with_its_pages_elsewhere_brings_none_of_the_old_blocks(setting: Setting) -> None:
    engine, first, world = await setting.peer(), await setting.peer(), setting.world
    await engine.hello()
    shared = memory()
    await first.attach(fd=os.dup(shared), regions=((HALF,),))
    await engine.ask(fill(setting, RUN))
    first.rpc.close()
    await asyncio.wait_for(setting.mapper.unmapped.get(), WAIT_SECONDS)
    moved = msgspec.structs.replace(HALF, offset_bytes=BLOCK_BYTES // 2)
    await (await setting.peer()).attach(fd=shared, regions=((moved,),))
    assert world.announced(Tier.G1) == set()


async def test_a_rank_of_an_earlier_start_is_no_rank_of_this_one(setting: Setting) -> None:
    lingering, own, engine = await setting.peer(), await setting.peer(), await setting.peer()
    await lingering.attach(life="first")
    await engine.hello(life="second")
    assert setting.mapper.asked == [], "its memory holds what an earlier start wrote"
    with pytest.raises((PeerClosedError, UnavailableError)):
        await lingering.ask(channel.Reset())
    await own.attach(life="second")
    before = session_of(setting).mapping
    assert before is not None
    with pytest.raises(UnavailableError, match="another start"):
        await (await setting.peer()).attach(life="first")
    assert session_of(setting).mapping == before


async def test_a_newer_connection_of_a_rank_replaces_the_earlier_one(setting: Setting) -> None:
    _, first, _ = await two_ranks(setting)
    before = session_of(setting).mapping
    await (await setting.peer()).attach(rank=0, **OF_TWO)
    assert session_of(setting).mapping != before
    with pytest.raises((PeerClosedError, UnknownSessionError)):
        await first.ask(channel.Reset())


async def test_a_rank_that_does_not_fit_its_engine_is_sent_away_when_the_engine_comes(setting: Setting) -> None:
    rank, engine = await setting.peer(), await setting.peer()
    await rank.attach(rank=3)
    await engine.hello(ranks=2)
    with pytest.raises((PeerClosedError, RequestError)):
        await rank.ask(channel.Reset())
    with pytest.raises(RequestError, match="rank=3"):
        await (await setting.peer()).attach(rank=3)
    assert len(setting.world.core.sessions) == 1


async def test_a_rank_speaks_for_its_memory_only(setting: Setting) -> None:
    rank = await setting.peer()
    await rank.attach()
    with pytest.raises(UnknownSessionError):
        await rank.ask(channel.Lookup(run=run_of(RUN)))
    with pytest.raises(RequestError, match="already"):
        await rank.attach()


async def test_a_connection_never_attaches_ranks_of_another_engine(setting: Setting) -> None:
    engine = await setting.peer()
    await engine.hello()
    with pytest.raises(RequestError, match="another engine"):
        await engine.attach(engine="other")


@pytest.mark.parametrize(
    ("changes", "error", "field"),
    [
        ({"rank": -1}, RequestError, "rank"),
        ({"rank": 64}, RequestError, "rank"),
        ({"engine": ""}, RequestError, "engine"),
        ({"dp_rank": -1}, RequestError, "dp_rank"),
        ({"memory_bytes": -1}, LayoutMismatchError, "memory_bytes"),
        ({"memory_bytes": 1 << 60}, LayoutMismatchError, "memory_bytes"),
        ({"memory_bytes": BLOCKS * BLOCK_BYTES - 1}, LayoutMismatchError, "ends_at"),
        ({"regions": ()}, LayoutMismatchError, "regions"),
        ({"regions": ((),)}, LayoutMismatchError, "regions"),
        ({"regions": ((msgspec.structs.replace(HALF, page_bytes=0),),)}, LayoutMismatchError, "page_bytes"),
        ({"regions": ((msgspec.structs.replace(HALF, offset_bytes=-1),),)}, LayoutMismatchError, "regions"),
        ({"regions": ((msgspec.structs.replace(HALF, stride_bytes=1),),)}, LayoutMismatchError, "stride_bytes"),
        ({"regions": ((HALF, HALF, HALF),)}, LayoutMismatchError, f"needed_bytes={3 * BLOCK_BYTES // 2}"),
    ],
)
async def test_a_rank_that_does_not_fit_is_refused_with_the_field(
    setting: Setting, changes: dict[str, Any], error: type[Exception], field: str
) -> None:
    engine = await setting.peer()
    await engine.hello()
    with pytest.raises(error, match=field):
        await engine.attach(**changes)
    assert not session_of(setting).complete
    await engine.attach()
    assert session_of(setting).complete


async def test_the_stride_of_an_engine_with_one_block_is_bounded_too(setting: Setting) -> None:
    engine = await setting.peer()
    await engine.hello(blocks=1)
    with pytest.raises(LayoutMismatchError, match="regions"):
        await engine.attach(regions=((msgspec.structs.replace(HALF, stride_bytes=(1 << 64) - 1),),))
    assert setting.mapper.asked == []


async def test_the_regions_of_all_groups_together_are_bounded(setting: Setting) -> None:
    rank = await setting.peer()
    with pytest.raises(LayoutMismatchError, match="too many regions"):
        await rank.attach(regions=((HALF,) * 2_049,) * 2)


async def test_ranks_of_one_engine_have_pages_of_one_size(setting: Setting) -> None:
    engine, first, second = await setting.peer(), await setting.peer(), await setting.peer()
    await engine.hello(ranks=2)
    await first.attach(rank=0, **OF_TWO)
    smaller = msgspec.structs.replace(HALF, page_bytes=16)
    with pytest.raises(LayoutMismatchError, match="other_rank=0"):
        await second.attach(rank=1, regions=((smaller,),))


async def test_a_rank_without_memory_belongs_to_an_engine_whose_ranks_copy(setting: Setting) -> None:
    engine, rank = await setting.peer(), await setting.peer()
    await engine.hello()
    with pytest.raises(RequestError, match="descriptor"):
        await rank.ask(ATTACH)
    with pytest.raises(RequestError, match="descriptor"):
        await rank.tell(ATTACH, memory(), memory())


async def test_ranks_that_copy_themselves_keep_their_memory_and_nothing_is_mapped(setting: Setting) -> None:
    engine, rank = await setting.peer(), await setting.peer()
    await engine.hello(executor="engine")
    with pytest.raises(RequestError, match="executor"):
        await rank.attach()
    assert isinstance(await rank.ask(msgspec.structs.replace(ATTACH, memory_bytes=0)), channel.RankAttached)
    assert session_of(setting).complete
    assert setting.mapper.asked == []
    registered = await engine.ask(
        channel.Register(run=run_of(RUN), pages=u32(0, 1, 2, 3), guards=u64(0, 0, 0, 0), ticket=7)
    )
    assert registered == channel.Registered(registered=len(RUN), stores=0)
    assert await engine.told() == channel.StoresSettled(ticket=7)


def records(setting: Setting) -> int:
    """Processes that the next life of the block-manager would wait for."""
    return len(list((setting.socket.parent / "writers").glob("*.json")))


async def test_a_rank_that_attaches_again_keeps_the_record_of_its_process(setting: Setting) -> None:
    engine, first, second = await setting.peer(), await setting.peer(), await setting.peer()
    await engine.hello(executor="engine")
    copying = msgspec.structs.replace(ATTACH, memory_bytes=0)
    await first.ask(copying)
    await second.ask(copying)
    assert records(setting) == 1
    second.rpc.close()
    async with asyncio.timeout(WAIT_SECONDS):
        while records(setting):
            await asyncio.sleep(0)


async def test_a_rank_that_is_refused_after_its_record_was_written_leaves_none(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, go_on = threading.Event(), threading.Event()

    def write_later(path: Path, data: bytes) -> None:
        began.set()
        assert go_on.wait(WAIT_SECONDS)
        replace_file(path, data)

    monkeypatch.setattr("blockyard_block_manager.writer_processes.replace_file", write_later)
    rank, engine = await setting.peer(), await setting.peer()
    attaching = asyncio.create_task(rank.ask(msgspec.structs.replace(ATTACH, memory_bytes=0, rank=1)))
    await asyncio.to_thread(began.wait, WAIT_SECONDS)
    await engine.hello(executor="engine")  # with one rank
    go_on.set()
    with pytest.raises(RequestError, match="no such rank"):
        await attaching
    assert records(setting) == 0


async def test_no_descriptor_of_a_rank_or_an_engine_stays_open(setting: Setting) -> None:
    engine, first, second = await two_ranks(setting)
    await (await setting.peer()).attach(rank=1, **OF_TWO)
    with pytest.raises(LayoutMismatchError):
        await (await setting.peer()).attach(rank=0, regions=())
    for peer in (engine, first, second, *setting.peers):
        peer.rpc.close()
    async with asyncio.timeout(WAIT_SECONDS):
        while open_memories():
            await asyncio.sleep(0)
