"""A real remote-tier process on a real object store and a real index, driven over its job channel."""

import asyncio
import itertools
import os
import shutil
import signal
import socket
import sysconfig
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path

import httpx
import msgspec
import pytest
from pydantic import ByteSize, SecretStr

from blockyard.cli.child_process import ChildProcess, ChildSpec
from blockyard.cli.embedded.seaweedfs import SeaweedfsServer
from blockyard.cli.embedded.valkey import ValkeyServer
from blockyard.core.errors import PeerClosedError, UnavailableError
from blockyard.core.vocabulary import Availability, ItemStatus, Tier
from blockyard.runtime.job_executor import AttachAnswer, JobControl
from blockyard.runtime.node_folder import NodeFolder, ServiceName
from blockyard.runtime.rpc.client import RpcClient
from blockyard.runtime.settings import G4Section, NodeSection, NodeSettings, RedisSection, environment_of
from blockyard.testing.blocks import chain
from blockyard.testing.remote_bench import GEOMETRY, PackControl, RemoteBench
from blockyard.tiers.g4_packs import record_offset
from blockyard.tiers.header import HEADER_BYTES
from blockyard.tiers.object_store import PutOutcome, S3ObjectStore, StoreCredentials, StoreEndpoint
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
    Push,
    Reply,
    Submit,
    UnmapEngine,
)

OK, CORRUPT = ItemStatus.OK, ItemStatus.CORRUPT
HIT, MISS, UNKNOWN = Availability.G4, Availability.MISS, Availability.UNKNOWN
RUN = chain("prompt", 8)
"""Two full packs."""
START_SECONDS = 20.0
CALL_SECONDS = 15.0
POLL_SECONDS = 0.02
_PREFIXES = itertools.count()


