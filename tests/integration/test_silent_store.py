"""An object store that accepts connections and never answers, in front of a real remote-tier process."""

import asyncio
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import msgspec
import pytest

from blockyard.cli.embedded.seaweedfs import SeaweedfsServer
from blockyard.cli.embedded.valkey import ValkeyServer
from blockyard.core.vocabulary import Availability, ItemStatus
from blockyard.testing.blocks import chain
from blockyard.testing.frozen import frozen
from blockyard.testing.remote_process import RemoteServers, RemoteTierProcess, empty_index, failing, remote_settings
from blockyard.testing.tcp_server import tcp_server
from blockyard.wire.worker_channel import Job

RUN = chain("prompt", 8)
"""Two full packs."""
OTHER = chain("other", 4)
TTL_MS = 1_000
GRACE_SECONDS = 1.5
"""For a busy machine: a job that waits for the store would take longer than this by far."""
HIT, UNKNOWN = Availability.G4, Availability.UNKNOWN


@pytest.fixture
def folder() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="by-rt-"))
    yield path
    shutil.rmtree(path)


@pytest.fixture
async def silent_url() -> AsyncIterator[str]:
    """A server that reads requests and says nothing."""

    async def listen(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read()

    async with tcp_server(listen) as port:
        yield f"http://127.0.0.1:{port}"


async def timed(remote: RemoteTierProcess, job: Job) -> set[ItemStatus]:
    """What became of the items of a job, which must end by its deadline."""
    began = time.monotonic()
    answer = await remote.bench.run(msgspec.structs.replace(job, ttl_ms=TTL_MS))
    assert time.monotonic() - began < TTL_MS / 1_000 + GRACE_SECONDS
    return set(answer.status)


async def found(remote: RemoteTierProcess) -> list[Availability]:
    """Availability of the blocks; no answer may wait for the store."""
    async with asyncio.timeout(GRACE_SECONDS):
        return (await remote.bench.find(RUN)).availability


def s3_detail(page: httpx.Response) -> str:
    return next(str(check["detail"]) for check in page.json()["checks"] if check["name"] == "s3")


async def test_a_store_that_never_answered_is_named_and_holds_up_nothing(
    folder: Path, silent_url: str, valkey_server: ValkeyServer
) -> None:
    servers = RemoteServers(s3_url=silent_url, redis_url=valkey_server.url)
    remote = RemoteTierProcess(remote_settings(folder, servers, "silent"))
    remote.start()
    try:
        await remote.bench.attach()
        await remote.until(lambda page: "answer" in s3_detail(page))
        assert await found(remote) == [UNKNOWN] * 8
        remote.bench.fill(RUN)
        assert await timed(remote, remote.bench.put_job(RUN)) == {ItemStatus.UNKNOWN}
        assert await remote.stop() == 0
        assert "Traceback" not in remote.log
        assert [line for line in remote.log.splitlines() if "check fails" in line and "s3" in line] != []
    finally:
        remote.close()


async def test_a_store_that_falls_silent_delays_no_job_and_comes_back(
    folder: Path, seaweedfs_server: SeaweedfsServer, valkey_server: ValkeyServer
) -> None:
    empty_index(valkey_server.url)
    servers = RemoteServers(
        s3_url=seaweedfs_server.url,
        redis_url=valkey_server.url,
        access_key=seaweedfs_server.access_key,
        secret_key=seaweedfs_server.secret_key,
    )
    remote = RemoteTierProcess(remote_settings(folder, servers, "falls-silent"))
    remote.start()
    try:
        await remote.until_ready()
        bench = remote.bench
        await bench.put(RUN)
        locators = (await bench.find(RUN)).locators
        with frozen(seaweedfs_server.pid):
            bench.fill(OTHER, first_slot=20)
            loaded, stored = await asyncio.gather(
                timed(remote, bench.get_job(RUN, locators, first_slot=8)),
                timed(remote, bench.put_job(OTHER, first_slot=20)),
            )
            assert loaded | stored <= {ItemStatus.TIMEOUT, ItemStatus.UNKNOWN}
            await remote.until(failing("s3"))
            assert await found(remote) == [UNKNOWN] * 8, "what cannot be read now is no hit"
            assert await timed(remote, bench.get_job(RUN, locators, first_slot=8)) == {ItemStatus.UNKNOWN}
        await remote.until(lambda page: page.is_success)
        assert await found(remote) == [HIT] * 8
        assert (await bench.load(RUN, first_slot=8)).all_ok
        assert bench.holds(RUN, first_slot=8) == [True] * 8
        assert "Traceback" not in remote.log
    finally:
        remote.close()
