"""HTTP pages of a service."""

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from structlog.testing import capture_logs

from blockyard.core.errors import ConfigurationError
from blockyard.runtime.http import Health, Receive, Scope, Send, ServiceHttp
from blockyard.runtime.node_folder import NodeFolder, ServiceFolder, ServiceName
from blockyard.runtime.telemetry import Metrics


@pytest.fixture
def health() -> Health:
    return Health()


@pytest.fixture
def folder(tmp_path: Path) -> ServiceFolder:
    folder = NodeFolder(tmp_path).service(ServiceName.BLOCK_MANAGER)
    folder.create()
    return folder


async def mounted(scope: Scope, receive: Receive, send: Send) -> None:
    body = f"{scope['method']} {scope['path']}".encode()
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": body})


@pytest.fixture
async def client(health: Health, folder: ServiceFolder) -> AsyncIterator[httpx.AsyncClient]:
    async with (
        ServiceHttp("127.0.0.1", 0, health, Metrics("test"), mounted, folder=folder) as server,
        httpx.AsyncClient(base_url=server.url) as client,
    ):
        yield client


async def test_liveness_answers_before_anything_else_works(client: httpx.AsyncClient) -> None:
    assert (await client.get("/livez")).status_code == 200
    assert (await client.get("/startupz")).status_code == 503
    assert (await client.get("/readyz")).status_code == 503


async def test_metrics_say_whether_the_service_is_ready_and_which_check_fails(
    client: httpx.AsyncClient, health: Health
) -> None:
    health.set("nats", ok=False, detail="no connection")
    health.started = True
    lines = (await client.get("/metrics")).text.splitlines()
    assert {"blockyard_ready 0.0", 'blockyard_check_ok{check="nats"} 0.0'} <= set(lines)
    health.set("nats", ok=True)
    lines = (await client.get("/metrics")).text.splitlines()
    assert {"blockyard_ready 1.0", 'blockyard_check_ok{check="nats"} 1.0'} <= set(lines)


async def test_readiness_lists_every_check_and_says_what_is_missing(client: httpx.AsyncClient, health: Health) -> None:
    health.started = True
    health.set("worker", ok=True)
    health.set("nats", ok=False, detail="no connection")
    answer = await client.get("/readyz")
    assert answer.status_code == 503
    assert answer.json() == {
        "ready": False,
        "started": True,
        "checks": [
            {"name": "worker", "ok": True, "detail": ""},
            {"name": "nats", "ok": False, "detail": "no connection"},
        ],
    }
    health.set("nats", ok=True)
    assert (await client.get("/readyz")).status_code == 200
    assert (await client.get("/startupz")).status_code == 200


async def test_a_service_with_good_checks_is_not_ready_before_it_has_started(health: Health) -> None:
    health.set("worker", ok=True)
    assert not health.ready
    health.started = True
    assert health.ready
    health.set("late", ok=False)
    assert not health.ready
    health.set("late", ok=True)
    assert health.ready


async def test_metrics_are_served_as_text(client: httpx.AsyncClient) -> None:
    answer = await client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    assert "blockyard_build_info" in answer.text


async def test_head_has_the_length_but_no_body(client: httpx.AsyncClient) -> None:
    answer = await client.head("/livez")
    assert (answer.status_code, answer.content) == (200, b"")
    assert int(answer.headers["content-length"]) > 0


async def test_own_pages_cannot_be_written(client: httpx.AsyncClient) -> None:
    answer = await client.post("/readyz")
    assert answer.status_code == 405
    assert answer.headers["content-type"] == "application/problem+json"


async def test_other_paths_belong_to_the_mounted_application(client: httpx.AsyncClient) -> None:
    assert (await client.post("/v1/anything")).text == "POST /v1/anything"


async def test_without_an_application_other_paths_are_a_problem(health: Health) -> None:
    async with (
        ServiceHttp("127.0.0.1", 0, health, Metrics("test")) as server,
        httpx.AsyncClient(base_url=server.url) as client,
    ):
        answer = await client.get("/nothing")
    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["status"] == 404
    assert answer.json()["remedy"]


@pytest.mark.parametrize(("every", "loopback"), [("0.0.0.0", "127.0.0.1"), ("::", "[::1]")])
async def test_where_every_address_is_bound_the_file_names_one_that_can_be_asked(
    every: str, loopback: str, health: Health, folder: ServiceFolder
) -> None:
    async with ServiceHttp(every, 0, health, Metrics("test"), folder=folder) as server, httpx.AsyncClient() as client:
        assert folder.read_http() == server.url
        assert server.url.startswith(f"http://{loopback}:")
        assert (await client.get(f"{folder.read_http()}/livez")).status_code == 200


@pytest.mark.parametrize(
    ("host", "advertised", "told"),
    [
        ("127.0.0.1", "", "127.0.0.1"),
        ("::1", "", "[::1]"),
        ("127.0.0.1", "node-a.example", "node-a.example"),
        ("0.0.0.0", "10.1.2.3", "10.1.2.3"),
        ("0.0.0.0", "fd00::7", "[fd00::7]"),
    ],
)
async def test_others_are_told_the_advertised_host_with_the_port_that_is_bound(
    host: str, advertised: str, told: str, health: Health
) -> None:
    async with ServiceHttp(host, 0, health, Metrics("test"), advertised_host=advertised) as server:
        with capture_logs() as lines:
            assert server.advertise() == f"http://{told}:{httpx.URL(server.url).port}"
    assert lines == []


async def test_a_guess_of_the_advertised_host_is_a_warning_that_names_the_setting(
    health: Health, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "machine-7")
    async with ServiceHttp("0.0.0.0", 0, health, Metrics("test")) as server:
        with capture_logs() as lines:
            assert server.advertise() == f"http://machine-7:{httpx.URL(server.url).port}"
    ((level, key),) = [(line["log_level"], line["key"]) for line in lines]
    assert (level, key) == ("warning", "http.advertised_host")


