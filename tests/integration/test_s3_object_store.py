"""The object store adapter keeps its contract on a real server, and names the failures of dead and odd ones."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from blockyard.cli.embedded.seaweedfs import SeaweedfsServer
from blockyard.core.errors import AccessDeniedError, DeadlineExceededError, ObjectNotFoundError, UnavailableError
from blockyard.testing.object_store_conformance import ObjectStoreTests
from blockyard.testing.tcp_server import tcp_server
from blockyard.tiers import bucket_admin
from blockyard.tiers.bucket_admin import S3BucketAdmin
from blockyard.tiers.object_store import PutOutcome, S3ObjectStore, StoreCredentials, StoreEndpoint

Request = Callable[[], Awaitable[object]]


def endpoint(url: str, timeout_seconds: float = 10.0) -> StoreEndpoint:
    return StoreEndpoint(
        url=url,
        region="us-east-1",
        bucket="conformance",
        timeout_seconds=timeout_seconds,
        max_requests=8,
    )


def credentials(server: SeaweedfsServer) -> StoreCredentials:
    return StoreCredentials(access_key=server.access_key, secret_key=server.secret_key)


class TestS3ObjectStore(ObjectStoreTests):
    @pytest.fixture
    def place(self, seaweedfs_server: SeaweedfsServer) -> StoreEndpoint:
        return endpoint(seaweedfs_server.url)

    @pytest.fixture
    async def admin(self, place: StoreEndpoint, seaweedfs_server: SeaweedfsServer) -> S3BucketAdmin:
        admin = S3BucketAdmin(place, credentials(seaweedfs_server))
        await admin.ensure_bucket()
        return admin

    @pytest.fixture
    def store(self, place: StoreEndpoint, admin: S3BucketAdmin, seaweedfs_server: SeaweedfsServer) -> S3ObjectStore:
        return S3ObjectStore(place, credentials(seaweedfs_server))


async def test_wrong_credentials_are_refused_not_missing(seaweedfs_server: SeaweedfsServer) -> None:
    place = endpoint(seaweedfs_server.url)
    wrong = StoreCredentials(access_key=seaweedfs_server.access_key, secret_key="not the key")
    with pytest.raises(AccessDeniedError):
        await S3ObjectStore(place, wrong).get_range("some/key", 0, 10)
    with pytest.raises(AccessDeniedError):
        await S3ObjectStore(place, wrong).put_if_absent("some/key", b"x")
    with pytest.raises(AccessDeniedError):
        await S3BucketAdmin(place, wrong).ensure_bucket()


def test_credentials_never_show() -> None:
    assert "hush" not in repr(StoreCredentials(access_key="hush", secret_key="hush"))


@asynccontextmanager
async def odd_server(answer: bytes | None) -> AsyncIterator[str]:
    """A server that answers every request with these bytes and closes; with None it never answers."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        if answer is None:
            await asyncio.Event().wait()
        else:
            writer.write(answer)
            await writer.drain()

    async with tcp_server(serve) as port:
        yield f"http://127.0.0.1:{port}"


def requests_to(store: S3ObjectStore) -> list[Request]:
    return [
        lambda: store.put_if_absent("k", b"x"),
        lambda: store.replace("k", b"x", "etag"),
        lambda: store.get_range("k", 0, 100),
        lambda: store.head("k"),
    ]


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 503 Slow Down\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        b"HTTP/1.1 500 Oops\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        b"no HTTP at all",
        b"",
    ],
)
async def test_a_failing_server_is_unavailable(answer: bytes) -> None:
    async with odd_server(answer) as url:
        for request in requests_to(S3ObjectStore(endpoint(url), StoreCredentials(access_key="a", secret_key="b"))):
            with pytest.raises(UnavailableError):
                await request()


async def test_nobody_there_is_unavailable() -> None:
    async with odd_server(b"") as url:
        pass
    for request in requests_to(S3ObjectStore(endpoint(url), StoreCredentials(access_key="a", secret_key="b"))):
        with pytest.raises(UnavailableError):
            await request()
    admin = S3BucketAdmin(endpoint(url), StoreCredentials(access_key="a", secret_key="b"))
    with pytest.raises(UnavailableError):
        await admin.ensure_bucket()
    with pytest.raises(UnavailableError):
        _ = [entry async for entry in admin.list_objects("")]


