"""Port to an object store for payload, and its adapter for S3-compatible servers.

An operation is one request with one answer; retries, limits and breakers stand around it. Whole objects appear at once
or not at all. Nothing here says *not found* unless the server did, and nothing that failed on the way is an answer.
Threading: one event loop; the HTTP client of the adapter has threads of its own.
"""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum, unique
from typing import Final, Protocol

import obstore
from obstore import exceptions as obstore_errors
from obstore.store import S3Store

from blockyard.core.errors import (
    AccessDeniedError,
    BlockyardError,
    DeadlineExceededError,
    ObjectNotFoundError,
    StorageError,
    UnavailableError,
)
from blockyard.tiers.checksum import ReadableBuffer

_CONNECT_SECONDS: Final = 2.0
_RANGE_REFUSED: Final = "416 Range Not Satisfiable"
_CODE: Final = re.compile(r"<Code>(\w{1,64})</Code>")
"""The word by which S3 names a refusal."""
_STATUS: Final = re.compile(r"status code: (\d{3}[ \w]*)")
_TELLING: Final = (
    (re.compile(r'\n *message: "([^"\n]*)"'), "{}"),
    (re.compile(r'\n *"dns error",\n.*\n.*\n *error: "[^"\n]*?([^": \n][^":\n]*)"'), "{}"),
    (re.compile(r"InvalidContentType"), "the server does not speak TLS"),
    (re.compile(r"InvalidCertificate\(\s*(\w+)"), "the certificate of the server is refused: {}"),
    (re.compile(r"hyper::Error\(\s*(?:Parse|IncompleteMessage)"), "the answer is not HTTP"),
)
"""Where the client hides the reason, in the dump of its structures."""


@unique
class PutOutcome(Enum):
    """Answer to a conditional put."""

    STORED = "stored"
    CONFLICT = "conflict"
    """The condition did not hold, or another writer was at work: nothing was written by this request."""


@dataclass(frozen=True, slots=True)
class ObjectFacts:
    """What is known of an object without its bytes."""

    object_bytes: int
    etag: str


@dataclass(frozen=True, slots=True)
class ObjectSlice:
    """Part of an object; shorter than asked for only where the object ends earlier."""

    data: memoryview
    facts: ObjectFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreCredentials:
    """Keys of an S3 account; never shown. Empty ones: requests go out unsigned, as of nobody."""

    access_key: str
    secret_key: str

    @property
    def given(self) -> bool:
        """False where there is no account."""
        return bool(self.access_key)

    def __repr__(self) -> str:
        """Without the secrets."""
        return "StoreCredentials(...)"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreEndpoint:
    """Which bucket on which server, and how long to wait for it."""

    url: str
    region: str
    bucket: str
    timeout_seconds: float
    max_requests: int


class ObjectStore(Protocol):
    """Objects by key, written whole and read in ranges.

    All methods raise ``UnavailableError`` or one of its kinds where no answer was had (no connection, no answer in
    time, a body that ended early, a server that is overloaded), ``AccessDeniedError`` where the server refuses the
    credentials for this object, ``ObjectNotFoundError`` where it says that there is none. A put that ended in an error
    may have taken effect.
    """

    async def put_if_absent(self, key: str, body: ReadableBuffer) -> PutOutcome:
        """Store ``body`` unless there is an object under ``key``."""
        ...

    async def replace(self, key: str, body: ReadableBuffer, etag: str) -> PutOutcome:
        """Store ``body`` if the object under ``key`` is still the one with ``etag``."""
        ...

    async def get_range(self, key: str, start: int, stop: int) -> ObjectSlice:
        """Bytes ``start`` to ``stop - 1``; fewer or none where the object ends earlier."""
        ...

    async def head(self, key: str) -> ObjectFacts:
        """Length and version of an object."""
        ...


