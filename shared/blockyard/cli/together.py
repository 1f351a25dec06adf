"""Run several waits at once; the first failure cancels the others and is raised as it is.

Threading: one event loop.
"""

import asyncio
from collections.abc import Coroutine, Sequence


async def together(*waits: Coroutine[object, object, object]) -> None:
    """Wait for all.

    Unlike ``asyncio.gather`` it leaves none running behind a failure; unlike a task group it raises the failure itself.
    """
    tasks = [asyncio.create_task(wait) for wait in waits]
    try:
        await asyncio.gather(*tasks)
    finally:
        await _end(tasks)


async def alongside(background: Coroutine[object, object, None], work: Coroutine[object, object, None]) -> None:
    """Run ``background`` for as long as ``work`` runs; a failure of either ends both."""
    tasks = [asyncio.create_task(background), asyncio.create_task(work)]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await _end(tasks)
    for task in done:
        task.result()


async def _end(tasks: Sequence[asyncio.Task[object]] | Sequence[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
