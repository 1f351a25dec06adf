"""One node of a run: its three services and its demo engine as child processes.

Invariants: services start with one complete set of settings through their environment; a killed node is fully gone
(every process collected) before the call returns; state in the node folder stays for the next start.
Threading: one event loop, in the main thread.
"""

import asyncio
import sysconfig
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

import httpx

from blockyard.cli.child_process import ChildProcess, ChildSpec
from blockyard.cli.engine_process import EngineProcess, EngineSpec
from blockyard.cli.readiness import missing_at, wait_until_ready
from blockyard.cli.slab_damage import SlabBlock, flip_slab_byte, slab_blocks
from blockyard.cli.venue import ServiceAddress
from blockyard.core.errors import ServerStartError
from blockyard.runtime.node_folder import NodeFolder, ServiceName
from blockyard.runtime.settings import NodeSettings
from blockyard.runtime.settings_source import environment_of

_STOP_SECONDS: Final = 10.0


class Node:
    """Processes of one node."""

    def __init__(self, settings: NodeSettings, logs: Path, engine_blocks: int) -> None:
        """Prepare; nothing is started yet."""
        self.name = settings.node.name
        self.settings = settings
        self.engine: EngineProcess | None = None
        self._logs = logs
        self._engine_blocks = engine_blocks
        self._folder = NodeFolder.of(settings)
        self._services: dict[ServiceName, ChildProcess] = {}

    @property
    def engine_socket(self) -> Path:
        """Where engines connect."""
        return self._folder.service(ServiceName.BLOCK_MANAGER).socket

    @property
    def slabs(self) -> Path:
        """Folder of its slab files."""
        return self._folder.slabs(self.settings)

    @property
    def running(self) -> bool:
        """Whether any of its processes lives."""
        return bool(self._services) or self.engine is not None

    # --- start --------------------------------------------------------------------------------------------------------
    async def start_services(self) -> None:
        """Start the three services without waiting."""
        self.spawn_services()

    def spawn_services(self) -> None:
        """As :meth:`start_services`."""
        self._folder.identify()
        environment = environment_of(self.settings)
        for service in ServiceName:
            # An address of an earlier life would be taken for this one's.
            self._folder.service(service).remove_http()
            command = (str(Path(sysconfig.get_path("scripts")) / f"blockyard-{service}"),)
            log_file = self._logs / f"{self.name}-{service}.log"
            self._services[service] = ChildProcess(ChildSpec(f"{self.name} {service}", command, log_file, environment))

    def spawn_engine(self) -> EngineProcess:
        """Start the demo engine without waiting."""
        name = f"engine-{self.name}"
        self.engine = EngineProcess(
            EngineSpec(
                name=name,
                socket=self.engine_socket,
                blocks=self._engine_blocks,
                block_bytes=int(self.settings.node.block_bytes),
                log_file=self._logs / f"{name}.log",
            )
        )
        return self.engine

    async def wait_ready(self, http: httpx.AsyncClient, say: Callable[[str], None]) -> None:
        """Wait until all three services say that they are ready; ``say`` is told every few seconds what is missing.

        Raises:
            ServerStartError: one ended or was not ready in time; the message says what it is missing.
        """
        questions = {f"{self.name} {service}": partial(self._missing, http, service) for service in ServiceName}
        await wait_until_ready(questions, say, self._log_tail)

    def address(self, service: ServiceName) -> ServiceAddress | None:
        """HTTP address of a running service, once it has written it."""
        url = self._folder.service(service).read_http()
        return None if url is None else ServiceAddress(self.name, service, url.rstrip("/"))

    def addresses(self) -> tuple[ServiceAddress, ...]:
        """Addresses of all services that have one."""
        found = (self.address(service) for service in self._services)
        return tuple(address for address in found if address is not None)

    # --- end ----------------------------------------------------------------------------------------------------------
    async def stop(self) -> None:
        """End engine, then block-manager, then workers, in order."""
        if self.engine is not None:
            await self.engine.stop()
            self.engine = None
        if (manager := self._services.get(ServiceName.BLOCK_MANAGER)) is not None:
            await manager.stop_async(_STOP_SECONDS)
        await asyncio.gather(*(child.stop_async(_STOP_SECONDS) for child in self._services.values()))
        self._services.clear()

    async def kill_services(self) -> None:
        """SIGKILL to the three services."""
        self._kill_services()

    async def kill(self) -> None:
        """SIGKILL to everything, engine first so that it has no chance to say goodbye."""
        self.kill_now()

    def kill_now(self) -> None:
        """As :meth:`kill`."""
        if self.engine is not None:
            self.engine.kill()
            self.engine = None
        self._kill_services()

    def _kill_services(self) -> None:
        for child in self._services.values():
            child.kill()
        self._services.clear()

    def _log_tail(self, name: str) -> str:
        return next(child.log_tail() for child in self._services.values() if child.spec.name == name)

    def ended_process(self) -> str | None:
        """Name of a service that ended by itself, with the end of its log; None while all run."""
        for child in self._services.values():
            if child.exit_code is not None:
                return f"{child.spec.name} ended with status {child.exit_code}; end of its log:\n{child.log_tail()}"
        return None

    # --- disk ---------------------------------------------------------------------------------------------------------
    async def slab_blocks(self) -> list[SlabBlock]:
        """Every block on its disk."""
        return slab_blocks(self.slabs)

    async def flip_slab_byte(self, block: SlabBlock) -> None:
        """Flip one payload byte of a block on its disk."""
        flip_slab_byte(block)

    async def _missing(self, http: httpx.AsyncClient, service: ServiceName) -> str:
        """What keeps a service from being ready; empty when it is."""
        child = self._services[service]
        if child.exit_code is not None:
            raise ServerStartError(
                f"it ended while starting; end of its log:\n{child.log_tail()}",
                server=child.spec.name,
                exit=child.exit_code,
            )
        if (address := self.address(service)) is None:
            return "no HTTP address yet"
        return await missing_at(http, address.url)
