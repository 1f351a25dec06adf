"""Jobs at a worker: accepted once, run loads first, results repeated until acknowledged."""

import pytest

from blockyard.core.errors import RequestError, TransferError, UnavailableError, UnsupportedOperationError
from blockyard.core.jobs import JobPhase, Refusal
from blockyard.core.vocabulary import ItemStatus, JobEnd, JobKind, Lane, Tier
from blockyard.testing.clock import FakeClock
from blockyard.testing.scripted_worker import WORKER_EPOCH, ManagerLink, ScriptedExecutor, slot_job
from blockyard.wire import worker_channel as channel


async def test_job_runs_and_its_result_is_repeated_until_acknowledged(manager: ManagerLink, clock: FakeClock) -> None:
    assert isinstance(await manager.submit(slot_job(1, slots=(0, 1))), channel.Accepted)
    result = await manager.result()
    assert (result.epoch, result.seq, result.worker_epoch, result.end) == (9, 1, WORKER_EPOCH, JobEnd.DONE)
    assert result.statuses() == [ItemStatus.OK] * 2

    clock.advance(0.02)
    await manager.result(count=2)
    await manager.ack(1)
    repeated = len(manager.results)
    clock.advance(1.0)
    await manager.submit(slot_job(2))
    await manager.result(count=repeated + 1)
    assert {result.seq for result in manager.results[repeated:]} == {2}


async def test_repeated_submit_runs_once(manager: ManagerLink, executor: ScriptedExecutor) -> None:
    for _ in range(3):
        assert isinstance(await manager.submit(slot_job(1)), channel.Accepted)
    await manager.result()

    assert executor.started == [1]


async def test_busy_when_the_queue_is_full(manager: ManagerLink, executor: ScriptedExecutor) -> None:
    executor.gate.clear()
    for seq in range(1, 5):
        assert isinstance(await manager.submit(slot_job(seq)), channel.Accepted)

    reply = await manager.submit(slot_job(5))
    assert isinstance(reply, channel.Busy)
    assert reply.retry_ms > 0


async def test_load_does_not_wait_for_stores(manager: ManagerLink, executor: ScriptedExecutor) -> None:
    executor.gate.clear()
    await manager.submit(slot_job(1))
    await manager.submit(slot_job(2))
    await manager.submit(slot_job(3, lane=Lane.LOAD))
    await manager.round_trip()

    assert executor.started == [1, 3]
    executor.gate.set()
    await manager.result(count=3)
    assert executor.started == [1, 3, 2]


@pytest.mark.parametrize(
    ("one", "reason"),
    [
        (slot_job(1, worker_epoch=WORKER_EPOCH - 1), Refusal.STALE_WORKER),
        (slot_job(1, epoch=8), Refusal.STALE_EPOCH),
        (slot_job(1, slots=()), Refusal.BAD_REQUEST),
        (slot_job(1, kind=JobKind.FREE), Refusal.BAD_REQUEST),
        (slot_job(1, kind=JobKind.G1_G2, mapping=7), Refusal.NO_MAPPING),
        (slot_job(1, kind=JobKind.G4_PUT), Refusal.BAD_REQUEST),
    ],
)
async def test_job_that_cannot_run_is_refused_with_its_reason(
    manager: ManagerLink, one: channel.Job, reason: Refusal
) -> None:
    assert await manager.submit(one) == channel.Refused(reason=reason)


async def test_failed_executor_fails_every_item(manager: ManagerLink, executor: ScriptedExecutor) -> None:
    executor.failure = TransferError("the disk is gone")
    await manager.submit(slot_job(1, slots=(0, 1)))

    assert (await manager.result()).statuses() == [ItemStatus.IO_ERROR] * 2


async def test_unavailable_dependency_is_unknown_not_an_error(manager: ManagerLink, executor: ScriptedExecutor) -> None:
    executor.failure = UnavailableError("the store is away")
    await manager.submit(slot_job(1))

    assert (await manager.result()).statuses() == [ItemStatus.UNKNOWN]


async def test_pending_index_is_told(manager: ManagerLink, executor: ScriptedExecutor) -> None:
    executor.pending = True
    await manager.submit(slot_job(1))

    assert (await manager.result()).index_pending


async def test_cancelled_queued_job_ends_untouched(manager: ManagerLink, executor: ScriptedExecutor) -> None:
    executor.gate.clear()
    await manager.submit(slot_job(1))
    await manager.submit(slot_job(2))
    reply = await manager.ask(channel.Cancel(epoch=9, seqs=(1, 2, 3)))

    assert isinstance(reply, channel.JobStates)
    phases = [(state.seq, state.state) for state in reply.states]
    assert phases == [(1, JobPhase.RUNNING), (2, JobPhase.ENDED), (3, JobPhase.UNSEEN)]
    result = await manager.result()
    assert (result.seq, result.end, result.statuses()) == (2, JobEnd.CANCELLED, [ItemStatus.SKIPPED])
    executor.gate.set()
    assert (await manager.result(count=2)).statuses() == [ItemStatus.SKIPPED]
    assert await manager.submit(slot_job(3)) == channel.Refused(reason=Refusal.TOMBSTONE)


async def test_inventory_leaves_out_destinations_of_jobs(manager: ManagerLink, executor: ScriptedExecutor) -> None:
    executor.gate.clear()
    await manager.submit(slot_job(1, slots=(3, 4)))
    await manager.submit(slot_job(2, slots=(6,), kind=JobKind.G2_G3))
    await manager.ask(channel.Inventory(tier=Tier.G2))
    assert executor.busy == frozenset({3, 4})
    await manager.ask(channel.Inventory(tier=Tier.G3))
    assert executor.busy == frozenset({6})
    with pytest.raises(RequestError):
        await manager.ask(channel.Inventory(tier=Tier.G1))


async def test_unsupported_operation_is_told(manager: ManagerLink) -> None:
    with pytest.raises(UnsupportedOperationError):
        await manager.ask(channel.Find(identity=bytes(32), keys=b""))
