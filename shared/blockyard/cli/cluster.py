"""Everything of one run: folder, servers, nodes A and B; started and ended as a whole.

Invariants: use as an async context manager; on the way out engines end first, then services, then servers, then the
folder goes; nothing is left, also when the way out is a failed start.
Threading: one event loop, in the main thread.
"""

import asyncio
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self, TypeVar

import httpx
from pydantic import BaseModel, ByteSize

from blockyard.cli.child_process import read_tail
from blockyard.cli.embedded.infrastructure import Infrastructure
from blockyard.cli.node import Node
from blockyard.cli.reachability import named_servers, require_reachable
from blockyard.cli.run_folder import RunFolder
from blockyard.cli.together import together
from blockyard.cli.venue import VenueKind
from blockyard.connectors.mock.trace import TRACE_BLOCK_TOKENS
from blockyard.core.errors import BlockyardError, ConfigurationError, DiskFullError, ProcessEndedError
from blockyard.runtime.settings import (
    G2Section,
    G3Section,
    G4Section,
    HttpSection,
    NodeSection,
    NodeSettings,
    UnsafeSection,
)

NODE_NAMES: Final = ("a", "b")
_HTTP_TIMEOUT_SECONDS: Final = 2.0
_SERVER_GRACE_SECONDS: Final = 5.0
_SPARE_BYTES: Final = 256 << 20
_LEAST_BYTES: Final = 8 << 20
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


