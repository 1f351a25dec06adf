"""Prefix index on a Redis or Valkey server: adapter of the port in ``prefix_index``.

::

    {0}b<identity 8><key 16>  ->  64-byte value (see ``index_value``), expires
    {0}meta                   ->  version u8 | state u8 | shards u16 | zero u32 | index id 16 | builder 16
                                  absent --begin_build--> building (expires unless renewed) --finish_build--> ready

Keys of one command share a hash tag, so they lie on one shard; there is one shard, number 0.
Invariants: a lookup is one round trip; every call ends within the timeout; values are fixed width.
Threading: one event loop; a call that is cancelled after it was sent closes its connection.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from redis import exceptions as redis_errors
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from blockyard.core.clock import Clock
from blockyard.core.errors import AccessDeniedError, ConfigurationError, DeadlineExceededError, UnavailableError
from blockyard.core.stored_key import StoredKey
from blockyard.core.vocabulary import IdentityDigest, PackId
from blockyard.tiers.index_value import HEAD_BYTES, Locator, decode_values, encode_heads
from blockyard.tiers.prefix_index import INDEX_ID_BYTES, IndexAnswer, IndexMeta, IndexState

_SERVER: Final = "redis"
_KEYS_PER_COMMAND: Final = 1_024
"""Bounds how long one command keeps the server from serving others (about a millisecond)."""
_CONNECTIONS: Final = 8
_SHARD: Final = b"{0}"
_META_KEY: Final = _SHARD + b"meta"
_META_VERSION: Final = 1
_SHARDS: Final = 1
_META_BYTES: Final = 8 + 2 * INDEX_ID_BYTES
_IDENTITY_BYTES: Final = 8
_WRONG_TYPE: Final = "WRONGTYPE"
_FOREIGN: Final = IndexMeta(
    IndexState.FOREIGN,
    obstacle=f"the key {_META_KEY.decode()} of the database holds something else than the state of such an index: if "
    "another program or version of Blockyard uses the database, set redis.url to another one; else delete the key, and "
    "the index is rebuilt",
)
_NO_OPTIONS: Final = (ValueError, TypeError, AttributeError, LookupError, redis_errors.RedisError)
"""What the client library raises on options behind the address that it does not take."""

# KEYS: index keys; ARGV: heads (32 bytes each), ttl. A longer pack of a segment holds what a shorter one holds and
# more, so it keeps its locators whatever the order of arrival; the claims behind the head are not ours to change.
_SET_SCRIPT: Final = """
local none = string.rep('\\0', 32)
for i = 1, #KEYS do
  local head = string.sub(ARGV[1], 32 * i - 31, 32 * i)
  local claims = none
  local old = redis.call('GET', KEYS[i])
  if old and #old == 64 then
    claims = string.sub(old, 33)
    if string.byte(old, 2) % 2 == 1 and string.byte(old, 4) > string.byte(head, 4) then
      head = string.sub(old, 1, 8) .. string.sub(head, 9, 12) .. string.sub(old, 13, 32)
    end
  end
  redis.call('SET', KEYS[i], head .. claims, 'EX', ARGV[2])
end
return #KEYS
"""
# KEYS: index keys; ARGV: pack id. Clears only locators into this very pack.
_DROP_SCRIPT: Final = """
local none = string.rep('\\0', 32)
local dropped = 0
for i = 1, #KEYS do
  local old = redis.call('GET', KEYS[i])
  if old and #old == 64 and string.sub(old, 17, 32) == ARGV[1] then
    if string.sub(old, 33) == none then
      redis.call('DEL', KEYS[i])
    else
      redis.call('SET', KEYS[i], string.sub(old, 1, 1) .. string.rep('\\0', 31) .. string.sub(old, 33), 'KEEPTTL')
    end
    dropped = dropped + 1
  end
