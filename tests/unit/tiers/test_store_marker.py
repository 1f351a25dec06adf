"""The marker of a store: written once, read by everybody."""

import asyncio

import pytest

from blockyard.core.errors import ForeignFileError, ObjectNotFoundError
from blockyard.testing.memory_store import MemoryStore
from blockyard.tiers.store_marker import StoreMarker, decode_marker, encode_marker, open_marker, read_marker

MARKER = StoreMarker(bytes(range(16)), 4 << 20)


def test_a_marker_is_readable_json() -> None:
    expected = b'{"format":1,"store_id":"000102030405060708090a0b0c0d0e0f","target_bytes":4194304}'
    assert encode_marker(MARKER) == expected
    assert decode_marker(expected) == MARKER


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{}",
        encode_marker(MARKER).replace(b'"format":1', b'"format":2'),
        encode_marker(MARKER).replace(b"00010203", b"zzzzzzzz"),
        encode_marker(MARKER).replace(b"0c0d0e0f", b""),
        encode_marker(MARKER).replace(b"4194304", b"0"),
    ],
)
def test_anything_else_is_foreign(data: bytes) -> None:
    with pytest.raises(ForeignFileError):
        decode_marker(data)


async def test_the_first_one_decides_for_all() -> None:
    store = MemoryStore()
    first = await open_marker(store, "kv", 1_000)
    assert await open_marker(store, "kv", 2_000) == first
    assert first.target_bytes == 1_000


async def test_many_who_come_first_at_once_agree() -> None:
    store = MemoryStore()
    store.gate.clear()
    openings = [asyncio.create_task(open_marker(store, "kv", 1_000 + number)) for number in range(5)]
    await asyncio.sleep(0)
    store.gate.set()
    assert len(set(await asyncio.gather(*openings))) == 1


async def test_a_store_without_marker_says_so() -> None:
    with pytest.raises(ObjectNotFoundError):
        await read_marker(MemoryStore(), "kv")
