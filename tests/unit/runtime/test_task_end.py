"""Ending tasks that miss a cancellation."""

import asyncio

import pytest

from blockyard.runtime import task_end
from blockyard.runtime.task_end import end_tasks


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
