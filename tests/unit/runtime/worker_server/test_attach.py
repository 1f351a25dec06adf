"""Whom a worker serves: attach, takeover by a newer life, reconnect."""

import asyncio
import os
from collections.abc import Awaitable, Callable

import pytest

from blockyard.core.errors import (
    AttachedElsewhereError,
    FencedError,
    NotAttachedError,
    PeerClosedError,
    RequestError,
    UnavailableError,
    UnsupportedVersionError,
)
from blockyard.core.jobs import Refusal
from blockyard.core.vocabulary import ItemStatus, JobEnd, JobKind, Tier, WorkerRole
from blockyard.runtime.worker_server import WorkerServer
from blockyard.testing.scripted_worker import (
    ARENA,
    WAIT_SECONDS,
    WORKER_EPOCH,
    ManagerLink,
    ScriptedExecutor,
    attach_request,
    slot_job,
    until_news,
)
from blockyard.wire import worker_channel as channel

Connect = Callable[[], Awaitable[ManagerLink]]


def inode(fd: int) -> int:
    return os.fstat(fd).st_ino


async def seen_by_the_loop(condition: Callable[[], bool]) -> None:
    """Wait for what needs only turns of the event loop."""
    async with asyncio.timeout(WAIT_SECONDS):
        while not condition():
            await asyncio.sleep(0)


async def test_everything_but_attach_is_refused_before_it(connect: Connect) -> None:
    stranger = await connect()
    for request in (
        channel.Submit(job=slot_job(1), settled_below=1),
        channel.Poll(epoch=9, seqs=(1,)),
        channel.Inventory(tier=Tier.G2),
        channel.Find(identity=bytes(32), keys=b""),
    ):
        with pytest.raises(NotAttachedError):
            await stranger.ask(request)


async def test_attach_tells_who_answers_and_passes_the_arena(
    connect: Connect, executor: ScriptedExecutor, server: WorkerServer
) -> None:
    executor.arena_fd = os.memfd_create("arena", os.MFD_CLOEXEC)
    executor.received_fds.append(executor.arena_fd)
    manager = await connect()
    assert not server.attached
    reply, fds = await manager.client.call_with_fds(attach_request(), timeout_seconds=WAIT_SECONDS)

    assert isinstance(reply, channel.Attached)
    assert (reply.role, reply.worker_epoch, reply.arena) == (WorkerRole.OFFLOAD_WORKER, WORKER_EPOCH, ARENA)
    assert [inode(fd) for fd in fds] == [inode(executor.arena_fd)]
    assert server.attached
    os.close(fds[0])


async def test_arena_of_an_attach_goes_to_the_executor(connect: Connect, executor: ScriptedExecutor) -> None:
    arena = os.memfd_create("arena", os.MFD_CLOEXEC)
    manager = await connect()
    await manager.ask(attach_request(arena=ARENA), [arena])

    assert inode(executor.received_fds[0]) == inode(arena)
    os.close(arena)


async def test_attach_without_sense_is_refused(connect: Connect) -> None:
    manager = await connect()
    with pytest.raises(UnsupportedVersionError):
        await manager.ask(channel.Attach(version=99, instance="node", epoch=9))
    with pytest.raises(RequestError):
        await manager.ask(attach_request(epoch=0))
    with pytest.raises(RequestError):
        await manager.ask(attach_request(arena=ARENA))


async def test_lower_epoch_is_fenced(connect: Connect, manager: ManagerLink) -> None:
    with pytest.raises(FencedError):
        await (await connect()).attach(epoch=8)
    await manager.round_trip()


async def test_other_instance_is_refused_until_the_served_one_is_gone(
    connect: Connect, manager: ManagerLink, server: WorkerServer
) -> None:
    other = await connect()
    with pytest.raises(AttachedElsewhereError):
        await other.attach(epoch=10, instance="other")
    manager.client.close()
    await seen_by_the_loop(lambda: not server.attached)

    assert (await other.attach(epoch=10, instance="other")).worker_epoch == WORKER_EPOCH


async def test_newer_life_takes_over_and_the_older_connection_ends(connect: Connect, manager: ManagerLink) -> None:
    newer = await connect()
    await newer.attach(epoch=10)

    await asyncio.wait_for(manager.client.closed.wait(), WAIT_SECONDS)
    with pytest.raises(PeerClosedError):
        await manager.submit(slot_job(1))