async def refusal(url: str, request: bytes) -> httpx.Response:
    """What the server answers to these bytes, all of them sent."""
    reader, writer = await asyncio.open_connection("127.0.0.1", httpx.URL(url).port)
    writer.write(request)
    await writer.drain()
    answer = await asyncio.wait_for(reader.read(), 5.0)
    writer.close()
    await writer.wait_closed()
    head, _, body = answer.partition(b"\r\n\r\n")
    status, *lines = head.decode().split("\r\n")
    headers = [(name, value) for name, _, value in (line.partition(": ") for line in lines)]
    return httpx.Response(int(status.split()[1]), headers=headers, content=body)


@pytest.mark.parametrize(
    ("request_bytes", "status", "code"),
    [
        (b"GET /" + b"a" * 700_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", 431, "head-too-large"),
        (b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 1_000_000 + b"\r\n\r\n", 431, "head-too-large"),
        (b"\x16\x03\x01 what\r\n\r\n", 400, "bad-request"),
        (b"GET / HTTP/1.1\r\n\r\n", 400, "bad-request"),
    ],
    ids=["long address", "long header", "no HTTP", "no host"],
)
async def test_a_request_that_cannot_be_read_is_answered_with_a_problem(
    client: httpx.AsyncClient, request_bytes: bytes, status: int, code: str
) -> None:
    answer = await refusal(str(client.base_url), request_bytes)
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")
    assert answer.json()["type"] == f"urn:blockyard:problem:{code}"
    assert answer.json()["remedy"]
    assert (await client.get("/livez")).status_code == 200


async def test_rubbish_behind_a_request_that_is_being_answered_ends_the_connection_only(
    health: Health, caplog: pytest.LogCaptureFixture
) -> None:
    started, go_on = asyncio.Event(), asyncio.Event()

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"x", "more_body": True})
        started.set()
        await go_on.wait()

    async with ServiceHttp("127.0.0.1", 0, health, Metrics("test"), slow) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", httpx.URL(server.url).port)
        writer.write(b"POST /x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        await started.wait()
        writer.write(b"zz\r\n")
        assert b"400" not in await asyncio.wait_for(reader.read(), 5.0)
        writer.close()
        go_on.set()
    assert "failed" not in caplog.text


async def test_answers_are_not_held_back_until_the_client_confirms_their_head(client: httpx.AsyncClient) -> None:
    """Head and body of an answer go out one after the other; a delayed confirmation takes 40 ms."""
    began = time.monotonic()
    for _ in range(25):
        await client.get("/livez")
    assert time.monotonic() - began < 25 * 0.03


@pytest.mark.parametrize(("earlier", "sent"), [(0, b""), (0, b"GET /li"), (1, b"GET /li")])
async def test_a_connection_whose_request_never_comes_together_is_closed(
    client: httpx.AsyncClient, earlier: int, sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("blockyard.runtime.http.HEAD_SECONDS", 0.05)
    reader, writer = await asyncio.open_connection(client.base_url.host, client.base_url.port)
    for _ in range(earlier):
        writer.write(b"GET /livez HTTP/1.1\r\nHost: a\r\n\r\n")
        await reader.readuntil(b'{"live": true}')
    writer.write(sent)
    assert await asyncio.wait_for(reader.read(), 10.0) == b""
    writer.close()
    await writer.wait_closed()


async def test_an_answer_may_take_longer_than_the_head_of_its_request(
    health: Health, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("blockyard.runtime.http.HEAD_SECONDS", 0.02)

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        await asyncio.sleep(0.1)
        await mounted(scope, receive, send)

    async with (
        ServiceHttp("127.0.0.1", 0, health, Metrics("test"), slow) as server,
        httpx.AsyncClient(base_url=server.url) as client,
    ):
        assert (await client.get("/v1/slow")).text == "GET /v1/slow"


async def test_the_address_file_is_there_exactly_while_the_server_answers(
    health: Health, folder: ServiceFolder
) -> None:
    async with ServiceHttp("127.0.0.1", 0, health, Metrics("test"), folder=folder) as server:
        assert folder.read_http() == server.url
    assert folder.read_http() is None
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", int(server.url.rsplit(":", 1)[1]))


@pytest.mark.parametrize("host", ["192.0.2.1", "no-such-host.invalid"])
async def test_a_host_that_cannot_be_bound_is_named_with_what_to_do(host: str, health: Health) -> None:
    with pytest.raises(ConfigurationError) as caught:
        async with ServiceHttp(host, 0, health, Metrics("test")):
            pass
    assert caught.value.fields["key"] == "http.host"
    assert "127.0.0.1" in str(caught.value)
    assert "log" not in str(caught.value)


async def test_a_port_in_use_is_a_start_error(health: Health) -> None:
    async with ServiceHttp("127.0.0.1", 0, health, Metrics("test")) as server:
        port = int(server.url.rsplit(":", 1)[1])
        with pytest.raises(ConfigurationError) as caught:
            async with ServiceHttp("127.0.0.1", port, health, Metrics("test"), port_key="http.remote_tier_port"):
                pass
    assert (caught.value.fields["port"], caught.value.fields["key"]) == (port, "http.remote_tier_port")
    assert "choose a free port" in str(caught.value)


async def test_an_ipv6_address_is_written_as_a_url_needs_it(health: Health) -> None:
    async with ServiceHttp("::1", 0, health, Metrics("test")) as server, httpx.AsyncClient() as client:
        assert server.url.startswith("http://[::1]:")
        answer = await client.get(f"{server.url}/livez")
    assert json.loads(answer.content) == {"live": True}