async def test_a_silent_server_costs_the_timeout_and_no_more() -> None:
    async with odd_server(None) as url:
        place = endpoint(url, timeout_seconds=0.1)
        store = S3ObjectStore(place, StoreCredentials(access_key="a", secret_key="b"))
        for request in requests_to(store):
            with pytest.raises((DeadlineExceededError, UnavailableError)):
                await request()


async def test_a_body_that_ends_early_is_a_failure_not_a_short_object() -> None:
    head = (
        b'HTTP/1.1 206 Partial Content\r\nETag: "x"\r\nContent-Range: bytes 0-99/1000\r\n'
        b"Last-Modified: Wed, 21 Oct 2015 07:28:00 GMT\r\nContent-Length: 100\r\nConnection: close\r\n\r\nonly this"
    )
    async with odd_server(head) as url:
        store = S3ObjectStore(endpoint(url), StoreCredentials(access_key="a", secret_key="b"))
        with pytest.raises(UnavailableError):
            await store.get_range("k", 0, 100)


async def test_a_conflict_of_writers_is_a_conflict() -> None:
    async with odd_server(b"HTTP/1.1 409 Conflict\r\nContent-Length: 0\r\nConnection: close\r\n\r\n") as url:
        store = S3ObjectStore(endpoint(url), StoreCredentials(access_key="a", secret_key="b"))
        assert await store.put_if_absent("k", b"x") is PutOutcome.CONFLICT
        assert await store.replace("k", b"x", "etag") is PutOutcome.CONFLICT


# --- listings -------------------------------------------------------------------------------------------------------
async def test_a_listing_of_several_pages_is_complete_and_in_order(
    seaweedfs_server: SeaweedfsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bucket_admin, "_PAGE_KEYS", 5)
    place = endpoint(seaweedfs_server.url)
    store = S3ObjectStore(place, credentials(seaweedfs_server))
    admin = S3BucketAdmin(place, credentials(seaweedfs_server))
    await admin.ensure_bucket()
    names = [f"pages/{number:03d} + %" for number in range(12)]
    for name in names:
        await store.put_if_absent(name, b"x")
    assert [entry.key async for entry in admin.list_objects("pages/")] == names


def page(body: bytes) -> bytes:
    text = b'<?xml version="1.0"?><ListBucketResult>' + body + b"</ListBucketResult>"
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/xml\r\nConnection: close\r\nContent-Length: "
    return head + str(len(text)).encode() + b"\r\n\r\n" + text


@pytest.mark.parametrize(
    "answer",
    [
        page(b"<Contents><Key>k</Key></Contents>"),
        page(b"<Contents><Key>k</Key><Size>many</Size></Contents>"),
        page(b"<Contents><Size>5</Size></Contents>"),
        page(b"<IsTruncated>true</IsTruncated>"),
        b"HTTP/1.1 301 Moved\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\nConnection: close\r\n\r\nonly this",
        None,
    ],
)
async def test_a_listing_that_is_none_is_a_failure_never_an_empty_store(answer: bytes | None) -> None:
    async with odd_server(answer) as url:
        admin = S3BucketAdmin(endpoint(url, timeout_seconds=1.0), StoreCredentials(access_key="a", secret_key="b"))
        with pytest.raises(UnavailableError):
            _ = [entry async for entry in admin.list_objects("")]


async def test_without_keys_requests_are_unsigned() -> None:
    nobody = StoreCredentials(access_key="", secret_key="")
    seen: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        await writer.drain()

    async with tcp_server(serve) as port:
        place = endpoint(f"http://127.0.0.1:{port}")
        with pytest.raises(ObjectNotFoundError):
            await S3ObjectStore(place, nobody).head("k")
        with pytest.raises(UnavailableError):
            await S3BucketAdmin(place, nobody).ensure_bucket()
    assert len(seen) == 2
    assert not any(b"authorization" in request.lower() for request in seen)