async def test_only_the_attached_connection_gives_commands(connect: Connect, manager: ManagerLink) -> None:
    stranger = await connect()
    with pytest.raises(NotAttachedError):
        await stranger.submit(slot_job(1))
    assert isinstance(await manager.submit(slot_job(1)), channel.Accepted)


async def test_connection_that_has_ended_meanwhile_takes_nothing_over(
    connect: Connect, executor: ScriptedExecutor, server: WorkerServer
) -> None:
    executor.attach_gate.clear()
    served, gone = await connect(), await connect()
    async with asyncio.TaskGroup() as group:
        attaching = group.create_task(served.attach())
        await until_news(lambda: len(executor.attaches) == 1, executor.news)
        waiting = asyncio.create_task(gone.attach(epoch=10))
        while not gone.client.waiting:
            await asyncio.sleep(0)
        with pytest.raises(NotAttachedError):
            await gone.round_trip()  # the attach before it waits for the other one
        gone.client.close()
        with pytest.raises(PeerClosedError):
            await waiting
        executor.attach_gate.set()
    assert attaching.result().worker_epoch == WORKER_EPOCH

    assert isinstance(await served.submit(slot_job(1)), channel.Accepted)
    assert [attach.epoch for attach in executor.attaches] == [9]
    assert server.attached


async def test_block_manager_may_take_a_higher_epoch_on_its_connection(
    manager: ManagerLink, executor: ScriptedExecutor
) -> None:
    await manager.attach(epoch=10)

    assert await manager.submit(slot_job(1)) == channel.Refused(reason=Refusal.STALE_EPOCH)
    assert isinstance(await manager.submit(slot_job(1, epoch=10)), channel.Accepted)
    assert [attach.epoch for attach in executor.attaches] == [9, 10]


async def test_takeover_drops_queued_jobs_and_names_running_ones(
    connect: Connect, manager: ManagerLink, executor: ScriptedExecutor
) -> None:
    executor.gate.clear()
    await manager.submit(slot_job(1, slots=(3, 4)))
    await manager.submit(slot_job(2))
    newer = await connect()
    attached = await newer.attach(epoch=10)

    (running,) = attached.running
    assert (running.epoch, running.seq, running.kind) == (9, 1, JobKind.G3_G2)
    assert running.destinations == slot_job(1, slots=(3, 4)).items.dst_index
    assert executor.controls[1].cancelled
    executor.gate.set()
    result = await newer.result()
    assert (result.epoch, result.seq, result.end) == (9, 1, JobEnd.DONE)
    assert result.statuses() == [ItemStatus.SKIPPED] * 2
    assert executor.started == [1]


async def test_takeover_gives_running_jobs_a_moment_to_end(
    connect: Connect, manager: ManagerLink, executor: ScriptedExecutor
) -> None:
    executor.gate.clear()
    await manager.submit(slot_job(1))
    newer = await connect()
    async with asyncio.TaskGroup() as group:
        attaching = group.create_task(newer.attach(epoch=10))
        await seen_by_the_loop(lambda: executor.controls[1].cancelled)
        executor.gate.set()

    assert attaching.result().running == ()
    assert newer.results == []


async def test_reconnect_keeps_jobs_and_repeats_results(
    connect: Connect, manager: ManagerLink, executor: ScriptedExecutor
) -> None:
    await manager.submit(slot_job(1))
    await manager.result()
    executor.gate.clear()
    await manager.submit(slot_job(2))
    manager.client.close()
    again = await connect()

    assert (await again.attach()).running == ()
    assert (await again.result()).seq == 1
    executor.gate.set()
    await until_news(lambda: {result.seq for result in again.results} == {1, 2}, again.news)


async def test_failed_attach_may_be_repeated(connect: Connect, executor: ScriptedExecutor) -> None:
    manager = await connect()
    executor.failure = UnavailableError("the arena is locked")
    with pytest.raises(UnavailableError):
        await manager.attach()
    with pytest.raises(NotAttachedError):
        await manager.submit(slot_job(1))
    executor.failure = None

    await manager.attach()
    assert isinstance(await manager.submit(slot_job(1)), channel.Accepted)
