"""Object store with limits: few requests at once, short retries, and quick refusals while the server is dead.

Only requests that ended without an answer are repeated, whole; an answer is an answer. Repeating a conditional put is
safe: if the first one took effect after all, the second one finds its condition broken and the caller looks at what is
there.
Threading: one event loop.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from blockyard.core.errors import AccessDeniedError, UnavailableError
from blockyard.runtime.telemetry import Operation
from blockyard.tiers.breaker import Breaker, BreakerState
from blockyard.tiers.checksum import ReadableBuffer
from blockyard.tiers.object_store import ObjectFacts, ObjectSlice, ObjectStore, PutOutcome
from blockyard_remote_tier.server_meter import ServerMeter

Answer = TypeVar("Answer")
Sleep = Callable[[float], Awaitable[None]]

RETRY_PAUSES_SECONDS: Final = (0.05, 0.25)


class GuardedStore:
    """``ObjectStore`` around another one."""

    def __init__(
        self,
        inner: ObjectStore,
        breaker: Breaker,
        meter: ServerMeter,
        max_requests: int,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        """Guard ``inner``; at most ``max_requests`` are in flight."""
        self._inner = inner
        self._breaker = breaker
        self._meter = meter
        self._slots = asyncio.Semaphore(max_requests)
        self._sleep = sleep

    async def put_if_absent(self, key: str, body: ReadableBuffer) -> PutOutcome:
        """Store ``body`` unless there is an object under ``key``."""
        return await self._call(Operation.PUT, lambda: self._inner.put_if_absent(key, body))

    async def replace(self, key: str, body: ReadableBuffer, etag: str) -> PutOutcome:
        """Store ``body`` if the object under ``key`` is still the one with ``etag``."""
        return await self._call(Operation.REPLACE, lambda: self._inner.replace(key, body, etag))

    async def get_range(self, key: str, start: int, stop: int) -> ObjectSlice:
        """Bytes ``start`` to ``stop - 1``; fewer or none where the object ends earlier."""
        return await self._call(Operation.GET, lambda: self._inner.get_range(key, start, stop))

    async def head(self, key: str) -> ObjectFacts:
        """Length and version of an object."""
        return await self._call(Operation.HEAD, lambda: self._inner.head(key))

    async def _call(self, operation: Operation, request: Callable[[], Awaitable[Answer]]) -> Answer:
        for pause in RETRY_PAUSES_SECONDS:
            try:
                return await self._once(operation, request)
            except AccessDeniedError:
                raise
            except UnavailableError:
                if self._breaker.state is not BreakerState.CLOSED:
                    raise
            await self._sleep(pause)
        return await self._once(operation, request)

    async def _once(self, operation: Operation, request: Callable[[], Awaitable[Answer]]) -> Answer:
        async with self._slots:
            with self._breaker.attempt(), self._meter.call(operation):
                return await request()
