"""Port to the administration of a bucket (creating, listing), and its adapter for S3-compatible servers.

Rare and slow operations only; payload goes through ``object_store``.
Threading: one event loop; a client lives for one call, so nothing has to be closed.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Final, Protocol

import aioboto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from blockyard.core.errors import AccessDeniedError, BlockyardError, UnavailableError
from blockyard.tiers.object_store import StoreCredentials, StoreEndpoint

_SERVER: Final = "s3"
_CONNECT_SECONDS: Final = 2.0
_UNNAMED_REGION: Final = "us-east-1"
_PAGE_KEYS: Final = 1_000
_ALREADY_THERE: Final = ("BucketAlreadyOwnedByYou", "BucketAlreadyExists")


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

    def list_objects(self, prefix: str) -> AsyncIterator[ListedObject]:
        """Objects whose keys begin with ``prefix``, in the order of their keys."""
        ...


class S3BucketAdmin:
    """``BucketAdmin`` on an S3-compatible server."""

    def __init__(self, endpoint: StoreEndpoint, credentials: StoreCredentials) -> None:
        """Keep the settings; nothing is sent before the first call."""
        self._endpoint = endpoint
        self._session = aioboto3.Session(
            aws_access_key_id=credentials.access_key,
            aws_secret_access_key=credentials.secret_key,
            region_name=endpoint.region,
        )
        self._config = Config(
            connect_timeout=min(_CONNECT_SECONDS, endpoint.timeout_seconds),
            read_timeout=endpoint.timeout_seconds,
            retries={"total_max_attempts": 1},
            s3={"addressing_style": "path"},
        )

    async def ensure_bucket(self) -> None:
        """Create the bucket unless it exists."""
        try:
            async with self._client() as client:
                await client.create_bucket(Bucket=self._endpoint.bucket, **self._location())
        except ClientError as error:
            if error.response["Error"]["Code"] not in _ALREADY_THERE:
                raise self._translate(error) from None
        except (BotoCoreError, OSError) as error:
            raise UnavailableError(str(error), server=_SERVER) from None

    async def list_objects(self, prefix: str) -> AsyncIterator[ListedObject]:
        """Objects whose keys begin with ``prefix``, in the order of their keys."""
        try:
            async with self._client() as client:
                pages = client.get_paginator("list_objects_v2").paginate(
                    Bucket=self._endpoint.bucket, Prefix=prefix, PaginationConfig={"PageSize": _PAGE_KEYS}
                )
                async for page in pages:
                    for entry in page.get("Contents", ()):
                        yield ListedObject(entry["Key"], entry["Size"])
        except ClientError as error:
            raise self._translate(error) from None
        except (BotoCoreError, OSError) as error:
            raise UnavailableError(str(error), server=_SERVER) from None

    def _location(self) -> dict[str, dict[str, str]]:
        # The first region of S3 is the only one that must not be named.
        if self._endpoint.region == _UNNAMED_REGION:
            return {}
        return {"CreateBucketConfiguration": {"LocationConstraint": self._endpoint.region}}

    def _client(self) -> Any:
        # The SDK ships no types; what comes back is checked by the conformance suite on a real server.
        return self._session.client("s3", endpoint_url=self._endpoint.url, config=self._config)

    def _translate(self, error: ClientError) -> BlockyardError:
        status = error.response["ResponseMetadata"]["HTTPStatusCode"]
        kind = AccessDeniedError if status in (401, 403) else UnavailableError
        return kind(str(error), server=_SERVER, bucket=self._endpoint.bucket)
