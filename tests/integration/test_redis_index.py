"""The prefix index adapter keeps its contract on a real server, and names the failures of dead and odd ones."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from blockyard.cli.embedded.valkey import ValkeyServer
from blockyard.core.clock import SystemClock
from blockyard.core.errors import ConfigurationError, DeadlineExceededError, UnavailableError
from blockyard.testing.prefix_index_conformance import (
    BUILDER,
    IDENTITY,
    STORE_ID,
    PrefixIndexTests,
    locator,
    some_key,
)
from blockyard.testing.tcp_server import tcp_server
from blockyard.tiers.prefix_index import IndexState
from blockyard.tiers.redis_index import RedisIndex


def connect(url: str, timeout_seconds: float = 2.0, entry_ttl_seconds: int = 3_600) -> RedisIndex:
    return RedisIndex(url, timeout_seconds=timeout_seconds, entry_ttl_seconds=entry_ttl_seconds, clock=SystemClock())


async def raw(url: str, *words: bytes) -> bytes:
    """One command over a plain connection, so that tests do not look through the adapter."""
    host, port = url.split("//")[1].split("/")[0].split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    frame = b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)
    writer.write(frame)
    line = await reader.readuntil(b"\r\n")
    if line.startswith(b"$") and line != b"$-1\r\n":
        line = (await reader.readexactly(int(line[1:]) + 2))[:-2]
    writer.close()
    await writer.wait_closed()
    return line


@pytest.fixture
async def server(valkey_server: ValkeyServer) -> ValkeyServer:
    await raw(valkey_server.url, b"FLUSHALL")
    return valkey_server


@pytest.fixture
async def index(server: ValkeyServer) -> AsyncIterator[RedisIndex]:
    made = connect(server.url)
    yield made
    await made.close()


class TestRedisIndex(PrefixIndexTests):
    pass


def entry_key(number: int) -> bytes:
    return b"{0}b" + IDENTITY[:8] + some_key(number)


async def test_an_entry_is_64_bytes_that_expire(index: RedisIndex, server: ValkeyServer) -> None:
    await index.set_locators(IDENTITY, [(some_key(1), locator(1, 2))])
    value = await raw(server.url, b"GET", entry_key(1))
    assert len(value) == 64
    assert value[:8] == bytes((1, 1, 2, 4)) + (4_352).to_bytes(4, "little")
    assert value[12:] == bytes(4) + locator(1).pack + bytes(32)
    assert 0 < int((await raw(server.url, b"TTL", entry_key(1)))[1:]) <= 3_600


async def test_claims_of_nodes_survive_locators(index: RedisIndex, server: ValkeyServer) -> None:
    claims = bytes(range(1, 33))
    await raw(server.url, b"SET", entry_key(1), bytes(32) + claims)
    await index.set_locators(IDENTITY, [(some_key(1), locator(1))])
    assert (await raw(server.url, b"GET", entry_key(1)))[32:] == claims
    assert await index.drop_locators(IDENTITY, locator(1).pack, [some_key(1)]) == 1
    left = await raw(server.url, b"GET", entry_key(1))
    assert left[32:] == claims
    assert (await index.find(IDENTITY, [some_key(1)])).locators == (None,)


async def test_nonsense_in_an_entry_is_no_entry(index: RedisIndex, server: ValkeyServer) -> None:
    await raw(server.url, b"SET", entry_key(1), b"short")
    await raw(server.url, b"SET", entry_key(2), b"\xff" * 64)
    assert (await index.find(IDENTITY, [some_key(1), some_key(2)])).locators == (None, None)


async def test_a_full_server_takes_no_entries_and_still_answers(index: RedisIndex, server: ValkeyServer) -> None:
    await index.set_locators(IDENTITY, [(some_key(1), locator(1))])
    await raw(server.url, b"CONFIG", b"SET", b"maxmemory", b"1")
    try:
        with pytest.raises(UnavailableError, match="maxmemory"):
            await index.set_locators(IDENTITY, [(some_key(2), locator(2))])
        assert (await index.find(IDENTITY, [some_key(1), some_key(2)])).locators == (locator(1), None)
    finally:
        await raw(server.url, b"CONFIG", b"SET", b"maxmemory", b"0")
    await index.set_locators(IDENTITY, [(some_key(2), locator(2))])


async def test_a_state_of_another_version_is_left_alone(index: RedisIndex, server: ValkeyServer) -> None:
    await raw(server.url, b"SET", b"{0}meta", b"\x07whatever")
    assert (await index.meta()).state is IndexState.FOREIGN
    assert not await index.begin_build(STORE_ID, BUILDER, 60)


@pytest.mark.parametrize("junk", [(b"SET", b"{0}meta", b"junk"), (b"LPUSH", b"{0}meta", b"a list")])
async def test_junk_in_the_place_of_the_state_is_named_and_gone_once_it_is_deleted(
    junk: tuple[bytes, ...], index: RedisIndex, server: ValkeyServer
) -> None:
    await raw(server.url, *junk)
    obstacle = (await index.meta()).obstacle
    assert "{0}meta" in obstacle
    assert "redis.url" in obstacle
    assert "delete the key" in obstacle
    await raw(server.url, b"DEL", b"{0}meta")
    assert await index.begin_build(STORE_ID, BUILDER, 60)


async def test_a_build_that_is_not_renewed_ends(index: RedisIndex, server: ValkeyServer) -> None:
    await index.begin_build(STORE_ID, BUILDER, 60)
    await raw(server.url, b"PEXPIRE", b"{0}meta", b"0")
    assert not await index.renew_build(STORE_ID, BUILDER, 60)
    assert not await index.finish_build(STORE_ID, BUILDER)
    assert (await index.meta()).state is IndexState.ABSENT


async def test_a_complete_index_does_not_expire(index: RedisIndex, server: ValkeyServer) -> None:
    await index.begin_build(STORE_ID, BUILDER, 60)
    await index.finish_build(STORE_ID, BUILDER)
    assert await raw(server.url, b"TTL", b"{0}meta") == b":-1\r\n"


async def test_touch_renews_and_marks(server: ValkeyServer) -> None:
    index = connect(server.url, entry_ttl_seconds=3_600)
    await index.set_locators(IDENTITY, [(some_key(1), locator(1))])
    await raw(server.url, b"EXPIRE", entry_key(1), b"10")
    await raw(server.url, b"SETRANGE", entry_key(1), b"8", bytes(4))
    await raw(server.url, b"EXPIRE", entry_key(1), b"10")
    await index.touch(IDENTITY, [some_key(1)])
    assert int((await raw(server.url, b"TTL", entry_key(1)))[1:]) > 10
    assert (await raw(server.url, b"GET", entry_key(1)))[8:12] != bytes(4)
    await index.close()


async def test_a_cancelled_lookup_never_answers_the_next_one(index: RedisIndex) -> None:
    keys = [some_key(number) for number in range(4_096)]
    await index.set_locators(IDENTITY, [(key, locator(1, 1)) for key in keys])
    for _ in range(5):
        lookup = asyncio.create_task(index.find(IDENTITY, keys))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        lookup.cancel()
        await asyncio.wait({lookup})
        assert (await index.find(IDENTITY, [some_key(9_999)])).locators == (None,)


async def test_nobody_there_is_unavailable() -> None:
    index = connect("redis://127.0.0.1:1/0")
    with pytest.raises(UnavailableError):
        await index.find(IDENTITY, [some_key(1)])
    with pytest.raises(UnavailableError):
        await index.set_locators(IDENTITY, [(some_key(1), locator(1))])
    await index.close()


async def test_a_silent_server_costs_the_timeout_and_no_more() -> None:
    async def silent(_reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    async with tcp_server(silent) as port:
        index = connect(f"redis://127.0.0.1:{port}/0", timeout_seconds=0.1)
        with pytest.raises(DeadlineExceededError):
            await index.find(IDENTITY, [some_key(1)])
        await index.close()


async def test_recovers_when_the_server_comes_back(server: ValkeyServer, index: RedisIndex) -> None:
    await index.meta()
    server.kill()
    with pytest.raises(UnavailableError):
        await index.meta()
    server.start()
    assert (await index.meta()).state is IndexState.ABSENT


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1/",
        "redis://[::1",
        "redis://127.0.0.1:1/0?unheard_of=1",
        "redis://127.0.0.1:1/0?socket_timeout=soon",
        "redis://127.0.0.1:1/0?decode_responses=true",
    ],
)
def test_a_wrong_url_is_a_wrong_setting(url: str) -> None:
    with pytest.raises(ConfigurationError, match=r"redis\.url"):
        connect(url)


def test_a_wrong_url_does_not_show_its_password() -> None:
    with pytest.raises(ConfigurationError) as caught:
        connect("redis://user:pa/ss@127.0.0.1:6379")
    assert "'pa'" not in str(caught.value)
    assert "ss@" not in str(caught.value)
