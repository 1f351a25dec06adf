"""Behaviour that every object store must show: inherit, give the fixtures ``store`` and ``admin``, the tests run."""

import asyncio

import pytest

from blockyard.core.errors import ObjectNotFoundError
from blockyard.tiers.bucket_admin import BucketAdmin
from blockyard.tiers.object_store import ObjectStore, PutOutcome

_PREFIX = "conformance"


class ObjectStoreTests:
    """Contract of ``ObjectStore``; both fixtures are of one existing bucket, which the tests may fill."""

    @pytest.fixture
    def key(self, request: pytest.FixtureRequest) -> str:
        """A key of this test alone."""
        return f"{_PREFIX}/{request.node.name}"

    async def test_a_put_object_reads_back_whole(self, store: ObjectStore, key: str) -> None:
        body = bytes(range(256)) * 40
        assert await store.put_if_absent(key, body) is PutOutcome.STORED
        found = await store.get_range(key, 0, len(body))
        assert bytes(found.data) == body
        assert found.facts.object_bytes == len(body)

    async def test_any_buffer_can_be_put(self, store: ObjectStore, key: str) -> None:
        assert await store.put_if_absent(key, memoryview(bytearray(b"buffer"))) is PutOutcome.STORED
        assert bytes((await store.get_range(key, 0, 6)).data) == b"buffer"

    async def test_a_range_is_exact(self, store: ObjectStore, key: str) -> None:
        await store.put_if_absent(key, b"0123456789")
        found = await store.get_range(key, 3, 7)
        assert bytes(found.data) == b"3456"
        assert found.facts.object_bytes == 10

    async def test_a_range_past_the_end_is_shorter(self, store: ObjectStore, key: str) -> None:
        await store.put_if_absent(key, b"0123456789")
        assert bytes((await store.get_range(key, 8, 20)).data) == b"89"

    async def test_a_range_behind_the_end_is_empty_and_tells_the_length(self, store: ObjectStore, key: str) -> None:
        await store.put_if_absent(key, b"0123456789")
        found = await store.get_range(key, 20, 30)
        assert (bytes(found.data), found.facts.object_bytes) == (b"", 10)

    async def test_what_is_there_is_not_overwritten(self, store: ObjectStore, key: str) -> None:
        await store.put_if_absent(key, b"first")
        assert await store.put_if_absent(key, b"second") is PutOutcome.CONFLICT
        assert bytes((await store.get_range(key, 0, 10)).data) == b"first"

    async def test_one_of_many_writers_wins(self, store: ObjectStore, key: str) -> None:
        outcomes = await asyncio.gather(*(store.put_if_absent(key, bytes([number])) for number in range(8)))
        assert outcomes.count(PutOutcome.STORED) == 1
        winner = outcomes.index(PutOutcome.STORED)
        assert bytes((await store.get_range(key, 0, 1)).data) == bytes([winner])

    async def test_replace_needs_the_version_that_is_there(self, store: ObjectStore, key: str) -> None:
        await store.put_if_absent(key, b"old")
        etag = (await store.head(key)).etag
        assert await store.replace(key, b"new", etag) is PutOutcome.STORED
        assert await store.replace(key, b"newer", etag) is PutOutcome.CONFLICT
        assert bytes((await store.get_range(key, 0, 10)).data) == b"new"

    async def test_replace_of_nothing_is_a_conflict(self, store: ObjectStore, key: str) -> None:
        await store.put_if_absent(key, b"other")
        etag = (await store.head(key)).etag
        assert await store.replace(f"{key}-absent", b"new", etag) is PutOutcome.CONFLICT

    async def test_a_missing_object_is_not_found(self, store: ObjectStore, key: str) -> None:
        with pytest.raises(ObjectNotFoundError):
            await store.get_range(key, 0, 10)
        with pytest.raises(ObjectNotFoundError):
            await store.head(key)

    async def test_head_tells_length_and_version(self, store: ObjectStore, key: str) -> None:
        await store.put_if_absent(key, b"12345")
        facts = await store.head(key)
        assert facts.object_bytes == 5
        assert facts == (await store.get_range(key, 0, 1)).facts

    async def test_a_listing_is_complete_and_in_order(self, store: ObjectStore, admin: BucketAdmin, key: str) -> None:
        names = [f"{key}/{number:03d}" for number in range(12)]
        await asyncio.gather(*(store.put_if_absent(name, b"x" * (1 + index)) for index, name in enumerate(names)))
        listed = [entry async for entry in admin.list_objects(f"{key}/")]
        assert [entry.key for entry in listed] == names
        assert [entry.object_bytes for entry in listed] == list(range(1, 13))

    async def test_a_listing_of_nothing_is_empty(self, admin: BucketAdmin, key: str) -> None:
        assert [entry async for entry in admin.list_objects(f"{key}/")] == []

    async def test_making_the_bucket_again_is_harmless(self, store: ObjectStore, admin: BucketAdmin, key: str) -> None:
        await store.put_if_absent(key, b"kept")
        await admin.ensure_bucket()
        assert bytes((await store.get_range(key, 0, 4)).data) == b"kept"
