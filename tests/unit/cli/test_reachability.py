"""Servers that the user named are tried before anything waits for them."""

import asyncio
import socket
import time
from pathlib import Path

import pytest

from blockyard.cli.failures import UnreachableServerError
from blockyard.cli.reachability import named_servers, require_reachable
from blockyard.runtime.settings_source import load_settings

NATS, REDIS, S3 = "BLOCKYARD_NATS__URL", "BLOCKYARD_REDIS__URL", "BLOCKYARD_G4__ENDPOINT_URL"
GRACE_SECONDS = 0.05


def test_servers_that_are_not_named_are_not_tried() -> None:
    assert named_servers(load_settings({})) == ()
    without_g4 = {NATS: "nats://h", REDIS: "redis://h", S3: "http://h", "BLOCKYARD_G4__ENABLED": "false"}
    assert [server.variable for server in named_servers(load_settings(without_g4))] == [NATS]


@pytest.mark.parametrize(
    ("variable", "url", "place"),
    [
        (NATS, "nats://user:secret@host", "host:4222"),
        (NATS, "tls://host:7", "host:7"),
        (REDIS, "redis://:secret@host/0", "host:6379"),
        (REDIS, "rediss://[::1]:9/0", "::1:9"),
        (REDIS, "unix:///run/a%20b.sock?db=1", "/run/a b.sock"),
        (S3, "https://host", "host:443"),
        (S3, "http://host", "host:80"),
    ],
)
def test_place_is_told_without_password(variable: str, url: str, place: str) -> None:
    (server,) = named_servers(load_settings({variable: url}))
    assert (server.variable, server.place) == (variable, place)


async def test_all_that_do_not_answer_are_named_with_their_settings() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        place = f"127.0.0.1:{closed.getsockname()[1]}"
        servers = named_servers(
            load_settings({REDIS: f"redis://:secret@{place}", S3: "http://127.0.0.1:2", NATS: "nats://127.0.0.1:1"})
        )
        with pytest.raises(UnreachableServerError) as caught:
            await require_reachable(servers, GRACE_SECONDS)
    text = str(caught.value)
    assert all(variable in text for variable in (NATS, REDIS, S3))
    assert place in text
    assert "secret" not in text


async def test_server_that_never_takes_the_connection_is_named_in_time() -> None:
    with socket.socket() as deaf, socket.socket() as filler:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        filler.setblocking(False)
        filler.connect_ex(deaf.getsockname())
        url = f"redis://127.0.0.1:{deaf.getsockname()[1]}"
        with socket.socket() as second:
            second.setblocking(False)
            second.connect_ex(deaf.getsockname())
            began = time.monotonic()
            with pytest.raises(UnreachableServerError, match="no answer"):
                await require_reachable(named_servers(load_settings({REDIS: url})), GRACE_SECONDS)
            assert time.monotonic() - began < 1


async def test_server_that_comes_up_within_the_time_is_good(tmp_path: Path) -> None:
    path = tmp_path / "s.sock"
    waiting = asyncio.create_task(require_reachable(named_servers(load_settings({REDIS: f"unix://{path}"})), 5.0))
    await asyncio.sleep(0)
    server = await asyncio.start_unix_server(lambda _, writer: writer.close(), path)
    await waiting
    server.close()
    await server.wait_closed()
