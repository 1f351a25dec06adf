"""Runs one coroutine until it ends or a signal asks for the end.

The first SIGINT, SIGTERM or SIGHUP cancels it, and it ends in order; another one cancels again, which cuts the orderly
way short. Threading: one event loop in the main thread.
"""

import asyncio
import signal
from collections.abc import Callable, Coroutine
from typing import Final, TypeVar

from blockyard.cli.failures import RunInterruptedError

_STOPPING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_Result = TypeVar("_Result")


def run_until_signal(work: Coroutine[object, object, _Result], on_signal: Callable[[], None] = lambda: None) -> _Result:
    """Result of ``work``; ``on_signal`` is told that it is being ended.

    Raises:
        RunInterruptedError: a signal ended it.
    """

    async def supervised() -> _Result:
        task = asyncio.ensure_future(work)
        loop = asyncio.get_running_loop()

        def end() -> None:
            task.cancel()
            on_signal()

        for number in _STOPPING:
            loop.add_signal_handler(number, end)
        try:
            return await task
        except asyncio.CancelledError:
            raise RunInterruptedError("a signal ended the run") from None

    before = {number: signal.getsignal(number) for number in _STOPPING}
    try:
        return asyncio.run(supervised())
    finally:
        # The loop leaves the interpreter's own handlers, which raise wherever the program is.
        for number, handler in before.items():
            signal.signal(number, handler)
