"""Serves a range of the trace, several requests at a time.

Threading: one event loop.
"""

import asyncio
from collections.abc import Callable
from typing import Final, final

from blockyard.connectors.mock.commands import Replay
from blockyard.connectors.mock.engine import BlockOutcome, MockEngine
from blockyard.connectors.mock.trace import TraceRequest, load_trace
from blockyard.core.errors import BlockyardError, RequestError

_REPORT_SECONDS: Final = 1.0


@final
class TraceReplay:
    """The trace, as served by one engine."""

    def __init__(self, engine: MockEngine) -> None:
        """Serve with ``engine``."""
        self._engine = engine
        self._trace = load_trace()

    @property
    def requests(self) -> int:
        """Length of the trace."""
        return len(self._trace)

    async def run(self, replay: Replay, on_progress: Callable[[int, int], None] = lambda served, of: None) -> None:
        """Serve the range; ``on_progress`` is told every second how many of how many requests were begun.

        Raises:
            BlockyardError: a request could not be served; the others were cancelled.
        """
        requests = self._trace[replay.first : replay.first + replay.count]
        loop = asyncio.get_running_loop()
        start, reported = loop.time(), loop.time()
        slots = asyncio.Semaphore(replay.concurrency)

        async def serve(request: TraceRequest) -> None:
            try:
                await self._engine.serve(request)
            finally:
                slots.release()

        try:
            async with asyncio.TaskGroup() as group:
                for index, request in enumerate(requests):
                    if replay.pace:
                        due = start + (request.arrival_seconds - requests[0].arrival_seconds) / replay.pace
                        await asyncio.sleep(max(0.0, due - loop.time()))
                    await slots.acquire()
                    group.create_task(serve(request))
                    if loop.time() - reported >= _REPORT_SECONDS:
                        reported = loop.time()
                        on_progress(index, len(requests))
        except BaseExceptionGroup as failed:
            refused, defects = failed.split(BlockyardError)
            if refused is None or defects is not None:
                raise
            raise _first_of(refused) from None

    async def probe(self, key_hex: str) -> BlockOutcome:
        """Drop the engine's cache, serve the first request that contains this block; what became of the block.

        Raises:
            RequestError: no request contains it.
        """
        for request in self._trace:
            if any(key.hex() == key_hex for key in self._engine.run_of(request)):
                await self._engine.reset()
                outcomes = await self._engine.serve(request)
                return next(outcome for outcome in outcomes if outcome.key.hex() == key_hex)
        raise RequestError("no request of the trace contains this block", key=key_hex)


def _first_of(group: BaseExceptionGroup[BlockyardError]) -> BlockyardError:
    """One of the errors of requests that failed together."""
    first = group.exceptions[0]
    return _first_of(first) if isinstance(first, BaseExceptionGroup) else first
