"""A real remote-tier process on a real object store and a real index, driven over its job channel."""

import asyncio
import itertools
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest

from blockyard.cli.embedded.seaweedfs import SeaweedfsServer
from blockyard.cli.embedded.valkey import ValkeyServer
from blockyard.core.errors import PeerClosedError, UnavailableError
from blockyard.core.vocabulary import Availability, ItemStatus
from blockyard.testing.blocks import chain
from blockyard.testing.remote_bench import GEOMETRY, PackControl
from blockyard.testing.remote_process import (
    RemoteServers,
    RemoteTierProcess,
    empty_index,
    failing,
    remote_settings,
)
from blockyard.testing.service_process import START_SECONDS
from blockyard.tiers.g4_packs import record_offset
from blockyard.tiers.header import HEADER_BYTES
from blockyard.tiers.object_store import PutOutcome

OK, CORRUPT = ItemStatus.OK, ItemStatus.CORRUPT
HIT, MISS, UNKNOWN = Availability.G4, Availability.MISS, Availability.UNKNOWN
RUN = chain("prompt", 8)
"""Two full packs."""
POLL_SECONDS = 0.02
_PREFIXES = itertools.count()


async def flip(remote: RemoteTierProcess, pack: bytes, offset: int) -> None:
    """Invert one byte of a stored object."""
    key = remote.bench.key(pack, remote.settings.g4.prefix)
    found = await remote.store.get_range(key, 0, 1 << 30)
    data = bytearray(found.data)
    data[offset] ^= 0xFF
    assert await remote.store.replace(key, data, found.facts.etag) is PutOutcome.STORED


@pytest.fixture
def folder() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="by-rt-"))
    yield path
    shutil.rmtree(path)


@pytest.fixture
async def remote(
    folder: Path, valkey_server: ValkeyServer, seaweedfs_server: SeaweedfsServer
) -> AsyncIterator[RemoteTierProcess]:
    """A ready remote tier with a store of its own."""
    empty_index(valkey_server.url)
    servers = RemoteServers(
        s3_url=seaweedfs_server.url,
        redis_url=valkey_server.url,
        access_key=seaweedfs_server.access_key,
        secret_key=seaweedfs_server.secret_key,
    )
    remote = RemoteTierProcess(remote_settings(folder, servers, f"remote-{next(_PREFIXES)}"))
    remote.start()
    try:
        await remote.until_ready()
        yield remote
    finally:
        remote.close()


async def test_blocks_come_back_byte_for_byte(remote: RemoteTierProcess) -> None:
    assert (await remote.bench.find(RUN)).availability == [MISS] * 8
    assert (await remote.bench.put(RUN)).all_ok
    assert (await remote.bench.find(RUN)).availability == [HIT] * 8
    assert (await remote.bench.load(RUN, first_slot=10)).all_ok
    assert remote.bench.holds(RUN, first_slot=10) == [True] * 8


async def test_a_flipped_byte_in_the_store_is_never_served(remote: RemoteTierProcess) -> None:
    await remote.bench.put(RUN)
    await flip(remote, RUN.key(3), record_offset(2, GEOMETRY.stride_bytes) + HEADER_BYTES + 100)
    assert (await remote.bench.load(RUN, first_slot=10)).status == [OK, OK, CORRUPT, OK, OK, OK, OK, OK]
    assert remote.bench.holds(RUN, first_slot=10) == [True, True, False, True, True, True, True, True]
    assert (await remote.bench.find(RUN)).availability == [MISS] * 4 + [HIT] * 4
    # Stored again, the damaged object is replaced.
    assert (await remote.bench.put(RUN)).all_ok
    assert (await remote.bench.load(RUN, first_slot=20)).all_ok