class Cluster:
    """Two nodes and their servers."""

    kind: Final = VenueKind.LOCAL

    def __init__(
        self,
        plan: ClusterPlan,
        given: NodeSettings,
        *,
        keep: bool = False,
        parent: Path | None = None,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Prepare the run folder; ``given`` holds what the user has set and wins over the plan.

        ``say`` is told what a start waits for when it takes long.

        Raises:
            ConfigurationError: a folder of the run cannot be made.
            DiskFullError: a disk has too little room.
        """
        self._servers = named_servers(given)
        self.plan = plan
        self._given = given
        self._say = say
        g3_bytes = plan.g3_blocks * plan.block_bytes
        self._g3 = _merged(G3Section(capacity=ByteSize(g3_bytes)), given.g3)
        self.folder = RunFolder(parent, keep=keep)
        try:
            self._slabs = self._slab_folder()
            self._require_space()
        except BlockyardError:
            self.folder.close()
            raise
        self.infrastructure = Infrastructure(self.folder, given)
        self.nodes: tuple[Node, ...] = ()
        self.http = httpx.AsyncClient(timeout=_HTTP_TIMEOUT_SECONDS, trust_env=False)

    async def __aenter__(self) -> Self:
        """Start everything and wait until it is ready.

        Raises:
            UnreachableServerError: a server that the user named takes no connection.
            ServerStartError: something did not start; everything is taken down again.
        """
        try:
            await require_reachable(self._servers)
            await self.infrastructure.start()
            self.nodes = tuple(self.prepare(name) for name in NODE_NAMES)
            for node in self.nodes:
                node.spawn_services()
            # Engines wait for their node by themselves.
            engines = [node.spawn_engine() for node in self.nodes]
            ready = [node.wait_ready(self.http, self._say) for node in self.nodes]
            await together(*ready, *(engine.wait_ready() for engine in engines))
        except BaseException as error:
            full = self._full_disk(error)
            await self._take_down(orderly=False)
            if full is not None:
                raise full from error
            raise
        return self

    async def __aexit__(self, exc_type: type[BaseException] | None, *exc: object) -> None:
        """End everything in order.

        Raises:
            DiskFullError: an error ends the run and a disk is full, which then is the cause of whatever was seen first.
        """
        full = None if exc_type is None else self._full_disk(exc[0])
        await self._take_down(orderly=True)
        if full is not None:
            raise full

    @property
    def place(self) -> str:
        """Its folder."""
        return f"run folder {self.folder.path}"

    def object_store(self) -> G4Section:
        """How the object store is reached."""
        return self.infrastructure.g4()

    async def disk_bytes(self) -> int:
        """Disk that the run takes."""
        return self.folder.disk_bytes()

    async def check(self) -> None:
        """See that the disks have room and nothing has ended by itself.

        Raises:
            DiskFullError: a disk filled up.
            ProcessEndedError: a service or server ended that nobody stopped.
        """
        self.require_room()
        for node in self.nodes:
            if (ended := node.ended_process()) is not None:
                raise ProcessEndedError(ended, node=node.name)
        for server in self.infrastructure.servers:
            if not server.running:
                detail = f"{server.label} ended by itself; end of its log:\n{read_tail(server.log_file)}"
                raise ProcessEndedError(detail, server=server.label)

    async def _take_down(self, *, orderly: bool) -> None:
        # A second cancellation (Ctrl-C again) cuts the orderly way short, never the killing.
        try:
            if orderly:
                await asyncio.gather(*(node.stop() for node in self.nodes))
                if self.folder.keep:
                    # Otherwise their data is thrown away: an orderly end would only take longer.
                    await self.infrastructure.stop(_SERVER_GRACE_SECONDS)
            await self.http.aclose()
        finally:
            for node in self.nodes:
                node.kill_now()
            for server in self.infrastructure.servers:
                server.kill()
            self.folder.close()

    def prepare(self, name: str) -> Node:
        """A node of this run; nothing of it is started yet."""
        plan, given = self.plan, self._given
        g2 = plan.g2_blocks * plan.block_bytes
        settings = NodeSettings(
            node=NodeSection(
                name=name,
                namespace=_NAMESPACE,
                folder=self.folder.path / name,
                block_bytes=ByteSize(plan.block_bytes),
                block_tokens=TRACE_BLOCK_TOKENS,
            ),
            g2=_merged(G2Section(capacity=ByteSize(g2)), given.g2),
            g3=_merged(self._g3, G3Section(folder=self._slabs / name)) if self._slabs else self._g3,
            g4=self.infrastructure.g4(),
            nats=self.infrastructure.nats(),
            redis=self.infrastructure.redis(),
            http=HttpSection(host="127.0.0.1"),
            jobs=given.jobs,
            log=given.log,
            tracing=given.tracing,
            unsafe=UnsafeSection(skip_verification=True) if plan.skip_verification else UnsafeSection(),
        )
        return Node(settings, self.folder.logs, plan.g1_blocks)

    def _slab_folder(self) -> Path | None:
        """A folder of this run alone where the user wants the slab files; None where they lie in the run folder."""
        if self._g3.folder is None:
            return None
        folder = self._g3.folder.absolute() / self.folder.path.name
        try:
            folder.mkdir(mode=0o700, parents=True)
        except OSError as error:
            reason = error.strerror or str(error)
            raise ConfigurationError(
                "cannot make a folder", key="g3.folder", folder=str(folder), reason=reason
            ) from error
        self.folder.add_outside(folder)
        return folder

    def require_room(self) -> None:
        """Look at the disks of a run.

        Raises:
            DiskFullError: one is as good as full.
        """
        for folder, key in self._places():
            free = shutil.disk_usage(folder).free
            if free < _LEAST_BYTES:
                raise DiskFullError("the disk filled up during the run", key=key, folder=str(folder), free_bytes=free)

    def _places(self) -> tuple[tuple[Path, str], ...]:
        """Folders of the run and the settings that place them."""
        own = (self.folder.path, "TMPDIR")
        return (own,) if self._slabs is None else (own, (self._slabs, "g3.folder (BLOCKYARD_G3__FOLDER)"))

    def _full_disk(self, error: object) -> DiskFullError | None:
        if isinstance(error, BlockyardError | OSError):
            try:
                self.require_room()
            except DiskFullError as full:
                return full
        return None

    def _require_space(self) -> None:
        slabs = len(NODE_NAMES) * int(self._g3.capacity) if self._g3.enabled else 0
        places = self._places()
        needed = dict.fromkeys(places, 0)
        needed[places[0]] += self.plan.g4_bytes + _SPARE_BYTES
        needed[places[-1]] += slabs
        for (folder, key), wanted in needed.items():
            free = shutil.disk_usage(folder).free
            if free < wanted:
                raise DiskFullError(
                    "the run needs more room on a disk",
                    key=key,
                    folder=str(folder.parent),
                    free_bytes=free,
                    needed_bytes=wanted,
                )


def ignored_settings(given: NodeSettings) -> list[str]:
    """What the user has set and a run of two nodes chooses itself."""
    sections = {"node": given.node, "http": given.http, "unsafe": given.unsafe}
    return sorted(f"{name}.{field}" for name, section in sections.items() for field in section.model_fields_set)


def _merged(ours: _Section, given: _Section) -> _Section:
    return type(ours).model_validate(ours.model_dump(exclude_unset=True) | given.model_dump(exclude_unset=True))
