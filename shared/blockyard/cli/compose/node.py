"""One node of a compose stack: its three services and its engine as containers.

Invariants: containers are killed and started, never made anew or removed; a service that was ended on purpose is not
among the expected ones.
Threading: one event loop.
"""

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import Final, final

import httpx
import msgspec

from blockyard.cli.compose.engine_connection import EngineConnection
from blockyard.cli.compose.project import ComposeProject
from blockyard.cli.failures import ComposeError
from blockyard.cli.readiness import missing_at, wait_until_ready
from blockyard.cli.slab_damage import SlabBlock
from blockyard.cli.venue import ServiceAddress
from blockyard.runtime.node_folder import ServiceName

ENGINE_PORT: Final = 8900
"""Ports inside the containers, as the images set them."""
SERVICE_PORTS: Final = {
    ServiceName.BLOCK_MANAGER: 8801,
    ServiceName.OFFLOAD_WORKER: 8802,
    ServiceName.REMOTE_TIER: 8803,
}
_GONE_SECONDS: Final = 15.0
_POLL_SECONDS: Final = 0.2
_SLABS: Final = ("python", "-m", "blockyard.cli.slab_damage")


@final
class ComposeNode:
    """Containers of one node."""

    def __init__(self, name: str, project: ComposeProject, expected: set[str]) -> None:
        """The node ``name`` of a running project; ``expected`` holds the services that should run."""
        self.name = name
        self.engine: EngineConnection | None = None
        self._project = project
        self._expected = expected
        self._addresses: tuple[ServiceAddress, ...] = ()
        self._slab_bytes = 0

    @property
    def services(self) -> tuple[str, ...]:
        """Names of its three services in the compose files."""
        return tuple(self._service(service) for service in ServiceName)

    @property
    def engine_service(self) -> str:
        """Name of its engine in the compose files."""
        return f"engine-{self.name}"

    @property
    def running(self) -> bool:
        """Whether any of it should run."""
        return not self._expected.isdisjoint((*self.services, self.engine_service))

    def addresses(self) -> tuple[ServiceAddress, ...]:
        """Addresses of its services, while they should run."""
        return tuple(address for address in self._addresses if self._service(address.service) in self._expected)

    async def find(self) -> None:
        """Ask for the addresses of its services.

        Raises:
            ConfigurationError: one is not published.
        """
        found = []
        for service, port in SERVICE_PORTS.items():
            place = await self._project.place(self._service(service), port)
            found.append(ServiceAddress(self.name, service, f"http://{place}"))
        self._addresses = tuple(found)

    async def connect_engine(self) -> None:
        """Become the controller of its engine.

        Raises:
            ConfigurationError: its port is not published.
            DeadlineExceededError: it does not answer.
        """
        place = await self._project.place(self.engine_service, ENGINE_PORT)
        engine = EngineConnection(self.engine_service, place)
        await engine.connect()
        self.engine = engine

    async def wait_ready(self, http: httpx.AsyncClient, say: Callable[[str], None]) -> None:
        """Wait until all three services say that they are ready; ``say`` is told every few seconds what is missing.

        Raises:
            ServerStartError: one was not ready in time; the message says what it is missing.
        """
        questions = {
            self._service(address.service): partial(missing_at, http, address.url) for address in self._addresses
        }
        await wait_until_ready(questions, say)

    # --- end and start ------------------------------------------------------------------------------------------------
    async def kill(self) -> None:
        """SIGKILL to everything, engine included."""
        self._slab_bytes = await self.slab_bytes()
        await self._kill(self.engine_service, *self.services)
        if self.engine is not None:
            self.engine.close()
            self.engine = None

    async def kill_services(self) -> None:
        """SIGKILL to the three services."""
        await self._kill(*self.services)

    async def start_services(self) -> None:
        """Start the containers of the three services again."""
        kept = ("--no-deps", "--no-recreate", "--no-build", "--pull", "never")
        await self._project.command.run("up", "--detach", *kept, *self.services)
        self._expected.update(self.services)
        # The system may have chosen other ports.
        await self.find()

    async def _kill(self, *services: str) -> None:
        self._expected.difference_update(services)
        await self._project.command.run("kill", "--signal", "KILL", *services)
        deadline = time.monotonic() + _GONE_SECONDS
        while left := [
            name for name, state in (await self._project.states()).items() if state.running and name in services
        ]:
            if time.monotonic() > deadline:
                raise ComposeError(f"these were killed and still run: {', '.join(left)}.")
            await asyncio.sleep(_POLL_SECONDS)

    # --- disk ---------------------------------------------------------------------------------------------------------
    async def slab_blocks(self) -> list[SlabBlock]:
        """Every block on its disk."""
        text = await self._in_worker("list")
        try:
            return msgspec.json.Decoder(SlabBlock).decode_lines(text)
        except msgspec.MsgspecError as error:
            raise self._no_answer("list", error) from None

    async def flip_slab_byte(self, block: SlabBlock) -> None:
        """Flip one payload byte of a block on its disk."""
        await self._in_worker("flip", msgspec.json.encode(block).decode())

    async def slab_bytes(self) -> int:
        """Disk that its slab files take, or took when it was killed."""
        if self._service(ServiceName.OFFLOAD_WORKER) not in self._expected:
            return self._slab_bytes
        text = await self._in_worker("usage")
        try:
            return int(text)
        except ValueError as error:
            raise self._no_answer("usage", error) from None

    async def _in_worker(self, *order: str) -> str:
        """Only containers reach the volume of the slab files."""
        return await self._project.command.run(*self._worker_order(*order))

    def _worker_order(self, *order: str) -> tuple[str, ...]:
        return ("exec", "-T", self._service(ServiceName.OFFLOAD_WORKER), *_SLABS, *order)

    def _no_answer(self, order: str, error: Exception) -> ComposeError:
        line = self._project.command.line(*self._worker_order(order))
        return ComposeError(f"{line} wrote something else than it should: {error}.")

    def _service(self, service: ServiceName) -> str:
        return f"{service}-{self.name}"