class Channel:
    """The worker's channel in the shape of an executor, so that the bench drives the process as it drives objects."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._client: RpcClient[Reply, JobResult] | None = None
        self._results: dict[int, asyncio.Future[JobResult]] = {}
        self.worker_epoch = 0

    @property
    def client(self) -> RpcClient[Reply, JobResult]:
        if self._client is None:
            raise UnavailableError("not connected")
        return self._client

    async def attach(self, attach: Attach, arena_fd: int | None) -> AttachAnswer:
        assert arena_fd is not None
        self.close()
        async with asyncio.timeout(START_SECONDS):
            self._client = await self._connected()
        reply = await self.client.call(attach, timeout_seconds=CALL_SECONDS, fds=[arena_fd])
        os.close(arena_fd)
        assert isinstance(reply, Attached)
        self.worker_epoch = reply.worker_epoch
        return AttachAnswer(mover=reply.mover)

    async def run(self, job: Job, control: JobControl) -> Sequence[ItemStatus]:
        self._results[job.seq] = asyncio.get_running_loop().create_future()
        sent = msgspec.structs.replace(job, worker_epoch=self.worker_epoch)
        reply = await self.client.call(Submit(job=sent, settled_below=1), timeout_seconds=CALL_SECONDS)
        assert isinstance(reply, Accepted), reply
        async with asyncio.timeout(CALL_SECONDS):
            result = await self._results[job.seq]
        await self.client.call(Ack(epoch=job.epoch, seqs=(job.seq,), settled_below=1), timeout_seconds=CALL_SECONDS)
        if result.index_pending:
            control.index_is_pending()
        return result.statuses()

    async def find(self, request: Find) -> Found:
        reply = await self.client.call(request, timeout_seconds=CALL_SECONDS)
        assert isinstance(reply, Found)
        return reply

    async def inventory(self, tier: Tier, cursor: int, max_records: int, busy: frozenset[int]) -> InventoryPage:
        raise NotImplementedError

    async def map_engine(self, request: MapEngine, kv_fd: int, guard_fd: int) -> None:
        raise NotImplementedError

    async def unmap_engine(self, request: UnmapEngine) -> None:
        raise NotImplementedError

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    async def _connected(self) -> RpcClient[Reply, JobResult]:
        while True:
            try:
                return await RpcClient.connect(self._path, Reply, Push, self._pushed)
            except (UnavailableError, PeerClosedError):
                await asyncio.sleep(POLL_SECONDS)

    def _pushed(self, result: JobResult) -> None:
        if not (waiting := self._results[result.seq]).done():
            waiting.set_result(result)


class Remote:
    """The process under test, its bench, and an own look at the store behind it."""

    def __init__(self, settings: NodeSettings) -> None:
        self.settings = settings
        self.folder = NodeFolder.of(settings).service(ServiceName.REMOTE_TIER)
        self.channel = Channel(self.folder.socket)
        self.bench = RemoteBench(self.channel)
        g4 = settings.g4
        endpoint = StoreEndpoint(
            url=g4.endpoint_url, region=g4.region, bucket=g4.bucket, timeout_seconds=10, max_requests=4
        )
        credentials = StoreCredentials(
            access_key=g4.access_key.get_secret_value(), secret_key=g4.secret_key.get_secret_value()
        )
        self.store = S3ObjectStore(endpoint, credentials)
        self._child: ChildProcess | None = None

    def start(self) -> None:
        program = str(Path(sysconfig.get_path("scripts")) / "blockyard-remote-tier")
        self.folder.path.parent.mkdir(parents=True, exist_ok=True)
        log_file = self.folder.path.parent / "remote-tier.log"
        self._child = ChildProcess(ChildSpec("remote", (program,), log_file, environment_of(self.settings)))

    @property
    def child(self) -> ChildProcess:
        if self._child is None:
            raise UnavailableError("not started")
        return self._child

    async def stop(self) -> int | None:
        self.child.send(signal.SIGTERM)
        assert await self.child.wait_async(START_SECONDS), self.child.log_tail()
        return self.child.exit_code

    async def until_ready(self) -> None:
        await self.bench.attach()
        await self.until(lambda page: page.status_code == httpx.codes.OK)

    async def until(self, holds: Callable[[httpx.Response], bool]) -> httpx.Response:
        async with asyncio.timeout(START_SECONDS), httpx.AsyncClient() as client:
            while True:
                page = await client.get(f"{self.folder.read_http()}/readyz")
                if holds(page):
                    return page
                await asyncio.sleep(POLL_SECONDS)

    async def flip(self, pack: bytes, offset: int) -> None:
        """Invert one byte of a stored object."""
        key = self.bench.key(pack, self.settings.g4.prefix)
        found = await self.store.get_range(key, 0, 1 << 30)
        data = bytearray(found.data)
        data[offset] ^= 0xFF
        assert await self.store.replace(key, data, found.facts.etag) is PutOutcome.STORED

    def close(self) -> None:
        self.channel.close()
        self.bench.close()
        if self._child is not None:
            self._child.kill()


def failing(name: str) -> Callable[[httpx.Response], bool]:
    """A page of readiness on which this check alone fails."""
    return lambda page: [check["name"] for check in page.json()["checks"] if not check["ok"]] == [name]


def empty(server: ValkeyServer) -> None:
    """Remove everything from the index."""
    host, port = server.url.split("//")[1].split("/")[0].split(":")
    with socket.create_connection((host, int(port)), timeout=5) as connection:
        connection.sendall(b"FLUSHALL\r\n")
        assert connection.recv(64) == b"+OK\r\n"


@pytest.fixture
def folder() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="by-rt-"))
    yield path
    shutil.rmtree(path)


@pytest.fixture
async def remote(folder: Path, valkey_server: ValkeyServer, seaweedfs_server: SeaweedfsServer) -> AsyncIterator[Remote]:
    """A ready remote tier with a store of its own."""
    empty(valkey_server)
    settings = NodeSettings(
        node=NodeSection(folder=folder),
        g4=G4Section(
            endpoint_url=seaweedfs_server.url,
            access_key=SecretStr(seaweedfs_server.access_key),
            secret_key=SecretStr(seaweedfs_server.secret_key),
            prefix=f"remote-{next(_PREFIXES)}",
            target_bytes=ByteSize(GEOMETRY.target_bytes),
            request_timeout_seconds=2,
        ),
        redis=RedisSection(url=SecretStr(valkey_server.url), timeout_seconds=0.5),
    )
    remote = Remote(settings)
    remote.start()
    try:
        await remote.until_ready()
        yield remote
    finally:
        remote.close()


async def test_blocks_come_back_byte_for_byte(remote: Remote) -> None:
    assert (await remote.bench.find(RUN)).availability == [MISS] * 8
    assert (await remote.bench.put(RUN)).all_ok
    assert (await remote.bench.find(RUN)).availability == [HIT] * 8
    assert (await remote.bench.load(RUN, first_slot=10)).all_ok
    assert remote.bench.holds(RUN, first_slot=10) == [True] * 8


async def test_a_flipped_byte_in_the_store_is_never_served(remote: Remote) -> None:
    await remote.bench.put(RUN)
    await remote.flip(RUN.key(3), record_offset(2, GEOMETRY.stride_bytes) + HEADER_BYTES + 100)
    assert (await remote.bench.load(RUN, first_slot=10)).status == [OK, OK, CORRUPT, OK, OK, OK, OK, OK]
    assert remote.bench.holds(RUN, first_slot=10) == [True, True, False, True, True, True, True, True]
    assert (await remote.bench.find(RUN)).availability == [MISS] * 4 + [HIT] * 4
    # Stored again, the damaged object is replaced.
    assert (await remote.bench.put(RUN)).all_ok
    assert (await remote.bench.load(RUN, first_slot=20)).all_ok


async def test_a_killed_process_is_followed_by_one_that_finds_everything(remote: Remote) -> None:
    await remote.bench.put(RUN)
    before = remote.channel.worker_epoch
    remote.child.kill()
    remote.start()
    await remote.until_ready()
    assert remote.channel.worker_epoch > before
    assert (await remote.bench.load(RUN, first_slot=10)).all_ok
    assert (await remote.bench.put(RUN, first_slot=20)).all_ok


async def test_a_lost_index_is_rebuilt_from_the_objects(remote: Remote, valkey_server: ValkeyServer) -> None:
    await remote.bench.put(RUN)
    empty(valkey_server)
    found = await remote.bench.find(RUN)
    assert set(found.availability) <= {UNKNOWN, HIT}
    async with asyncio.timeout(START_SECONDS):
        while (await remote.bench.find(RUN)).availability != [HIT] * 8:
            await asyncio.sleep(POLL_SECONDS)
    await remote.until(lambda page: page.status_code == httpx.codes.OK)
    assert (await remote.bench.find(chain("other", 1))).availability == [MISS]
    assert (await remote.bench.load(RUN, first_slot=10)).all_ok


async def test_with_the_index_away_blocks_are_stored_and_found_when_it_is_back(
    remote: Remote, valkey_server: ValkeyServer
) -> None:
    valkey_server.kill()
    try:
        await remote.until(failing("redis"))
        answer = await remote.bench.put(RUN)
        assert answer.all_ok
        assert answer.pending
        assert (await remote.bench.find(RUN)).availability == [UNKNOWN] * 8
    finally:
        valkey_server.start()
    await remote.until(lambda page: page.status_code == httpx.codes.OK)
    assert (await remote.bench.find(RUN)).availability == [HIT] * 8


async def test_with_the_store_away_nothing_is_lost(remote: Remote, seaweedfs_server: SeaweedfsServer) -> None:
    await remote.bench.put(RUN)
    locators = (await remote.bench.find(RUN)).locators
    seaweedfs_server.kill()
    try:
        await remote.until(failing("s3"))
        statuses = set((await remote.bench.run(remote.bench.get_job(RUN, locators, first_slot=10))).status)
        assert statuses <= {ItemStatus.UNKNOWN, ItemStatus.TIMEOUT}
        assert not (await remote.bench.put(chain("other", 4), first_slot=20)).all_ok
        assert (await remote.bench.find(RUN)).availability == [HIT] * 8
    finally:
        seaweedfs_server.start()
    await remote.until(lambda page: page.status_code == httpx.codes.OK)
    assert (await remote.bench.load(RUN, first_slot=10)).all_ok


async def test_a_job_whose_manager_is_gone_is_reported_to_the_next_connection(remote: Remote) -> None:
    remote.bench.fill(RUN)
    job = remote.bench.put_job(RUN)
    waiting = asyncio.create_task(remote.bench.run(job, PackControl(job)))
    await asyncio.sleep(0)
    await remote.bench.attach()
    with pytest.raises((PeerClosedError, UnavailableError)):
        await waiting
    assert (await remote.bench.run(job)).all_ok


async def test_stops_in_order_when_asked(remote: Remote) -> None:
    await remote.bench.put(RUN)
    assert await remote.stop() == 0, remote.child.log_tail()
    assert "Traceback" not in remote.child.log_tail()
    assert remote.folder.read_http() is None


async def test_counts_what_moved(remote: Remote) -> None:
    await remote.bench.put(RUN)
    await remote.bench.load(RUN, first_slot=10)
    async with httpx.AsyncClient() as client:
        page = (await client.get(f"{remote.folder.read_http()}/metrics")).text
    lines = page.splitlines()
    assert 'blockyard_moved_blocks_total{edge="g2_g4"} 8.0' in lines
    assert 'blockyard_moved_blocks_total{edge="g4_g2"} 8.0' in lines
    assert 'blockyard_job_items_total{kind="g4_put",status="ok"} 8.0' in lines
    assert 'blockyard_dependency_up{name="s3"} 1.0' in lines


async def test_no_secret_reaches_the_log(remote: Remote, seaweedfs_server: SeaweedfsServer) -> None:
    await remote.bench.put(RUN)
    await remote.stop()
    log = remote.child.spec.log_file.read_text()
    assert seaweedfs_server.secret_key not in log
    assert seaweedfs_server.access_key not in log
