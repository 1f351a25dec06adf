"""A real remote-tier process, its job channel in the shape of an executor, and an own look at the store behind it.

Threading: one event loop, in the main thread (children start from there).
"""

import asyncio
import os
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import httpx
import msgspec
from pydantic import ByteSize, SecretStr

from blockyard.core.errors import UnavailableError, UnsupportedOperationError
from blockyard.core.vocabulary import ItemStatus, Tier
from blockyard.runtime.job_executor import AttachAnswer, JobControl
from blockyard.runtime.node_folder import ServiceName
from blockyard.runtime.rpc.client import RpcClient
from blockyard.runtime.settings import G4Section, NodeSection, NodeSettings, RedisSection
from blockyard.testing.job_channel import connect_to_worker, expect
from blockyard.testing.remote_bench import GEOMETRY, RemoteBench
from blockyard.testing.service_process import START_SECONDS, ServiceProcess
from blockyard.tiers.object_store import S3ObjectStore, StoreCredentials, StoreEndpoint
from blockyard.wire.worker_channel import (
    Accepted,
    Ack,
    Attach,
    Attached,
    Find,
    Found,
    InventoryPage,
    Job,
    JobResult,
    MapEngine,
    Reply,
    Submit,
    UnmapEngine,
)

CALL_SECONDS: Final = 15.0
_POLL_SECONDS: Final = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteServers:
    """Where the servers behind a remote tier are, and the keys of its account."""

    s3_url: str
    redis_url: str
    access_key: str = "nobody"
    secret_key: str = "nothing"


def remote_settings(folder: Path, servers: RemoteServers, prefix: str) -> NodeSettings:
    """Settings of a node of the bench's geometry, with short timeouts."""
    return NodeSettings(
        node=NodeSection(folder=folder),
        g4=G4Section(
            endpoint_url=servers.s3_url,
            access_key=SecretStr(servers.access_key),
            secret_key=SecretStr(servers.secret_key),
            prefix=prefix,
            target_bytes=ByteSize(GEOMETRY.target_bytes),
            request_timeout_seconds=2,
        ),
        redis=RedisSection(url=SecretStr(servers.redis_url), timeout_seconds=0.5),
    )


class RemoteChannel:
    """The worker's channel in the shape of an executor, so that the bench drives the process as it drives objects."""

    def __init__(self, path: Path) -> None:
        """Speak to the worker that serves ``path``; nothing is connected before ``attach``."""
        self._path = path
        self._client: RpcClient[Reply, JobResult] | None = None
        self._results: dict[int, asyncio.Future[JobResult]] = {}
        self.worker_epoch = 0

    @property
    def client(self) -> RpcClient[Reply, JobResult]:
        """The connection.

        Raises:
            UnavailableError: there is none.
        """
        if self._client is None:
            raise UnavailableError("not connected")
        return self._client

    async def attach(self, attach: Attach, arena_fd: int | None) -> AttachAnswer:
        """Connect as soon as the worker listens, and attach; the descriptor is closed here."""
        self.close()
        self._client = await connect_to_worker(self._path, self._pushed)
        fds = [] if arena_fd is None else [arena_fd]
        reply = expect(await self.client.call(attach, timeout_seconds=CALL_SECONDS, fds=fds), Attached)
        for fd in fds:
            os.close(fd)
        self.worker_epoch = reply.worker_epoch
        return AttachAnswer(mover=reply.mover)

    async def run(self, job: Job, control: JobControl) -> Sequence[ItemStatus]:
        """Submit a job, wait for its result, acknowledge it."""
        self._results[job.seq] = asyncio.get_running_loop().create_future()
        sent = msgspec.structs.replace(job, worker_epoch=self.worker_epoch)
        expect(await self._ask(Submit(job=sent, settled_below=1)), Accepted)
        async with asyncio.timeout(CALL_SECONDS):
            result = await self._results[job.seq]
        await self._ask(Ack(epoch=job.epoch, seqs=(job.seq,), settled_below=1))
        if result.index_pending:
            control.index_is_pending()
        return result.statuses()

    async def find(self, request: Find) -> Found:
        """Look keys up."""
        return expect(await self._ask(request), Found)

    async def inventory(self, tier: Tier, cursor: int, max_records: int, busy: frozenset[int]) -> InventoryPage:
        """Not asked of this worker."""
        raise UnsupportedOperationError("the remote tier lists no slots", tier=tier.label)

    async def map_engine(self, request: MapEngine, fds: Sequence[int]) -> None:
        """Not asked of this worker."""
        raise UnsupportedOperationError("the remote tier maps no engines", mapping=request.mapping)

    async def unmap_engine(self, request: UnmapEngine) -> None:
        """Not asked of this worker."""
        raise UnsupportedOperationError("the remote tier maps no engines", mapping=request.mapping)

    def close(self) -> None:
        """Close the connection; harmless when repeated."""
        if self._client is not None:
            self._client.close()
            self._client = None

    async def _ask(self, request: Submit | Ack | Find) -> Reply:
        return await self.client.call(request, timeout_seconds=CALL_SECONDS)

    def _pushed(self, result: JobResult) -> None:
        if not (waiting := self._results[result.seq]).done():
            waiting.set_result(result)


class RemoteTierProcess(ServiceProcess):
    """The process under test, its bench, and an own look at the store behind it; ``close`` it at the end."""

    def __init__(self, settings: NodeSettings) -> None:
        """Prepare; nothing runs yet."""
        super().__init__(ServiceName.REMOTE_TIER, settings)
        self.channel = RemoteChannel(self.folder.socket)
        self.bench = RemoteBench(self.channel)
        g4 = settings.g4
        endpoint = StoreEndpoint(
            url=g4.endpoint_url, region=g4.region, bucket=g4.bucket, timeout_seconds=10, max_requests=4
        )
        credentials = StoreCredentials(
            access_key=g4.access_key.get_secret_value(), secret_key=g4.secret_key.get_secret_value()
        )
        self.store = S3ObjectStore(endpoint, credentials)

    async def until_ready(self) -> None:
        """Attach, and wait until nothing is missing."""
        await self.bench.attach()
        await self.until(lambda page: page.status_code == httpx.codes.OK)

    async def until(self, holds: Callable[[httpx.Response], bool]) -> httpx.Response:
        """Wait until the page of readiness is so."""
        async with asyncio.timeout(START_SECONDS), httpx.AsyncClient() as client:
            while True:
                if (url := self.folder.read_http()) is not None:
                    page = await client.get(f"{url}/readyz")
                    if holds(page):
                        return page
                await asyncio.sleep(_POLL_SECONDS)

    def close(self) -> None:
        """End it at once, and everything that goes with it."""
        self.channel.close()
        self.bench.close()
        self.kill()


def failing(*names: str) -> Callable[[httpx.Response], bool]:
    """A page of readiness on which these checks alone fail."""
    return lambda page: {check["name"] for check in page.json()["checks"] if not check["ok"]} == set(names)


def empty_index(redis_url: str) -> None:
    """Remove everything from the index.

    Raises:
        UnavailableError: the server does not do it.
    """
    parts = urlsplit(redis_url)
    with socket.create_connection((parts.hostname, parts.port), timeout=5) as connection:
        connection.sendall(b"FLUSHALL\r\n")
        if connection.recv(64) != b"+OK\r\n":
            raise UnavailableError("the index was not emptied", server="redis")
