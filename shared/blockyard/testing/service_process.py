"""A real process of one service for tests: started, stopped and killed on one node folder.

Threading: one event loop, in the main thread (children start from there).
"""

import signal
import sysconfig
from pathlib import Path
from typing import Final

import httpx

from blockyard.cli.child_process import ChildProcess, ChildSpec
from blockyard.core.errors import ServerStartError
from blockyard.runtime.node_folder import NodeFolder, ServiceName
from blockyard.runtime.settings import NodeSettings
from blockyard.runtime.settings_source import environment_of

START_SECONDS: Final = 20.0


class ServiceProcess:
    """One service of a node; ``kill`` it at the end."""

    def __init__(self, service: ServiceName, settings: NodeSettings) -> None:
        """Prepare; nothing runs yet."""
        self.service: Final = service
        self.settings = settings
        self.folder = NodeFolder.of(settings).service(service)
        self._child: ChildProcess | None = None

    def start(self) -> None:
        """Start it without waiting; a worker is there when an attach succeeds."""
        program = str(Path(sysconfig.get_path("scripts")) / f"blockyard-{self.service}")
        node = self.folder.path.parent
        node.mkdir(parents=True, exist_ok=True)
        log_file = node / f"{self.service}.log"
        self._child = ChildProcess(ChildSpec(self.service, (program,), log_file, environment_of(self.settings)))

    @property
    def child(self) -> ChildProcess:
        """The running process.

        Raises:
            ServerStartError: it was not started.
        """
        if self._child is None:
            raise ServerStartError("the service was not started", server=self.service)
        return self._child

    @property
    def log(self) -> str:
        """Everything it has written so far."""
        return self.child.spec.log_file.read_text()

    def kill(self) -> None:
        """End it without a chance to finish anything (SIGKILL); harmless when repeated."""
        if self._child is not None:
            self._child.kill()

    async def stop(self) -> int | None:
        """Ask it to stop (SIGTERM); its exit code.

        Raises:
            ServerStartError: it does not run, or did not stop in time.
        """
        self.child.send(signal.SIGTERM)
        if not await self.child.wait_async(START_SECONDS):
            raise ServerStartError(f"the service does not stop: {self.child.log_tail()}", server=self.service)
        return self.child.exit_code

    async def page(self, path: str) -> httpx.Response:
        """One of its HTTP pages."""
        async with httpx.AsyncClient() as client:
            return await client.get(f"{self.folder.read_http()}{path}")
