"""A node of real processes for tests: its three services, started, killed and restarted one by one.

Threading: one event loop, in the main thread (children start from there).
"""

import asyncio
import sysconfig
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final

import httpx

from blockyard.cli.child_process import ChildProcess, ChildSpec
from blockyard.core.errors import ServerStartError
from blockyard.runtime.node_folder import NodeFolder, ServiceName
from blockyard.runtime.settings import NodeSettings
from blockyard.runtime.settings_source import environment_of
from blockyard.testing.frozen import frozen

WAIT_SECONDS: Final = 20.0
_POLL_SECONDS: Final = 0.01
_SHOWN_LOG: Final = 6_000


async def eventually(condition: Callable[[], Awaitable[bool]], what: str, seconds: float = WAIT_SECONDS) -> None:
    """Wait until an asynchronous condition holds.

    Raises:
        ServerStartError: it did not hold in time; names ``what``.
    """
    try:
        async with asyncio.timeout(seconds):
            while not await condition():
                await asyncio.sleep(_POLL_SECONDS)
    except TimeoutError:
        raise ServerStartError(f"waited in vain: {what}", server="node") from None


class RunningNode:
    """Services of one node."""

    def __init__(self, settings: NodeSettings, http: httpx.AsyncClient, *, wrapper: tuple[str, ...] = ()) -> None:
        """Prepare; nothing runs yet. ``wrapper`` is a command line that runs the one behind it."""
        self.settings = settings
        self.folder = NodeFolder.of(settings)
        self.http = http
        self._wrapper = wrapper
        self._children: dict[ServiceName, ChildProcess] = {}

    @property
    def engine_socket(self) -> Path:
        """Where engines connect."""
        return self.folder.service(ServiceName.BLOCK_MANAGER).socket

    def start(self, *services: ServiceName) -> None:
        """Start services without waiting."""
        self.folder.path.mkdir(parents=True, exist_ok=True)
        for service in services:
            self.folder.service(service).remove_http()
            command = (*self._wrapper, str(Path(sysconfig.get_path("scripts")) / f"blockyard-{service}"))
            log_file = self.folder.path / f"{service}.log"
            spec = ChildSpec(str(service), command, log_file, environment_of(self.settings))
            self._children[service] = ChildProcess(spec)

    def kill(self, *services: ServiceName) -> None:
        """SIGKILL to services; returns when they are gone."""
        for service in services:
            self._children.pop(service).kill()

    def pid(self, service: ServiceName) -> int:
        """Process id of a running service."""
        return self._children[service].pid

    @contextmanager
    def hanging(self, service: ServiceName) -> Iterator[None]:
        """With a service that stands still: its sockets accept, nothing answers."""
        with frozen(self.pid(service)):
            yield

    async def stop(self) -> None:
        """End all services in order."""
        manager = self._children.pop(ServiceName.BLOCK_MANAGER, None)
        if manager is not None:
            await manager.stop_async(WAIT_SECONDS)
        await asyncio.gather(*(child.stop_async(WAIT_SECONDS) for child in self._children.values()))
        self._children.clear()

    def logs(self) -> str:
        """All logs, for failures."""
        files = sorted(self.folder.path.glob("*.log"))
        return "\n".join(f"== {file.name}\n{file.read_text(errors='replace')}" for file in files)

    async def get(self, path: str, service: ServiceName = ServiceName.BLOCK_MANAGER) -> Any:
        """JSON of a page of a service, the block-manager by default; None while it does not answer."""
        url = self.folder.service(service).read_http()
        if url is None:
            return None
        try:
            return (await self.http.get(f"{url}{path}")).json()
        except httpx.HTTPError:
            return None

    async def post(self, path: str, body: object = None) -> httpx.Response:
        """Answer of the block-manager to a POST."""
        url = self.folder.service(ServiceName.BLOCK_MANAGER).read_http()
        return await self.http.post(f"{url}{path}", json=body)

    async def ready(self, *without: str) -> None:
        """Wait until all checks of all running services hold, except those named."""

        async def holds() -> bool:
            pages = [await self.get("/readyz", service) for service in self._children]
            return all(
                page is not None and all(check["ok"] or check["name"] in without for check in page["checks"])
                for page in pages
            )

        await eventually(holds, "the node is ready")

    async def registered(self, tier: str) -> int:
        """Blocks registered in a tier."""
        page = await self.get("/v1/tiers")
        if page is None:
            return -1
        return next(int(entry["registered_blocks"]) for entry in page["tiers"] if entry["tier"] == tier)

    async def holds(self, tier: str, blocks: int) -> None:
        """Wait until a tier holds this many blocks."""

        async def enough() -> bool:
            return await self.registered(tier) == blocks

        await eventually(enough, f"{tier} holds {blocks} blocks")


@asynccontextmanager
async def running_node(
    settings: NodeSettings, *services: ServiceName, wrapper: tuple[str, ...] = ()
) -> AsyncIterator[RunningNode]:
    """A node with these services running, each by ``wrapper`` if given; killed at the end, orderly or not."""
    async with httpx.AsyncClient(timeout=5.0, trust_env=False) as http:
        node = RunningNode(settings, http, wrapper=wrapper)
        try:
            node.start(*services)
            yield node
            await node.stop()
        except BaseException as error:
            error.add_note(node.logs()[-_SHOWN_LOG:])
            raise
        finally:
            node.kill(*tuple(node._children))
