"""Object store with one span per request, waiting and repeats included; caused by the transfer that needs the object.

Threading: one event loop.
"""

from collections.abc import Awaitable
from typing import Final, TypeVar

from blockyard.runtime import span_names as names
from blockyard.runtime.current_trace import current_trace
from blockyard.runtime.span_names import SpanName
from blockyard.runtime.spans import SpanKind, Tracer
from blockyard.tiers.checksum import ReadableBuffer
from blockyard.tiers.object_store import ObjectFacts, ObjectSlice, ObjectStore, PutOutcome

Answer = TypeVar("Answer")

_NO_BYTES: Final = 0


class TracedStore:
    """``ObjectStore`` around another one."""

    def __init__(self, inner: ObjectStore, tracer: Tracer) -> None:
        """Ask ``inner``."""
        self._inner = inner
        self._tracer = tracer

    async def put_if_absent(self, key: str, body: ReadableBuffer) -> PutOutcome:
        """Store ``body`` unless there is an object under ``key``."""
        return await self._spanned(SpanName.PACK_PUT, memoryview(body).nbytes, self._inner.put_if_absent(key, body))

    async def replace(self, key: str, body: ReadableBuffer, etag: str) -> PutOutcome:
        """Store ``body`` if the object under ``key`` is still the one with ``etag``."""
        return await self._spanned(SpanName.PACK_REPLACE, memoryview(body).nbytes, self._inner.replace(key, body, etag))

    async def get_range(self, key: str, start: int, stop: int) -> ObjectSlice:
        """Bytes ``start`` to ``stop - 1``; fewer or none where the object ends earlier."""
        return await self._spanned(SpanName.PACK_GET, stop - start, self._inner.get_range(key, start, stop))

    async def head(self, key: str) -> ObjectFacts:
        """Length and version of an object."""
        return await self._spanned(SpanName.PACK_HEAD, _NO_BYTES, self._inner.head(key))

    async def _spanned(self, name: SpanName, size: int, request: Awaitable[Answer]) -> Answer:
        with self._tracer.start(name, current_trace(), SpanKind.CLIENT, {names.BYTES: size}):
            return await request