async def test_a_killed_process_is_followed_by_one_that_finds_everything(remote: RemoteTierProcess) -> None:
    await remote.bench.put(RUN)
    before = remote.channel.worker_epoch
    remote.child.kill()
    remote.start()
    await remote.until_ready()
    assert remote.channel.worker_epoch > before
    assert (await remote.bench.load(RUN, first_slot=10)).all_ok
    assert (await remote.bench.put(RUN, first_slot=20)).all_ok


async def test_a_lost_index_is_rebuilt_from_the_objects(remote: RemoteTierProcess, valkey_server: ValkeyServer) -> None:
    await remote.bench.put(RUN)
    empty_index(valkey_server.url)
    found = await remote.bench.find(RUN)
    assert set(found.availability) <= {UNKNOWN, HIT}
    async with asyncio.timeout(START_SECONDS):
        while (await remote.bench.find(RUN)).availability != [HIT] * 8:
            await asyncio.sleep(POLL_SECONDS)
    await remote.until(lambda page: page.status_code == httpx.codes.OK)
    assert (await remote.bench.find(chain("other", 1))).availability == [MISS]
    assert (await remote.bench.load(RUN, first_slot=10)).all_ok


async def test_with_the_index_away_blocks_are_stored_and_found_when_it_is_back(
    remote: RemoteTierProcess, valkey_server: ValkeyServer
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


async def test_with_the_store_away_nothing_is_lost(
    remote: RemoteTierProcess, seaweedfs_server: SeaweedfsServer
) -> None:
    await remote.bench.put(RUN)
    locators = (await remote.bench.find(RUN)).locators
    seaweedfs_server.kill()
    try:
        await remote.until(failing("s3"))
        statuses = set((await remote.bench.run(remote.bench.get_job(RUN, locators, first_slot=10))).status)
        assert statuses <= {ItemStatus.UNKNOWN, ItemStatus.TIMEOUT}
        assert not (await remote.bench.put(chain("other", 4), first_slot=20)).all_ok
        assert (await remote.bench.find(RUN)).availability == [UNKNOWN] * 8
    finally:
        seaweedfs_server.start()
    await remote.until(lambda page: page.status_code == httpx.codes.OK)
    assert (await remote.bench.find(RUN)).availability == [HIT] * 8
    assert (await remote.bench.load(RUN, first_slot=10)).all_ok


async def test_a_job_whose_manager_is_gone_is_reported_to_the_next_connection(remote: RemoteTierProcess) -> None:
    remote.bench.fill(RUN)
    job = remote.bench.put_job(RUN)
    waiting = asyncio.create_task(remote.bench.run(job, PackControl(job)))
    await asyncio.sleep(0)
    await remote.bench.attach()
    with pytest.raises((PeerClosedError, UnavailableError)):
        await waiting
    assert (await remote.bench.run(job)).all_ok


async def test_stops_in_order_when_asked(remote: RemoteTierProcess) -> None:
    await remote.bench.put(RUN)
    assert await remote.stop() == 0, remote.child.log_tail()
    assert "Traceback" not in remote.child.log_tail()
    assert remote.folder.read_http() is None


async def test_counts_what_moved(remote: RemoteTierProcess) -> None:
    await remote.bench.put(RUN)
    await remote.bench.load(RUN, first_slot=10)
    async with httpx.AsyncClient() as client:
        page = (await client.get(f"{remote.folder.read_http()}/metrics")).text
    lines = page.splitlines()
    assert 'blockyard_moved_blocks_total{edge="g2_g4"} 8.0' in lines
    assert 'blockyard_moved_blocks_total{edge="g4_g2"} 8.0' in lines
    assert 'blockyard_moved_blocks_total{edge="g2_g4"} 8.0' in lines
    assert 'blockyard_dependency_up{name="s3"} 1.0' in lines


async def test_no_secret_reaches_the_log(remote: RemoteTierProcess, seaweedfs_server: SeaweedfsServer) -> None:
    await remote.bench.put(RUN)
    await remote.stop()
    log = remote.log
    assert seaweedfs_server.secret_key not in log
    assert seaweedfs_server.access_key not in log
