"""The three servers of a run: embedded ones, or those whose address the user has set.

``BLOCKYARD_NATS__URL``, ``BLOCKYARD_REDIS__URL`` and ``BLOCKYARD_G4__ENDPOINT_URL`` (or the settings file) name servers
of your own; what is not named is started from the wheels.
Invariants: all servers start at the same time; after :meth:`Infrastructure.stop` none of the embedded ones runs.
Threading: the loop's thread, which must be the main thread.
"""

import asyncio
import time
from typing import Final, TypeVar
from urllib.parse import urlsplit

from pydantic import SecretStr

from blockyard.cli.child_process import read_tail
from blockyard.cli.embedded.nats import NatsServer
from blockyard.cli.embedded.seaweedfs import SeaweedfsServer
from blockyard.cli.embedded.server import START_TIMEOUT_SECONDS, EmbeddedServer
from blockyard.cli.embedded.valkey import ValkeyServer
from blockyard.cli.run_folder import RunFolder
from blockyard.cli.together import together
from blockyard.core.errors import ServerStartError
from blockyard.runtime.settings import G4Section, NatsSection, NodeSettings, RedisSection

_POLL_SECONDS: Final = 0.01
_Section = TypeVar("_Section", NatsSection, RedisSection, G4Section)


class Infrastructure:
    """Event bus, prefix index and object store of a run."""

    def __init__(self, run_folder: RunFolder, given: NodeSettings) -> None:
        """Prepare; ``given`` holds what the user has set."""
        self._given = given
        self._nats = None if "url" in given.nats.model_fields_set else NatsServer(run_folder)
        self._valkey = None if "url" in given.redis.model_fields_set else ValkeyServer(run_folder)
        self._seaweedfs = None if "endpoint_url" in given.g4.model_fields_set else SeaweedfsServer(run_folder)

    @property
    def servers(self) -> tuple[EmbeddedServer, ...]:
        """Those that run here."""
        candidates = (self._nats, self._valkey, self._seaweedfs)
        return tuple(server for server in candidates if server is not None)

    async def start(self) -> None:
        """Start all and wait until all serve.

        Raises:
            ServerStartError: one of them did not.
        """
        for server in self.servers:
            server.spawn()
        await together(*(_ready(server) for server in self.servers))

    async def stop(self, grace_seconds: float) -> None:
        """End the embedded servers in order, by force after the grace time."""
        await asyncio.gather(*(server.stop_async(grace_seconds) for server in self.servers))

    def nats(self) -> NatsSection:
        """Settings for reaching the event bus."""
        if self._nats is None:
            return self._given.nats
        return _with(self._given.nats, url=self._nats.url)

    @property
    def nats_place(self) -> str:
        """Address of the event bus, without user and password."""
        address = urlsplit(self.nats().url.get_secret_value())
        return f"{address.scheme}://{address.netloc.rpartition('@')[2]}"

    def redis(self) -> RedisSection:
        """Settings for reaching the prefix index."""
        if self._valkey is None:
            return self._given.redis
        return _with(self._given.redis, url=SecretStr(self._valkey.url))

    def g4(self) -> G4Section:
        """Settings for reaching the object store."""
        if self._seaweedfs is None:
            return self._given.g4
        return _with(
            self._given.g4,
            endpoint_url=self._seaweedfs.url,
            access_key=SecretStr(self._seaweedfs.access_key),
            secret_key=SecretStr(self._seaweedfs.secret_key),
        )


async def _ready(server: EmbeddedServer) -> None:
    deadline = time.monotonic() + START_TIMEOUT_SECONDS
    while not server.poll_ready():
        if time.monotonic() > deadline:
            raise ServerStartError(
                f"not ready in time; end of its log:\n{read_tail(server.log_file)}", server=server.label
            )
        await asyncio.sleep(_POLL_SECONDS)


def _with(section: _Section, **values: object) -> _Section:
    return type(section).model_validate(section.model_dump(exclude_unset=True) | values)
