"""Port to the administration of a bucket (creating, listing), and its adapter for S3-compatible servers.

Rare and slow operations only; payload goes through ``object_store``.
Threading: one event loop; a client lives for one call, so nothing has to be closed.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, Protocol

import aioboto3
from botocore import UNSIGNED
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from blockyard.core.errors import AccessDeniedError, BlockyardError, DeadlineExceededError, UnavailableError
from blockyard.tiers.object_store import StoreCredentials, StoreEndpoint

_SERVER: Final = "s3"
_CONNECT_SECONDS: Final = 2.0
_UNNAMED_REGION: Final = "us-east-1"
_PAGE_KEYS: Final = 1_000
_ALREADY_THERE: Final = ("BucketAlreadyOwnedByYou", "BucketAlreadyExists")
_NO_ANSWER_OF_S3: Final = (LookupError, ValueError, TypeError, RecursionError)
"""What the SDK raises on answers that no S3 server gives (a redirect to nowhere ends as a recursion)."""


@dataclass(frozen=True, slots=True)
class ListedObject:
    """One object of a listing."""

    key: str
    object_bytes: int


class BucketAdmin(Protocol):
    """Operations on a bucket as a whole; errors as in ``ObjectStore``."""

    async def ensure_bucket(self) -> None:
        """Create the bucket unless it exists."""
        ...

    def list_objects(self, prefix: str) -> AsyncGenerator[ListedObject, None]:
        """Objects whose keys begin with ``prefix``, in the order of their keys; close it where it is not used up."""
        ...


class S3BucketAdmin:
    """``BucketAdmin`` on an S3-compatible server."""

    def __init__(self, endpoint: StoreEndpoint, credentials: StoreCredentials) -> None:
        """Keep the settings; nothing is sent before the first call."""
        self._endpoint = endpoint
        # Given also where there are none: else the SDK would look for an account on this machine.
        self._session = aioboto3.Session(
            aws_access_key_id=credentials.access_key or "anonymous",
            aws_secret_access_key=credentials.secret_key or "anonymous",
            region_name=endpoint.region,
        )
        self._config = Config(
            connect_timeout=min(_CONNECT_SECONDS, endpoint.timeout_seconds),
            read_timeout=endpoint.timeout_seconds,
            retries={"total_max_attempts": 1},
            s3={"addressing_style": "path"},
            signature_version=None if credentials.given else UNSIGNED,
        )

    async def ensure_bucket(self) -> None:
        """Create the bucket unless it exists."""
        async with self._translated("make a bucket", harmless=_ALREADY_THERE), self._client() as client:
            await client.create_bucket(Bucket=self._endpoint.bucket, **self._location())

    async def list_objects(self, prefix: str) -> AsyncGenerator[ListedObject, None]:
        """Objects whose keys begin with ``prefix``, in the order of their keys."""
        page: dict[str, str | int] = {"Bucket": self._endpoint.bucket, "Prefix": prefix, "MaxKeys": _PAGE_KEYS}
        async with AsyncExitStack() as stack:
            async with self._translated("list objects"):
                client = await stack.enter_async_context(self._client())
            while True:
                async with self._translated("list objects"):
                    answer = await client.list_objects_v2(**page)
                    found = [ListedObject(entry["Key"], int(entry["Size"])) for entry in answer.get("Contents", ())]
                    following = answer["NextContinuationToken"] if answer.get("IsTruncated") else None
                for entry in found:
                    yield entry
                if following is None:
                    return
                page["ContinuationToken"] = following

    def _location(self) -> dict[str, dict[str, str]]:
        # The first region of S3 is the only one that must not be named.
        if self._endpoint.region == _UNNAMED_REGION:
            return {}
        return {"CreateBucketConfiguration": {"LocationConstraint": self._endpoint.region}}

    def _client(self) -> Any:
        # The SDK ships no types; what comes back is checked by the conformance suite on a real server.
        return self._session.client("s3", endpoint_url=self._endpoint.url, config=self._config)

    @asynccontextmanager
    async def _translated(self, action: str, harmless: tuple[str, ...] = ()) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(self._endpoint.timeout_seconds):
                yield
        except TimeoutError:
            raise DeadlineExceededError("no answer in time", server=_SERVER) from None
        except ClientError as error:
            if error.response.get("Error", {}).get("Code") not in harmless:
                raise self._refusal(error, action) from None
        except (BotoCoreError, OSError) as error:
            raise UnavailableError(str(error), server=_SERVER) from None
        except _NO_ANSWER_OF_S3 as error:
            raise UnavailableError("not an answer of S3", server=_SERVER, reason=type(error).__name__) from None

    def _refusal(self, error: ClientError, action: str) -> BlockyardError:
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
        kind = AccessDeniedError if status in (401, 403) else UnavailableError
        reason = str(error.response.get("Error", {}).get("Code", ""))
        return kind(str(error), server=_SERVER, bucket=self._endpoint.bucket, action=action, reason=reason)
