"""What ranks that copy by themselves and their engine ask for, over a real socket."""

import asyncio

import msgspec
import numpy as np
import pytest
from tests.unit.block_manager.connector_kit import ATTACH, RUN, WAIT_SECONDS, Peer, Setting, run_of, setting, u32
from tests.unit.block_manager.rank_kit import digests

from blockyard.core.errors import RequestError, UnavailableError
from blockyard.core.vocabulary import Availability, ItemStatus, Tier
from blockyard.runtime.rpc.frame_buffer import close_descriptors
from blockyard.testing.blocks import chain
from blockyard.testing.fake_slots import payload_of
from blockyard.wire import connector_channel as channel

__all__ = ["setting"]

KEEPS = msgspec.structs.replace(ATTACH, memory_bytes=0)
TWO = RUN.slice(0, 2)
STAGE = channel.OpenLoad(request="r", run=run_of(TWO), ttl_ms=1_000)


async def attach(peer: Peer, rank: int = 0, ranks: int = 1) -> channel.RankAttached:
    """Attach a rank that keeps its memory; the arena's descriptor, which comes with the answer, is closed."""
    ((region,),) = KEEPS.regions
    size = region.page_bytes // ranks
    regions = ((msgspec.structs.replace(region, page_bytes=size),),)
    request = msgspec.structs.replace(KEEPS, rank=rank, regions=regions)
    reply, fds = await peer.rpc.call_with_fds(request, timeout_seconds=WAIT_SECONDS)
    assert len(fds) == 1, "the arena"
    close_descriptors(fds)
    assert isinstance(reply, channel.RankAttached)
    return reply


async def engine_with_ranks(setting: Setting, ranks: int = 1) -> tuple[Peer, list[Peer]]:
    """An engine whose ranks copy, each with a connection of its own."""
    engine, peers = await setting.peer(), [await setting.peer() for _ in range(ranks)]
    await engine.hello(ranks=ranks, executor="engine")
    for number, peer in enumerate(peers):
        assert (await attach(peer, number, ranks)).arena is not None
    return engine, peers


async def granted(engine: Peer, count: int) -> channel.StoreGranted:
    reply = await engine.ask(channel.ReserveStore(count=count))
    assert isinstance(reply, channel.StoreGranted)
    return reply


async def stored(setting: Setting, engine: Peer) -> None:
    """Two rows, from the grant to the table."""
    grant = await granted(engine, 2)
    slots, generations = np.frombuffer(grant.slots, "<u4"), np.frombuffer(grant.generations, "<u8")
    for slot, generation, digest in zip(slots, generations, digests(TWO), strict=True):
        setting.world.tiers[Tier.G2].slots[slot].rank_writes(int(generation), payload_of(digest))
    await engine.ask(channel.CommitStore(grant=grant.grant, slots=grant.slots, run=run_of(TWO), shards=1))
    setting.world.settle()


async def test_rows_go_from_the_grant_to_the_table_and_to_a_staged_load(setting: Setting) -> None:
    engine, _ = await engine_with_ranks(setting)
    await stored(setting, engine)
    found = await engine.ask(channel.Lookup(run=run_of(TWO)))
    assert isinstance(found, channel.LookupReply)
    assert found.availability == bytes([Availability.G2] * 2)
    opened = await engine.ask(STAGE)
    assert isinstance(opened, channel.LoadOpened)
    setting.world.settle()
    staged = await engine.told()
    assert isinstance(staged, channel.LoadStaged)
    assert staged.load == opened.load
    assert staged.status == bytes([ItemStatus.OK] * 2)
    slots = setting.world.tiers[Tier.G2].slots
    for slot, generation, digest in zip(
        np.frombuffer(staged.slots, "<u4"), np.frombuffer(staged.generations, "<u8"), digests(TWO), strict=True
    ):
        assert (slots[slot].payload, slots[slot].generation) == (payload_of(digest), generation)
    await engine.ask(channel.CloseLoad(load=staged.load))
    setting.world.at_rest()


async def test_rows_that_are_not_there_have_no_slot(setting: Setting) -> None:
    engine, _ = await engine_with_ranks(setting)
    await engine.ask(STAGE)
    setting.world.settle()
    staged = await engine.told()
    assert isinstance(staged, channel.LoadStaged)
    assert ItemStatus.OK not in staged.status
    assert (staged.slots, staged.generations) == (bytes(8), bytes(16))


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        (channel.ReserveStore(count=0), "count"),
        (channel.AbortStore(grant=1, slots=b"abc"), "slots"),
        (channel.CommitStore(grant=1, slots=b"abcde", run=run_of(TWO), shards=1), "slots"),
        (channel.CommitStore(grant=99, slots=u32(0, 1), run=run_of(TWO), shards=1), "grant"),
        (channel.AbortStore(grant=-1, slots=u32(0)), "grant"),
        (msgspec.structs.replace(STAGE, pages=u32(0, 1), guards=bytes(16)), "pages"),
    ],
)
async def test_what_cannot_be_is_refused_by_name_and_changes_nothing(
    setting: Setting, wrong: channel.Request, field: str
) -> None:
    engine, _ = await engine_with_ranks(setting)
    with pytest.raises(RequestError, match=field):
        await engine.ask(wrong)
    setting.world.at_rest()
    await stored(setting, engine)


async def test_an_enormous_count_gets_the_share_of_the_engine(setting: Setting) -> None:
    engine, _ = await engine_with_ranks(setting)
    assert len(np.frombuffer((await granted(engine, 1 << 62)).slots, "<u4")) == 2


async def test_nothing_is_granted_or_staged_before_every_rank_has_the_arena(setting: Setting) -> None:
    engine = await setting.peer()
    await engine.hello(executor="engine")
    assert (await granted(engine, 1)).slots == b""
    with pytest.raises(UnavailableError, match="has the arena"):
        await engine.ask(STAGE)


async def test_staged_loads_have_a_share_of_g2_which_loads_under_way_count_for_by_their_length(
    setting: Setting,
) -> None:
    engine, _ = await engine_with_ranks(setting)
    await engine.ask(msgspec.structs.replace(STAGE, run=run_of(chain("long", 20))))
    setting.world.settle()
    await engine.told()
    await stored(setting, engine)
    first = await engine.ask(STAGE)
    assert isinstance(first, channel.LoadOpened)
    with pytest.raises(UnavailableError, match="pin too much"):
        await engine.ask(msgspec.structs.replace(STAGE, run=run_of(chain("other", 7))))
    setting.world.settle()
    await engine.told()
    with pytest.raises(UnavailableError, match="pin too much"):
        await engine.ask(msgspec.structs.replace(STAGE, run=run_of(chain("other", 7))))
    await engine.ask(channel.CloseLoad(load=first.load))
    await engine.ask(msgspec.structs.replace(STAGE, run=run_of(chain("other", 7))))


@pytest.mark.parametrize("waited_for", [True, False])
async def test_ranks_that_slots_wait_for_are_to_attach_anew_and_others_stay(setting: Setting, waited_for: bool) -> None:
    engine, (first, second) = await engine_with_ranks(setting, ranks=2)
    if waited_for:
        await granted(engine, 1)
    first.rpc.close()
    if waited_for:
        async with asyncio.timeout(WAIT_SECONDS):
            await second.rpc.closed.wait()
        first, second = await setting.peer(), await setting.peer()
        await attach(second, 1, 2)
    else:
        first = await setting.peer()
    await attach(first, 0, 2)
    assert second.rpc.closed.is_set() is False
    assert len((await granted(engine, 1)).slots) == 4
