"""Unix sockets of a node: where they may lie, who may open them, and how to connect without blocking.

Invariants: a listening socket is readable and writable by its user only before anybody can connect; a stale socket
file is replaced (the lock of the service folder proves that nobody serves it), any other file is left alone.
Threading: none; one event loop.
"""

import asyncio
import os
import socket
import stat
import struct
from pathlib import Path
from typing import Final

from blockyard.core.errors import (
    ConfigurationError,
    DeadlineExceededError,
    ForeignFileError,
    StartupError,
    UnavailableError,
)

MAX_PATH_BYTES: Final = 100
"""The system allows 107; the rest is kept for the temporary names of tests and tools."""
_BACKLOG: Final = 64
_RETRY_SECONDS: Final = 0.01
_CREDENTIALS: Final = struct.Struct("3i")


def check_path(path: Path) -> None:
    """Refuse a path that the system cannot bind.

    Raises:
        ConfigurationError: the path is too long; names the setting to shorten.
    """
    size = len(os.fsencode(path))
    if size > MAX_PATH_BYTES:
        raise ConfigurationError(
            "the path of a socket is too long", key="node.folder", path=str(path), bytes=size, limit=MAX_PATH_BYTES
        )


def listen(path: Path) -> socket.socket:
    """Non-blocking listening socket at ``path``, mode 0600, in place of a stale one.

    Raises:
        ConfigurationError: the path is too long.
        ForeignFileError: something that is no socket lies there.
        StartupError: the system refuses to bind.
    """
    check_path(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    try:
        _remove_stale(path)
        listener.bind(os.fspath(path))
        # Before listen(): until then every connect is refused, so nobody slips in under the default mode.
        path.chmod(0o600)
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise StartupError("cannot listen on a socket", path=str(path), reason=error.strerror or str(error)) from error
    except ForeignFileError:
        listener.close()
        raise
    return listener


async def connect(path: Path, timeout_seconds: float) -> socket.socket:
    """Connected non-blocking socket.

    Raises:
        ConfigurationError: the path is too long.
        UnavailableError: nobody listens there, or this process has no descriptor left.
        DeadlineExceededError: the listener did not accept within ``timeout_seconds``.
    """
    check_path(path)
    deadline = asyncio.get_running_loop().time() + timeout_seconds
    while True:
        try:
            peer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        except OSError as error:
            raise UnavailableError("cannot open a socket", reason=error.strerror or str(error)) from error
        try:
            peer.connect(os.fspath(path))
        except BlockingIOError:
            # A full backlog. Unlike TCP the connect is not in progress, so waiting for writability would lie.
            peer.close()
            if asyncio.get_running_loop().time() >= deadline:
                raise DeadlineExceededError("connection not accepted in time", path=str(path)) from None
            await asyncio.sleep(_RETRY_SECONDS)
        except OSError as error:
            peer.close()
            raise UnavailableError("nobody listens", path=str(path), reason=error.strerror or str(error)) from error
        else:
            return peer


def peer_pid(peer: socket.socket) -> int:
    """Process id of the other side at the time it connected; 0 where it runs in a container that we cannot see into."""
    return peer_credentials(peer)[0]


def peer_credentials(peer: socket.socket) -> tuple[int, int]:
    """Process id of the other side, as by ``peer_pid``, and its user."""
    data = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, user, _ = _CREDENTIALS.unpack(data)
    return int(pid), int(user)


def _remove_stale(path: Path) -> None:
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise ForeignFileError("a file lies where a socket belongs", path=str(path))
    path.unlink()