end
return dropped
"""
# KEYS: index keys; ARGV: touched u32, ttl.
_TOUCH_SCRIPT: Final = """
for i = 1, #KEYS do
  if redis.call('EXPIRE', KEYS[i], ARGV[2]) == 1 then redis.call('SETRANGE', KEYS[i], 8, ARGV[1]) end
end
return #KEYS
"""
# KEYS: meta; ARGV: expected value, new value, ttl in ms (0: none).
_EXCHANGE_SCRIPT: Final = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
if ARGV[3] == '0' then redis.call('SET', KEYS[1], ARGV[2]) else redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3]) end
return 1
"""


class RedisIndex:
    """``PrefixIndex`` on one Redis or Valkey server."""

    def __init__(self, url: str, *, timeout_seconds: float, entry_ttl_seconds: int, clock: Clock) -> None:
        """Make the client; nothing is sent before the first call.

        Raises:
            ConfigurationError: the URL is none of a Redis server.
        """
        self._timeout_seconds = timeout_seconds
        self._ttl_seconds = entry_ttl_seconds
        self._clock = clock
        self._redis = Redis.from_pool(_pool(url, timeout_seconds))
        self._set = self._redis.register_script(_SET_SCRIPT)
        self._drop = self._redis.register_script(_DROP_SCRIPT)
        self._touch = self._redis.register_script(_TOUCH_SCRIPT)
        self._exchange = self._redis.register_script(_EXCHANGE_SCRIPT)

    async def find(self, identity: IdentityDigest, keys: Sequence[StoredKey]) -> IndexAnswer:
        """Look up ``keys`` in one round trip."""
        wanted = [_META_KEY, *_entry_keys(identity, keys)]
        starts = range(0, len(wanted), _KEYS_PER_COMMAND)
        async with self._translated():
            answers = await self._pipelined([("MGET", *wanted[start : start + _KEYS_PER_COMMAND]) for start in starts])
        values: list[bytes | None] = [value for answer in answers for value in answer]
        return IndexAnswer(tuple(decode_values(values[1:])), _decode_meta(values[0]))

    async def set_locators(self, identity: IdentityDigest, entries: Sequence[tuple[StoredKey, Locator]]) -> None:
        """Write locators; one that points into a longer pack stays."""
        keys = _entry_keys(identity, [key for key, _ in entries])
        heads = encode_heads([locator for _, locator in entries], self._clock.wall_ms() // 1_000)
        for start in range(0, len(keys), _KEYS_PER_COMMAND):
            stop = start + _KEYS_PER_COMMAND
            async with self._translated():
                await self._set(keys[start:stop], [heads[start * HEAD_BYTES : stop * HEAD_BYTES], self._ttl_seconds])

    async def drop_locators(self, identity: IdentityDigest, pack: PackId, keys: Sequence[StoredKey]) -> int:
        """Clear those locators of ``keys`` that point into ``pack``; answers how many did."""
        dropped = 0
        names = _entry_keys(identity, keys)
        for start in range(0, len(names), _KEYS_PER_COMMAND):
            async with self._translated():
                dropped += int(await self._drop(names[start : start + _KEYS_PER_COMMAND], [pack]))
        return dropped

    async def touch(self, identity: IdentityDigest, keys: Sequence[StoredKey]) -> None:
        """Note that these entries are in use; absent ones stay absent."""
        now = (self._clock.wall_ms() // 1_000 & 0xFFFF_FFFF).to_bytes(4, "little")
        names = _entry_keys(identity, keys)
        for start in range(0, len(names), _KEYS_PER_COMMAND):
            async with self._translated():
                await self._touch(names[start : start + _KEYS_PER_COMMAND], [now, self._ttl_seconds])

    async def meta(self) -> IndexMeta:
        """State of the index."""
        async with self._translated():
            try:
                (value,) = await self._pipelined([("GET", _META_KEY)])
            except redis_errors.ResponseError as error:
                if _WRONG_TYPE not in str(error):
                    raise
                return _FOREIGN
        return _decode_meta(value)

    async def begin_build(self, index_id: bytes, builder: bytes, lease_seconds: float) -> bool:
        """Become the one who fills an absent index (both ids: 16 bytes); False where it is not absent."""
        value = _encode_meta(IndexState.BUILDING, index_id, builder)
        async with self._translated():
            (answer,) = await self._pipelined([("SET", _META_KEY, value, "NX", "PX", _millis(lease_seconds))])
        return bool(answer)

    async def renew_build(self, index_id: bytes, builder: bytes, lease_seconds: float) -> bool:
        """Stay the builder; False where the lease ended or another one builds."""
        value = _encode_meta(IndexState.BUILDING, index_id, builder)
        async with self._translated():
            return bool(await self._exchange([_META_KEY], [value, value, _millis(lease_seconds)]))

    async def finish_build(self, index_id: bytes, builder: bytes) -> bool:
        """Declare the index complete; False where this builder's lease had ended."""
        building = _encode_meta(IndexState.BUILDING, index_id, builder)
        ready = _encode_meta(IndexState.READY, index_id, bytes(INDEX_ID_BYTES))
        async with self._translated():
            return bool(await self._exchange([_META_KEY], [building, ready, 0]))

    async def close(self) -> None:
        """Close all connections."""
        await self._redis.aclose(close_connection_pool=True)

    async def _pipelined(self, commands: Sequence[tuple[bytes | str | int, ...]]) -> list[Any]:
        pipe = self._redis.pipeline(transaction=False)
        for command in commands:
            pipe.execute_command(*command)
        return list(await pipe.execute())

    @asynccontextmanager
    async def _translated(self) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(self._timeout_seconds):
                yield
        except (TimeoutError, redis_errors.TimeoutError):
            raise DeadlineExceededError("no answer in time", server=_SERVER) from None
        except (redis_errors.AuthenticationError, redis_errors.NoPermissionError) as error:
            raise AccessDeniedError(str(error), server=_SERVER) from None
        except (redis_errors.RedisError, OSError) as error:
            raise UnavailableError(str(error), server=_SERVER) from None


def _pool(url: str, timeout_seconds: float) -> BlockingConnectionPool:
    try:
        pool = BlockingConnectionPool.from_url(
            url,
            max_connections=_CONNECTIONS,
            timeout=timeout_seconds,
            socket_timeout=timeout_seconds,
            socket_connect_timeout=timeout_seconds,
            retry=Retry(NoBackoff(), 0),
        )
        # Options behind the address become arguments of the connection; unknown ones would fail at the first call.
        pool.connection_class(**pool.connection_kwargs)
        "".encode(str(pool.connection_kwargs.get("encoding", "utf-8")))
    except _NO_OPTIONS:
        # What the error says may be a piece of the password.
        raise ConfigurationError("not an address like redis://host:6379/0", key="redis.url") from None
    if pool.connection_kwargs.get("decode_responses"):
        raise ConfigurationError("the index is made of bytes: leave decode_responses out", key="redis.url")
    return pool


def _entry_keys(identity: IdentityDigest, keys: Sequence[StoredKey]) -> list[bytes]:
    stem = _SHARD + b"b" + identity[:_IDENTITY_BYTES]
    return [stem + key for key in keys]


def _encode_meta(state: IndexState, index_id: bytes, builder: bytes) -> bytes:
    head = bytes((_META_VERSION, state)) + _SHARDS.to_bytes(2, "little") + bytes(4)
    return head + index_id + builder


def _decode_meta(value: bytes | None) -> IndexMeta:
    if value is None:
        return IndexMeta(IndexState.ABSENT)
    known = len(value) == _META_BYTES and value[0] == _META_VERSION and value[1] in (1, 2)
    if not known or int.from_bytes(value[2:4], "little") != _SHARDS:
        return _FOREIGN
    return IndexMeta(IndexState(value[1]), value[8 : 8 + INDEX_ID_BYTES])


def _millis(seconds: float) -> int:
    return max(1, int(seconds * 1_000))
