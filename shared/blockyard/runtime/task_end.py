"""End tasks for certain, also those that miss a cancellation.

``asyncio.wait_for`` of Python 3.11 drops a cancellation that arrives in the moment in which what it waits for has ended
(refused connections of a client library do that at any time). The task then goes on as if nobody had asked, so asking
once is not enough.

Threading: one event loop.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

AGAIN_SECONDS: Final = 2.0
"""Pause before a task is asked again; time for a clean-up that waits for something."""

_Result = TypeVar("_Result")


async def end_tasks(*tasks: asyncio.Task[Any], again_seconds: float | None = None) -> None:
    """Cancel ``tasks`` until all have ended; how they ended is left to whoever looks at them.

    Args:
        tasks: what to end.
        again_seconds: pause before asking again, where no clean-up takes as long as ``AGAIN_SECONDS``.
    """
    pause = AGAIN_SECONDS if again_seconds is None else again_seconds
    pending = {task for task in tasks if not task.done()}
    while pending:
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=pause)


async def run_cancellable(work: Coroutine[Any, Any, _Result], *, again_seconds: float) -> _Result:
    """Await ``work``, which may miss cancellations; one of the caller ends it all the same."""
    task = asyncio.create_task(work)
    try:
        await asyncio.wait({task})
    finally:
        await end_tasks(task, again_seconds=again_seconds)
        # Looked at also where the caller was cancelled and nobody asks: else it would count as an error nobody met.
        failure = None if task.cancelled() else task.exception()
    if failure is not None:
        raise failure
    return task.result()
