"""Ending the process at the other side of a unix socket, and nobody else."""

import asyncio
import errno
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from blockyard.core.errors import BlockyardError, UnavailableError, UnsupportedOperationError
from blockyard.runtime.rpc import peer_process
from blockyard.runtime.rpc.client import RpcClient
from blockyard.runtime.rpc.peer_process import end_peer
from blockyard.wire import worker_channel as channel

_LISTENS = """
import socket, sys
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen()
print("listens", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "socket"


@pytest.fixture
def server(path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that listens and accepts nobody."""
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", _LISTENS, str(path)], stdin=pipe, stdout=pipe) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"listens\n"
        yield process
        process.kill()


def connected(path: Path) -> socket.socket:
    peer = socket.socket(socket.AF_UNIX)
    peer.connect(os.fspath(path))
    return peer


def test_a_process_that_stands_still_is_killed_though_it_never_accepted(
    server: subprocess.Popen[bytes], path: Path
) -> None:
    server.send_signal(signal.SIGSTOP)
    with connected(path) as peer:
        end_peer(peer)
        assert server.wait(10.0) == -signal.SIGKILL
        with pytest.raises(UnavailableError):
            end_peer(peer)


def test_a_number_that_another_process_has_by_now_is_nobody_to_kill(
    server: subprocess.Popen[bytes], path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with connected(path) as peer, subprocess.Popen(["/bin/sleep", "60"]) as other:
        server.kill()
        server.wait(10.0)
        monkeypatch.setattr(peer_process, "peer_credentials", lambda peer: (other.pid, os.geteuid()))
        with pytest.raises(UnavailableError):
            end_peer(peer)
        assert other.poll() is None
        other.kill()


@pytest.mark.parametrize(
    ("pid", "user"),
    [(0, os.geteuid()), (1, os.geteuid() + 1), (os.getpid(), os.geteuid())],
    ids=["in another process space", "of another user", "this process itself"],
)
def test_others_are_out_of_reach(
    server: subprocess.Popen[bytes], path: Path, monkeypatch: pytest.MonkeyPatch, pid: int, user: int
) -> None:
    monkeypatch.setattr(peer_process, "peer_credentials", lambda peer: (pid, user))
    with connected(path) as peer, pytest.raises(UnsupportedOperationError):
        end_peer(peer)
    assert server.poll() is None


def test_a_number_that_nobody_has_any_more_is_said_to_be_gone(
    server: subprocess.Popen[bytes], path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with subprocess.Popen(["true"]) as ended:
        ended.wait()
    monkeypatch.setattr(peer_process, "peer_credentials", lambda peer: (ended.pid, os.geteuid()))
    with connected(path) as peer, pytest.raises(UnavailableError, match="gone"):
        end_peer(peer)
    assert server.poll() is None


@pytest.mark.parametrize(
    ("reason", "kind"), [(errno.EMFILE, UnavailableError), (errno.EPERM, UnsupportedOperationError)]
)
def test_what_passes_is_told_from_what_stays(
    server: subprocess.Popen[bytes],
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
    reason: int,
    kind: type[BlockyardError],
) -> None:
    def fails(*_: object) -> int:
        raise OSError(reason, os.strerror(reason))

    monkeypatch.setattr(os, "pidfd_open", fails)
    with connected(path) as peer, pytest.raises(kind, match=os.strerror(reason)):
        end_peer(peer)
    assert server.poll() is None


@pytest.mark.parametrize("lives", [True, False], ids=["killed", "gone"])
def test_no_descriptor_is_left_open(server: subprocess.Popen[bytes], path: Path, lives: bool) -> None:  # noqa: FBT001
    with connected(path) as peer:
        if not lives:
            server.kill()
            server.wait(10.0)
        before = os.listdir("/proc/self/fd")
        with nullcontext() if lives else pytest.raises(UnavailableError):
            end_peer(peer)
        assert os.listdir("/proc/self/fd") == before


async def test_the_connection_ends_with_the_process(server: subprocess.Popen[bytes], path: Path) -> None:
    client: RpcClient[channel.Reply, channel.Push] = await RpcClient.connect(path, channel.Reply)
    async with client:
        client.end_peer()
        async with asyncio.timeout(10.0):
            await client.closed.wait()
        with pytest.raises(UnavailableError):
            client.end_peer()
