"""Everything of one run: folder, servers, nodes A and B; started and ended as a whole.

Invariants: use as an async context manager; on the way out engines end first, then services, then servers, then the
folder goes; nothing is left, also when the way out is a failed start.
Threading: one event loop, in the main thread.
"""

import asyncio
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self, TypeVar

import httpx
from pydantic import BaseModel, ByteSize

from blockyard.cli.embedded.infrastructure import Infrastructure
from blockyard.cli.node import Node, ServiceAddress
from blockyard.cli.run_folder import RunFolder
from blockyard.cli.together import together
from blockyard.connectors.mock.trace import TRACE_BLOCK_TOKENS
from blockyard.core.errors import NoSpaceError
from blockyard.runtime.node_folder import ServiceName
from blockyard.runtime.settings import (
    G2Section,
    G3Section,
    HttpSection,
    NodeSection,
    NodeSettings,
    UnsafeSection,
)

NODE_NAMES: Final = ("a", "b")
_HTTP_TIMEOUT_SECONDS: Final = 2.0
_SERVER_GRACE_SECONDS: Final = 5.0
_SPARE_BYTES: Final = 256 << 20
_NAMESPACE: Final = "demo"
_Section = TypeVar("_Section", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class ClusterPlan:
    """Sizes of a run."""

    block_bytes: int = 128 << 10
    g1_blocks: int = 192
    g2_blocks: int = 768
    g3_blocks: int = 2_048
    g4_bytes: int = 1 << 30
    """Room kept for the object store; it holds every block once."""
    skip_verification: bool = False

    @property
    def disk_bytes(self) -> int:
        """Disk the run may take."""
        return len(NODE_NAMES) * self.g3_blocks * self.block_bytes + self.g4_bytes


class Cluster:
    """Two nodes and their servers."""

    def __init__(
        self, plan: ClusterPlan, given: NodeSettings, *, keep: bool = False, parent: Path | None = None
    ) -> None:
        """Prepare the run folder; ``given`` holds what the user has set and wins over the plan.

        Raises:
            NoSpaceError: the disk below the folder for temporary files has too little room.
        """
        self.plan = plan
        self._given = given
        self.folder = RunFolder(parent, keep=keep)
        try:
            self._require_space()
        except NoSpaceError:
            self.folder.close()
            raise
        self.infrastructure = Infrastructure(self.folder, given)
        self.nodes: tuple[Node, ...] = ()
        self.http = httpx.AsyncClient(timeout=_HTTP_TIMEOUT_SECONDS, trust_env=False)

    async def __aenter__(self) -> Self:
        """Start everything and wait until it is ready.

        Raises:
            ServerStartError: something did not start; everything is taken down again.
        """
        try:
            await self.infrastructure.start()
            self.nodes = tuple(self._node(name) for name in NODE_NAMES)
            for node in self.nodes:
                node.spawn_services()
            # Engines wait for their node by themselves.
            engines = [node.spawn_engine() for node in self.nodes]
            ready = [node.wait_ready(self.http) for node in self.nodes]
            await together(*ready, *(engine.wait_ready() for engine in engines))
        except BaseException:
            await self._take_down(orderly=False)
            raise
        return self

    async def __aexit__(self, exc_type: type[BaseException] | None, *exc: object) -> None:
        """End everything in order."""
        await self._take_down(orderly=True)

    @property
    def docs(self) -> tuple[str, ...]:
        """Addresses of the REST documentation of the running nodes."""
        managers = (node.address(ServiceName.BLOCK_MANAGER) for node in self.nodes if node.running)
        return tuple(f"{address.url}/docs" for address in managers if address is not None)

    def addresses(self) -> tuple[ServiceAddress, ...]:
        """HTTP addresses of all running services."""
        return tuple(address for node in self.nodes for address in node.addresses())

    async def _take_down(self, *, orderly: bool) -> None:
        # A second cancellation (Ctrl-C again) cuts the orderly way short, never the killing.
        try:
            if orderly:
                await asyncio.gather(*(node.stop() for node in self.nodes))
                await self.infrastructure.stop(_SERVER_GRACE_SECONDS)
            await self.http.aclose()
        finally:
            for node in self.nodes:
                node.kill()
            for server in self.infrastructure.servers:
                server.kill()
            self.folder.close()

    def _node(self, name: str) -> Node:
        plan, given = self.plan, self._given
        g2, g3 = plan.g2_blocks * plan.block_bytes, plan.g3_blocks * plan.block_bytes
        settings = NodeSettings(
            node=NodeSection(
                name=name,
                namespace=_NAMESPACE,
                folder=self.folder.path / name,
                block_bytes=ByteSize(plan.block_bytes),
                block_tokens=TRACE_BLOCK_TOKENS,
            ),
            g2=_merged(G2Section(capacity=ByteSize(g2)), given.g2),
            g3=_merged(G3Section(capacity=ByteSize(g3)), given.g3),
            g4=self.infrastructure.g4(),
            nats=self.infrastructure.nats(),
            redis=self.infrastructure.redis(),
            http=HttpSection(host="127.0.0.1"),
            jobs=given.jobs,
            log=given.log,
            unsafe=UnsafeSection(skip_verification=True) if plan.skip_verification else UnsafeSection(),
        )
        return Node(settings, self.folder.logs, plan.g1_blocks)

    def _require_space(self) -> None:
        free = shutil.disk_usage(self.folder.path).free
        needed = self.plan.disk_bytes + _SPARE_BYTES
        if free < needed:
            raise NoSpaceError("the run needs more disk", folder=str(self.folder.path), free=free, needed=needed)


def _merged(ours: _Section, given: _Section) -> _Section:
    return type(ours).model_validate(ours.model_dump(exclude_unset=True) | given.model_dump(exclude_unset=True))
