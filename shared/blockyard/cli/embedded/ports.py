"""Choosing loopback ports for servers that cannot choose themselves, or must keep their port over a restart.

Ports come from below the range that the system gives to outgoing connections: otherwise a client that reconnects to a
stopped server can be given that very port as its own, connect to itself, and keep the server from coming back.
A chosen port may be taken by somebody else before the server binds it; the server then tries again with others. Since
that somebody may be a server of the same kind, of another run, an answer on the port proves little: whether the own
process listens there is looked up.
"""

import contextlib
import os
import random
import socket
from pathlib import Path
from typing import Final

from blockyard.core.errors import ServerStartError

LOOPBACK: Final = "127.0.0.1"
_FIRST_PORT: Final = 20_000
_DEFAULT_LAST_PORT: Final = 32_767
_MIN_PORTS: Final = 2_000
_ATTEMPTS: Final = 200
_LOCAL_COLUMN, _STATE_COLUMN, _INODE_COLUMN = 1, 3, 9
_LISTENING: Final = "0A"
_RANGE_FILE: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")


def free_ports(count: int) -> tuple[int, ...]:
    """``count`` different ports on which nobody listens now.

    Raises:
        ServerStartError: too few were found.
    """
    held: list[socket.socket] = []
    try:
        for _ in range(_ATTEMPTS):
            if len(held) == count:
                break
            if (found := _try_port(random.randint(_FIRST_PORT, _last_port()))) is not None:
                held.append(found)
        if len(held) < count:
            raise ServerStartError("no free loopback ports", server="ports", needed=count, found=len(held))
        return tuple(int(item.getsockname()[1]) for item in held)
    finally:
        for item in held:
            item.close()


def listening(pid: int) -> set[tuple[str, int]]:
    """Addresses (as the kernel writes them, in hexadecimal) and ports on which a process listens for TCP."""
    inodes = _socket_inodes(pid)
    found: set[tuple[str, int]] = set()
    for table in ("tcp", "tcp6"):
        try:
            rows = Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]
        except OSError:
            continue
        for row in rows:
            columns = row.split()
            if columns[_STATE_COLUMN] == _LISTENING and columns[_INODE_COLUMN] in inodes:
                address, port = columns[_LOCAL_COLUMN].split(":")
                found.add((address, int(port, 16)))
    return found


def _socket_inodes(pid: int) -> set[str]:
    inodes: set[str] = set()
    # The process may end, or close descriptors, while it is looked at.
    with contextlib.suppress(OSError):
        for entry in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                target = os.readlink(f"/proc/{pid}/fd/{entry}")
                if target.startswith("socket:["):
                    inodes.add(target[len("socket:[") : -1])
    return inodes


def _try_port(port: int) -> socket.socket | None:
    candidate = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        candidate.bind((LOOPBACK, port))
    except OSError:
        candidate.close()
        return None
    return candidate


def _last_port() -> int:
    try:
        ephemeral_start = int(_RANGE_FILE.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return _DEFAULT_LAST_PORT
    last = ephemeral_start - 1
    return last if last >= _FIRST_PORT + _MIN_PORTS else _DEFAULT_LAST_PORT
