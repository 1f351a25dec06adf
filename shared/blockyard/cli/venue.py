"""Venue of a proof run: two nodes that can be killed, restarted, damaged and asked.

Two exist: processes on this machine (``cluster``, ``node``) and a stack that docker compose runs (``compose``).
Invariants: a call that kills returns when the processes are gone; state of a node stays for its next start.
Threading: one event loop.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum, unique
from typing import Protocol

import httpx

from blockyard.cli.engine_link import EngineLink
from blockyard.cli.slab_damage import SlabBlock
from blockyard.runtime.node_folder import ServiceName
from blockyard.runtime.settings import G4Section


@unique
class VenueKind(StrEnum):
    """Where a run takes place."""

    LOCAL = "local"
    """Processes on this machine."""
    COMPOSE = "compose"
    """Containers of docker compose."""


@dataclass(frozen=True, slots=True)
class ServiceAddress:
    """Where a service answers HTTP."""

    node: str
    service: ServiceName
    url: str


class VenueNode(Protocol):
    """One node with its engine."""

    @property
    def name(self) -> str:
        """Its name."""
        ...

    @property
    def running(self) -> bool:
        """Whether any of it lives."""
        ...

    @property
    def engine(self) -> EngineLink | None:
        """Its engine, while it lives."""
        ...

    def addresses(self) -> tuple[ServiceAddress, ...]:
        """Addresses of all services that have one."""
        ...

    async def kill(self) -> None:
        """SIGKILL to everything, engine included."""
        ...

    async def kill_services(self) -> None:
        """SIGKILL to the three services."""
        ...

    async def start_services(self) -> None:
        """Start the three services again without waiting until they are ready."""
        ...

    async def wait_ready(self, http: httpx.AsyncClient, say: Callable[[str], None]) -> None:
        """Wait until all three services say that they are ready; ``say`` is told every few seconds what is missing.

        Raises:
            ServerStartError: one ended or was not ready in time; the message says what it is missing.
        """
        ...

    async def slab_blocks(self) -> list[SlabBlock]:
        """Every block on its disk."""
        ...

    async def flip_slab_byte(self, block: SlabBlock) -> None:
        """Flip one payload byte of a block on its disk."""
        ...


class Venue(Protocol):
    """Nodes A and B, running."""

    @property
    def kind(self) -> VenueKind:
        """What it is made of."""
        ...

    @property
    def place(self) -> str:
        """Where it is, for people."""
        ...

    @property
    def http(self) -> httpx.AsyncClient:
        """Asks the services."""
        ...

    @property
    def nodes(self) -> tuple[VenueNode, ...]:
        """A and B."""
        ...

    def object_store(self) -> G4Section:
        """How the object store is reached from here."""
        ...

    async def check(self) -> None:
        """See that everything that was not ended on purpose still runs, and can write.

        Raises:
            ProcessEndedError: a process ended by itself.
            DiskFullError: a disk filled up.
        """
        ...

    async def disk_bytes(self) -> int:
        """Disk that blocks take, in the slabs and in the object store."""
        ...


def docs_of(nodes: tuple[VenueNode, ...]) -> tuple[tuple[str, str], ...]:
    """Running nodes and the addresses of their REST documentation."""
    return tuple(
        (address.node, f"{address.url}/docs")
        for node in nodes
        if node.running
        for address in node.addresses()
        if address.service is ServiceName.BLOCK_MANAGER
    )
