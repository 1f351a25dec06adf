"""Engine mappings of a worker: made once, gone after their last job, never those of another life."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from blockyard.core.errors import FencedError, RequestError, StorageError
from blockyard.core.jobs import Refusal
from blockyard.core.vocabulary import JobKind
from blockyard.testing.scripted_worker import ManagerLink, ScriptedExecutor, engine_mapping, slot_job, until_news
from blockyard.wire import worker_channel as channel

Connect = Callable[[], Awaitable[ManagerLink]]


def engine_job(seq: int, *, mapping: int = 1, epoch: int = 9) -> channel.Job:
    return slot_job(seq, kind=JobKind.G1_G2, mapping=mapping, epoch=epoch)


async def test_mapping_is_made_once_and_needs_two_descriptors(
    manager: ManagerLink, executor: ScriptedExecutor, engine_fds: list[int]
) -> None:
    with pytest.raises(RequestError):
        await manager.ask(engine_mapping(1), engine_fds[:1])
    with pytest.raises(RequestError):
        await manager.ask(engine_mapping(0), engine_fds)
    await manager.ask(engine_mapping(1), engine_fds)
    await manager.ask(engine_mapping(1), engine_fds)

    assert executor.mapped == [1]
    assert isinstance(await manager.submit(engine_job(1)), channel.Accepted)


async def test_repeated_request_waits_for_the_one_in_work(
    manager: ManagerLink, executor: ScriptedExecutor, engine_fds: list[int]
) -> None:
    executor.map_gate.clear()
    async with asyncio.TaskGroup() as group:
        for _ in range(2):
            group.create_task(manager.ask(engine_mapping(1), engine_fds))
        await until_news(lambda: executor.map_requests == [1], executor.news)
        await manager.round_trip()
        assert await manager.submit(engine_job(1)) == channel.Refused(reason=Refusal.NO_MAPPING)
        executor.map_gate.set()

    assert executor.map_requests == [1]
    assert isinstance(await manager.submit(engine_job(2)), channel.Accepted)


async def test_mapping_that_failed_may_be_asked_for_again(
    manager: ManagerLink, executor: ScriptedExecutor, engine_fds: list[int]
) -> None:
    executor.failure = RequestError("the memory is not sealed")
    with pytest.raises(RequestError):
        await manager.ask(engine_mapping(1), engine_fds)
    assert await manager.submit(engine_job(1)) == channel.Refused(reason=Refusal.NO_MAPPING)
    executor.failure = None
    await manager.ask(engine_mapping(1), engine_fds)

    assert isinstance(await manager.submit(engine_job(2)), channel.Accepted)


async def test_mapping_goes_when_its_last_job_has_ended(
    manager: ManagerLink, executor: ScriptedExecutor, engine_fds: list[int]
) -> None:
    executor.gate.clear()
    await manager.ask(engine_mapping(1), engine_fds)
    await manager.submit(engine_job(1))
    async with asyncio.TaskGroup() as group:
        unmapping = group.create_task(manager.ask(channel.UnmapEngine(mapping=1)))
        await manager.round_trip()
        assert await manager.submit(engine_job(2)) == channel.Refused(reason=Refusal.NO_MAPPING)
        assert not unmapping.done()
        assert executor.unmapped == []
        executor.gate.set()

    assert executor.unmapped == [1]
    await manager.ask(channel.UnmapEngine(mapping=1))
    assert executor.unmapped == [1]


async def test_mapping_still_being_made_goes_when_it_is_asked_to(
    manager: ManagerLink, executor: ScriptedExecutor, engine_fds: list[int]
) -> None:
    executor.map_gate.clear()
    async with asyncio.TaskGroup() as group:
        group.create_task(manager.ask(engine_mapping(1), engine_fds))
        await until_news(lambda: executor.map_requests == [1], executor.news)
        group.create_task(manager.ask(channel.UnmapEngine(mapping=1)))
        await manager.round_trip()
        executor.map_gate.set()

    assert (executor.mapped, executor.unmapped) == ([1], [1])


async def test_cancel_of_queued_jobs_frees_their_mapping(
    manager: ManagerLink, executor: ScriptedExecutor, engine_fds: list[int]
) -> None:
    executor.gate.clear()
    await manager.ask(engine_mapping(1), engine_fds)
    await manager.submit(slot_job(1))
    await manager.submit(engine_job(2))
    async with asyncio.TaskGroup() as group:
        unmapping = group.create_task(manager.ask(channel.UnmapEngine(mapping=1)))
        await manager.round_trip()
        assert not unmapping.done()
        await manager.ask(channel.Cancel(epoch=9, seqs=(2,)))

    assert executor.unmapped == [1]


async def test_nobody_else_waits_for_a_mapping_that_leaves_or_is_unmapped(
    manager: ManagerLink, executor: ScriptedExecutor, engine_fds: list[int]
) -> None:
    executor.gate.clear()
    executor.unmap_gate.clear()
    await manager.ask(engine_mapping(1), engine_fds)
    await manager.ask(engine_mapping(2), engine_fds)
    await manager.submit(engine_job(1))
    async with asyncio.TaskGroup() as group:
        leaving = group.create_task(manager.ask(channel.UnmapEngine(mapping=1)))
        again = group.create_task(manager.ask(engine_mapping(1), engine_fds))
        unmapping = group.create_task(manager.ask(channel.UnmapEngine(mapping=2)))
        await until_news(lambda: executor.unmap_requests == [2], executor.news)
        await manager.ask(engine_mapping(3), engine_fds)
        await manager.ask(channel.Cancel(epoch=9, seqs=(9,)))
        assert not leaving.done()
        assert not again.done()
        assert not unmapping.done()
        executor.gate.set()
        executor.unmap_gate.set()

    assert sorted(executor.unmapped) == [1, 2]
    assert executor.mapped == [1, 2, 3, 1]


async def test_mappings_of_an_older_life_end_before_their_numbers_are_used_again(
    connect: Connect, manager: ManagerLink, executor: ScriptedExecutor, engine_fds: list[int]
) -> None:
    executor.gate.clear()
    await manager.ask(engine_mapping(1), engine_fds)
    await manager.submit(engine_job(1))
    newer = await connect()
    await newer.attach(epoch=10)
    async with asyncio.TaskGroup() as group:
        mapping = group.create_task(newer.ask(engine_mapping(1), engine_fds))
        await newer.round_trip()
        assert not mapping.done()
        executor.gate.set()

    assert executor.unmapped == [1]
    assert executor.mapped == [1, 1]


async def test_mapping_that_an_older_life_asked_for_is_not_that_of_the_newer_one(
    connect: Connect, manager: ManagerLink, executor: ScriptedExecutor, engine_fds: list[int]
) -> None:
    executor.map_gate.clear()
    asking = asyncio.create_task(manager.ask(engine_mapping(1), engine_fds))
    late = asyncio.create_task(manager.ask(engine_mapping(1), engine_fds))
    await until_news(lambda: executor.map_requests == [1], executor.news)
    await manager.round_trip()
    newer = await connect()
    await newer.attach(epoch=10)
    for call in (asking, late):
        with pytest.raises(FencedError):
            await call
    assert await newer.submit(engine_job(1, epoch=10)) == channel.Refused(reason=Refusal.NO_MAPPING)
    executor.map_gate.set()
    await newer.ask(engine_mapping(1), engine_fds)

    assert executor.map_requests == [1, 1]
    assert executor.unmapped == [1]
    assert isinstance(await newer.submit(engine_job(2, epoch=10)), channel.Accepted)


async def test_failure_to_unmap_does_not_end_the_worker(
    connect: Connect, manager: ManagerLink, executor: ScriptedExecutor, engine_fds: list[int]
) -> None:
    executor.unmap_failure = StorageError("cannot unmap")
    await manager.ask(engine_mapping(1), engine_fds)
    newer = await connect()
    await newer.attach(epoch=10)
    await until_news(lambda: executor.unmap_requests == [1], executor.news)

    await newer.round_trip()
    assert isinstance(await newer.submit(slot_job(1, epoch=10)), channel.Accepted)