class S3ObjectStore:
    """``ObjectStore`` on one bucket of an S3-compatible server.

    Payload goes out unsigned: every record carries its own checksum, so signing it would only cost time.
    """

    def __init__(self, endpoint: StoreEndpoint, credentials: StoreCredentials) -> None:
        """Make the client; nothing is sent before the first call."""
        self._timeout_seconds = endpoint.timeout_seconds
        self._store = S3Store(
            endpoint.bucket,
            endpoint=endpoint.url,
            region=endpoint.region,
            access_key_id=credentials.access_key,
            secret_access_key=credentials.secret_key,
            virtual_hosted_style_request=False,
            unsigned_payload=True,
            skip_signature=not credentials.given,
            client_options={
                "allow_http": endpoint.url.startswith("http://"),
                "connect_timeout": timedelta(seconds=min(_CONNECT_SECONDS, endpoint.timeout_seconds)),
                "timeout": timedelta(seconds=endpoint.timeout_seconds),
                "pool_max_idle_per_host": str(endpoint.max_requests),
            },
            retry_config={"max_retries": 0, "retry_timeout": timedelta(seconds=endpoint.timeout_seconds)},
        )

    async def put_if_absent(self, key: str, body: ReadableBuffer) -> PutOutcome:
        """Store ``body`` unless there is an object under ``key``."""
        return await self._put(key, body, "create")

    async def replace(self, key: str, body: ReadableBuffer, etag: str) -> PutOutcome:
        """Store ``body`` if the object under ``key`` is still the one with ``etag``."""
        return await self._put(key, body, {"e_tag": etag})

    async def _put(self, key: str, body: ReadableBuffer, mode: "obstore.PutMode") -> PutOutcome:
        try:
            async with self._translated(key, "write"):
                await obstore.put_async(self._store, key, memoryview(body), mode=mode, use_multipart=False)
        except _ConflictError:
            return PutOutcome.CONFLICT
        return PutOutcome.STORED

    async def get_range(self, key: str, start: int, stop: int) -> ObjectSlice:
        """Bytes ``start`` to ``stop - 1``; fewer or none where the object ends earlier."""
        try:
            async with self._translated(key, "read"):
                answer = await obstore.get_async(self._store, key, options={"range": (start, stop)})
                data = memoryview(await answer.bytes_async())
        except _BeyondEndError:
            return ObjectSlice(memoryview(b""), await self.head(key))
        facts = ObjectFacts(answer.meta["size"], answer.meta["e_tag"] or "")
        if answer.range[0] != start or len(data) != min(stop, facts.object_bytes) - start:
            raise UnavailableError("the body of the answer has another length", server=_SERVER, object=key)
        return ObjectSlice(data, facts)

    async def head(self, key: str) -> ObjectFacts:
        """Length and version of an object."""
        async with self._translated(key, "read"):
            meta = await obstore.head_async(self._store, key)
        return ObjectFacts(meta["size"], meta["e_tag"] or "")

    @asynccontextmanager
    async def _translated(self, key: str, action: str) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(self._timeout_seconds):
                yield
        except TimeoutError:
            raise DeadlineExceededError("no answer in time", server=_SERVER, object=key) from None
        except FileNotFoundError as error:
            facts = {"reason": code} if (code := _code(str(error))) else {}
            raise ObjectNotFoundError("the server has no such object", object=key, **facts) from None
        except (obstore_errors.AlreadyExistsError, obstore_errors.PreconditionError):
            raise _ConflictError("the condition of the request does not hold", object=key) from None
        except (obstore_errors.PermissionDeniedError, obstore_errors.UnauthenticatedError) as error:
            raise AccessDeniedError(
                "the server refuses this account", server=_SERVER, object=key, action=action, reason=_code(str(error))
            ) from None
        except obstore_errors.BaseError as error:
            raise _unanswered(str(error), key) from None


_SERVER: Final = "s3"
NO_BUCKET: Final = "NoSuchBucket"
"""Reason of ``ObjectNotFoundError`` where not even the bucket is there."""


class _ConflictError(StorageError):
    """Becomes an outcome before it leaves this module."""


class _BeyondEndError(StorageError):
    """Becomes an empty slice before it leaves this module."""


def _unanswered(text: str, key: str) -> BlockyardError:
    """What a request that had no answer ended with; ``text`` is all that the client tells."""
    if _RANGE_REFUSED in text:
        return _BeyondEndError("the object ends before the range", object=key)
    if "operation timed out" in text:
        return DeadlineExceededError("no answer in time", server=_SERVER, object=key)
    if status := _STATUS.search(text):
        facts = {"reason": code} if (code := _code(text)) else {}
        return UnavailableError(f"the server answered {status[1]}", server=_SERVER, object=key, **facts)
    for form, sentence in _TELLING:
        if found := form.search(text):
            return UnavailableError(sentence.format(*found.groups()), server=_SERVER, object=key)
    # What follows the first line is a dump of the client's structures.
    return UnavailableError(text.partition("\n")[0], server=_SERVER, object=key)


def _code(text: str) -> str:
    found = _CODE.search(text)
    return found[1] if found else ""
