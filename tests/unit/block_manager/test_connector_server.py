"""The engines' channel over a real socket, above the real decisions and fake workers."""

import asyncio
from dataclasses import replace

import msgspec
import pytest
from tests.unit.block_manager.connector_kit import (
    BLOCKS,
    HELLO,
    RUN,
    WAIT_SECONDS,
    Setting,
    fill,
    run_of,
    session_of,
    setting,
    u32,
    u64,
)
from tests.unit.block_manager.world import BLOCK_TOKENS, MODEL, OW

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
from blockyard.testing.blocks import chain
from blockyard.testing.fake_slots import payload_of
from blockyard.wire import connector_channel as channel
from blockyard.wire.codec import MAX_KEYS_PER_CALL
from blockyard_block_manager import connector_requests

__all__ = ["setting"]


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


async def test_keys_count_for_every_group_that_is_asked_about(setting: Setting) -> None:
    peer = await setting.peer()
    groups = tuple(channel.Group(group=number, engine_block_tokens=BLOCK_TOKENS) for number in range(2))
    await peer.hello(groups=groups, identity=replace(MODEL, group_spec="full,full"))
    half = run_of(chain("long", MAX_KEYS_PER_CALL // 2))
    assert isinstance(await peer.ask(channel.Lookup(run=half, groups=(0, 1))), channel.LookupReply)
    more = run_of(chain("long", MAX_KEYS_PER_CALL // 2 + 1))
    for request in (channel.Lookup(run=more, groups=(0, 1)), channel.Reserve(request="r", run=more, groups=(0, 1))):
        with pytest.raises(TooManyKeysError, match=f"limit={MAX_KEYS_PER_CALL}"):
            await peer.ask(request)


async def test_more_pages_than_a_call_may_name_are_refused(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connector_requests, "MAX_PAGES_PER_CALL", len(RUN) - 1)
    peer = await setting.peer()
    await peer.join()
    with pytest.raises(TooManyKeysError, match="pages=4"):
        await peer.ask(fill(setting, RUN))
    assert len(session_of(setting).g1) == 0


async def test_too_many_keys_are_refused(setting: Setting) -> None:
    peer = await setting.peer()
    await peer.join()
    with pytest.raises(TooManyKeysError):
        await peer.ask(channel.Lookup(run=channel.Run(digests=bytes(32 * 4_097))))
