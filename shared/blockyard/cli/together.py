"""Run several waits at once; the first failure cancels the others and is raised as it is."""

import asyncio
from collections.abc import Awaitable


async def together(*awaitables: Awaitable[object]) -> None:
    """Wait for all.

    Unlike ``asyncio.gather`` it leaves none running behind a failure; unlike a task group it raises the failure itself.
    """
    tasks = [asyncio.ensure_future(awaitable) for awaitable in awaitables]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
