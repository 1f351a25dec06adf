"""Whether servers that the user named for a run take connections, before anything waits for them in silence.

Only the connection is tried: what the server speaks, and whether it knows the credentials, is for the services to find
out. A server that is just starting gets a few seconds.
Threading: one event loop.
"""

import asyncio
import contextlib
from dataclasses import dataclass
from typing import Final
from urllib.parse import SplitResult, unquote, urlsplit

from blockyard.cli.failures import UnreachableServerError
from blockyard.runtime.settings import NodeSettings

_LIMIT_SECONDS: Final = 3.0
_PAUSE_SECONDS: Final = 0.2
_DEFAULT_PORTS: Final = {"http": 80, "https": 443, "redis": 6379, "rediss": 6379}
_NATS_PORT: Final = 4222


@dataclass(frozen=True, slots=True)
class NamedServer:
    """A server of the user's own."""

    what: str
    setting: str
    variable: str
    address: SplitResult

    @property
    def place(self) -> str:
        """Host and port, or path, without user and password."""
        if self.address.scheme == "unix":
            return unquote(self.address.path)
        return f"{self._host}:{self._port}"

    @property
    def _host(self) -> str:
        return self.address.hostname or "localhost"

    @property
    def _port(self) -> int:
        return self.address.port or _DEFAULT_PORTS.get(self.address.scheme, _NATS_PORT)

    async def connect(self) -> None:
        """Connect and close."""
        if self.address.scheme == "unix":
            _, writer = await asyncio.open_unix_connection(self.place)
        else:
            _, writer = await asyncio.open_connection(self._host, self._port)
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


def named_servers(given: NodeSettings) -> tuple[NamedServer, ...]:
    """Servers that the user named and a run uses."""
    found = []
    if "url" in given.nats.model_fields_set:
        found.append(_named("NATS", "nats.url", given.nats.url.get_secret_value()))
    if given.g4.enabled and "url" in given.redis.model_fields_set:
        found.append(_named("Redis", "redis.url", given.redis.url.get_secret_value()))
    if given.g4.enabled and "endpoint_url" in given.g4.model_fields_set:
        found.append(_named("the object store", "g4.endpoint_url", given.g4.endpoint_url))
    return tuple(found)


async def require_reachable(servers: tuple[NamedServer, ...], limit_seconds: float = _LIMIT_SECONDS) -> None:
    """Wait a few seconds until all take connections.

    Raises:
        UnreachableServerError: some do not; the message names each with its setting.
    """
    reasons = await asyncio.gather(*(_reason(server, limit_seconds) for server in servers))
    missing = [(server, reason) for server, reason in zip(servers, reasons, strict=True) if reason]
    if missing:
        sentences = [f"{server.what} does not answer at {server.place}: {reason}" for server, reason in missing]
        settings = ", ".join(f"{server.setting} ({server.variable})" for server, _ in missing)
        raise UnreachableServerError("; ".join(sentences), key=settings)


async def _reason(server: NamedServer, limit_seconds: float) -> str:
    """Why it takes no connection; empty when it does."""
    reason = "no answer"
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(limit_seconds):
            while True:
                try:
                    await server.connect()
                except OSError as error:
                    reason = str(error)
                    await asyncio.sleep(_PAUSE_SECONDS)
                else:
                    return ""
    return reason


def _named(what: str, setting: str, url: str) -> NamedServer:
    # The settings hold well-formed addresses only.
    return NamedServer(what, setting, "BLOCKYARD_" + setting.replace(".", "__").upper(), urlsplit(url))
