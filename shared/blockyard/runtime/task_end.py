"""End tasks for certain, also those that miss a cancellation.

``asyncio.wait_for`` of Python 3.11 drops a cancellation that arrives in the moment in which what it waits for has ended
(refused connections of a client library do that at any time). The task then goes on as if nobody had asked, so asking
once is not enough.

Threading: one event loop.
"""

import asyncio
from typing import Any, Final

AGAIN_SECONDS: Final = 2.0
"""Pause before a task is asked again; time for a clean-up that waits for something."""


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
