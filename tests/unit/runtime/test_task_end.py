"""Ending tasks that miss a cancellation."""

import asyncio

import pytest

from blockyard.runtime import task_end
from blockyard.runtime.task_end import end_tasks, run_cancellable


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_end, "AGAIN_SECONDS", 0.01)


async def deaf(times: int) -> None:
    """Misses ``times`` cancellations."""
    for _ in range(times):
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            continue
    await asyncio.Event().wait()


async def test_a_task_that_misses_a_cancellation_is_asked_again() -> None:
    tasks = [asyncio.create_task(deaf(times)) for times in (0, 1, 3)]
    await asyncio.sleep(0)
    await end_tasks(*tasks)
    assert all(task.cancelled() for task in tasks)


async def test_a_task_that_has_ended_is_left_alone() -> None:
    task = asyncio.create_task(asyncio.sleep(0))
    await task
    await end_tasks(task)
    await end_tasks()
    assert not task.cancelled()


async def test_a_cleanup_that_waits_is_not_disturbed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_end, "AGAIN_SECONDS", 10.0)
    cleaned: list[bool] = []

    async def careful() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.01)
            cleaned.append(True)

    task = asyncio.create_task(careful())
    await asyncio.sleep(0)
    await end_tasks(task)
    assert cleaned


async def test_work_that_loses_the_cancellation_of_its_caller_ends_with_it() -> None:
    caller = asyncio.create_task(run_cancellable(deaf(2), again_seconds=0.01))
    await asyncio.sleep(0)
    caller.cancel()
    await asyncio.wait({caller}, timeout=5.0)
    assert caller.cancelled()


async def test_how_the_work_ended_reaches_its_caller() -> None:
    async def broken() -> None:
        raise KeyError("broken")

    assert await run_cancellable(asyncio.sleep(0, "done"), again_seconds=1.0) == "done"
    with pytest.raises(KeyError, match="broken"):
        await run_cancellable(broken(), again_seconds=1.0)
