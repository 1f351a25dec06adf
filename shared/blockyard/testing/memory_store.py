"""An object store and its bucket in memory, with the faults of real ones.

A request can be failed before or after it took effect, be held until a test lets it go, or meet objects that were
damaged, cut or removed behind everybody's back.
Threading: one event loop.
"""

import asyncio
import hashlib
from collections import deque
from collections.abc import AsyncGenerator
from dataclasses import dataclass

from blockyard.core.errors import BlockyardError, ObjectNotFoundError
from blockyard.tiers.bucket_admin import ListedObject
from blockyard.tiers.checksum import ReadableBuffer
from blockyard.tiers.object_store import NO_BUCKET, ObjectFacts, ObjectSlice, PutOutcome


@dataclass(frozen=True, slots=True)
class StoreCall:
    """One request that arrived."""

    verb: str
    key: str


class MemoryStore:
    """Implements ``ObjectStore`` and ``BucketAdmin``."""

    def __init__(self, *, bucket_exists: bool = True) -> None:
        """Start empty."""
        self.objects: dict[str, bytes] = {}
        self.calls: list[StoreCall] = []
        self.down: BlockyardError | None = None
        """While set, every request fails with it."""
        self.bucket_exists = bucket_exists
        self.gate = asyncio.Event()
        """While cleared, requests that arrive wait for it."""
        self.gate.set()
        self._failures: deque[BlockyardError] = deque()
        self._lost_answers: deque[BlockyardError] = deque()

    # --- faults -----------------------------------------------------------------------------------------------------
    def fail_next(self, error: BlockyardError, times: int = 1) -> None:
        """The next requests fail without effect."""
        self._failures.extend([error] * times)

    def lose_next_answer(self, error: BlockyardError) -> None:
        """The next request takes effect, and fails."""
        self._lost_answers.append(error)

    def flip(self, key: str, offset: int) -> None:
        """Invert one byte of an object."""
        data = bytearray(self.objects[key])
        data[offset] ^= 0xFF
        self.objects[key] = bytes(data)

    def cut(self, key: str, length: int) -> None:
        """Keep only the first ``length`` bytes of an object."""
        self.objects[key] = self.objects[key][:length]

    def puts(self) -> list[str]:
        """Keys of all puts that arrived, in order."""
        return [call.key for call in self.calls if call.verb in ("put_if_absent", "replace")]

    # --- ObjectStore ------------------------------------------------------------------------------------------------
    async def put_if_absent(self, key: str, body: ReadableBuffer) -> PutOutcome:
        """Store ``body`` unless there is an object under ``key``."""
        await self._arrive("put_if_absent", key)
        self._need_bucket(key)
        if key in self.objects:
            return self._answer(PutOutcome.CONFLICT)
        self.objects[key] = bytes(body)
        return self._answer(PutOutcome.STORED)

    async def replace(self, key: str, body: ReadableBuffer, etag: str) -> PutOutcome:
        """Store ``body`` if the object under ``key`` is still the one with ``etag``."""
        await self._arrive("replace", key)
        self._need_bucket(key)
        if key not in self.objects or _facts(self.objects[key]).etag != etag:
            return self._answer(PutOutcome.CONFLICT)
        self.objects[key] = bytes(body)
        return self._answer(PutOutcome.STORED)

    async def get_range(self, key: str, start: int, stop: int) -> ObjectSlice:
        """Bytes ``start`` to ``stop - 1``; fewer or none where the object ends earlier."""
        await self._arrive("get_range", key)
        data = self._object(key)
        return ObjectSlice(memoryview(data)[start:stop], _facts(data))

    async def head(self, key: str) -> ObjectFacts:
        """Length and version of an object."""
        await self._arrive("head", key)
        return _facts(self._object(key))

    # --- BucketAdmin ------------------------------------------------------------------------------------------------
    async def ensure_bucket(self) -> None:
        """Create the bucket unless it exists."""
        await self._arrive("ensure_bucket", "")
        self.bucket_exists = True

    async def list_objects(self, prefix: str) -> AsyncGenerator[ListedObject, None]:
        """Objects whose keys begin with ``prefix``, in the order of their keys."""
        await self._arrive("list_objects", prefix)
        for key in sorted(self.objects):
            if key.startswith(prefix):
                yield ListedObject(key, len(self.objects[key]))

    # --- inside -----------------------------------------------------------------------------------------------------
    async def _arrive(self, verb: str, key: str) -> None:
        self.calls.append(StoreCall(verb, key))
        await self.gate.wait()
        if self.down is not None:
            raise self.down
        if self._failures:
            raise self._failures.popleft()

    def _answer(self, outcome: PutOutcome) -> PutOutcome:
        if self._lost_answers:
            raise self._lost_answers.popleft()
        return outcome

    def _need_bucket(self, key: str) -> None:
        if not self.bucket_exists:
            raise ObjectNotFoundError("the bucket does not exist", object=key, reason=NO_BUCKET)

    def _object(self, key: str) -> bytes:
        self._need_bucket(key)
        if key not in self.objects:
            raise ObjectNotFoundError("no such object", object=key)
        return self.objects[key]


def _facts(data: bytes) -> ObjectFacts:
    return ObjectFacts(len(data), hashlib.sha256(data).hexdigest())
