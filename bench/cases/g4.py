"""Packs to and from the object store through the adapter, against a bare HTTP client on the same server."""

import asyncio
from collections.abc import Iterator
from typing import Final

from bench.errors import WrongBytesError
from bench.measure import Contest, Measure, skipped
from bench.plain_s3 import PlainS3
from blockyard.cli.embedded.seaweedfs import SeaweedfsServer
from blockyard.cli.run_folder import RunFolder
from blockyard.core.errors import ServerStartError
from blockyard.core.pack_plan import PackGeometry
from blockyard.runtime.settings import G4Section
from blockyard.testing.byte_patterns import pattern
from blockyard.tiers.bucket_admin import S3BucketAdmin
from blockyard.tiers.g4_packs import pack_bytes
from blockyard.tiers.object_store import PutOutcome, S3ObjectStore, StoreCredentials, StoreEndpoint

BLOCK_BYTES: Final = 128 << 10
PACKS: Final = 4
_BUCKET: Final = "bench"
_PUT, _GET = "put", "get"
_AGAINST: Final = "http.client of the standard library, one connection"


def run(case: str) -> Iterator[Measure]:
    """MiB per second of putting and getting packs of the usual size one by one, against a bare HTTP client."""
    with RunFolder() as folder, asyncio.Runner() as runner:
        try:
            server = SeaweedfsServer(folder)
            server.start()
        except ServerStartError as error:
            yield from (skipped(case, measure, _AGAINST, str(error)) for measure in (_PUT, _GET))
            return
        try:
            endpoint = StoreEndpoint(
                url=server.url, region="us-east-1", bucket=_BUCKET, timeout_seconds=10.0, max_requests=1
            )
            credentials = StoreCredentials(access_key=server.access_key, secret_key=server.secret_key)
            runner.run(S3BucketAdmin(endpoint, credentials).ensure_bucket())
            with PlainS3(server.url, endpoint.region, server.access_key, server.secret_key) as plain:
                yield from _contests(case, runner, S3ObjectStore(endpoint, credentials), plain)
        finally:
            server.kill()


def _contests(case: str, runner: asyncio.Runner, store: S3ObjectStore, plain: PlainS3) -> Iterator[Measure]:
    geometry = PackGeometry(BLOCK_BYTES, int(G4Section().target_bytes))
    packs = _Packs(store, plain, pack_bytes(geometry.blocks_per_pack, geometry.stride_bytes))
    yield Contest(
        measure=_PUT, unit="MiB", ours=lambda: runner.run(packs.put()), theirs=packs.put_plain, against=_AGAINST
    ).run(case)
    yield Contest(
        measure=_GET, unit="MiB", ours=lambda: runner.run(packs.get()), theirs=packs.get_plain, against=_AGAINST
    ).run(case)


class _Packs:
    """The same objects through both clients, under keys of their own; what is read is compared byte by byte."""

    def __init__(self, store: S3ObjectStore, plain: PlainS3, size: int) -> None:
        self._store = store
        self._plain = plain
        self._bodies = [pattern(number, size).tobytes() for number in range(PACKS)]
        self._mib = PACKS * size / (1 << 20)
        self._puts = 0

    async def put(self) -> float:
        self._puts += 1
        for number, body in enumerate(self._bodies):
            if await self._store.put_if_absent(f"ours/{self._puts}/{number}", body) is not PutOutcome.STORED:
                raise WrongBytesError("an object was there already")
        return self._mib

    def put_plain(self) -> float:
        for number, body in enumerate(self._bodies):
            self._plain.put(f"/{_BUCKET}/plain/{self._puts}/{number}", body)
        return self._mib

    async def get(self) -> float:
        for number, body in enumerate(self._bodies):
            found = await self._store.get_range(f"ours/{self._puts}/{number}", 0, len(body))
            _require_equal(found.data, body)
        return self._mib

    def get_plain(self) -> float:
        for number, body in enumerate(self._bodies):
            _require_equal(self._plain.get(f"/{_BUCKET}/plain/{self._puts}/{number}"), body)
        return self._mib


def _require_equal(found: bytes | memoryview, body: bytes) -> None:
    if found != body:
        raise WrongBytesError("an object differs from what was put")
