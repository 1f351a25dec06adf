"""Containers of the chart as processes of this machine: started, watched through their probes, killed at the end.

Threading: one event loop, in the main thread (children start from there).
"""

import asyncio
import os
import shutil
import sysconfig
from pathlib import Path
from typing import Final

import httpx
from tests.charts.container_process import ContainerProcess

from blockyard.cli.child_process import ChildProcess, ChildSpec
from blockyard.core.errors import ServerStartError

START_SECONDS: Final = 60.0
"""Four processes that start at once share what a busy machine has left."""
_POLL_SECONDS: Final = 0.02
_SCRIPTS: Final = sysconfig.get_path("scripts")


class RunningContainer:
    """One container."""

    def __init__(self, name: str, process: ContainerProcess, folder: Path, http: httpx.AsyncClient) -> None:
        """Start it now."""
        self.name = name
        self.process = process
        self.http = http
        self.log_file = folder / f"{name}.log"
        program, *arguments = process.command
        # The programs of the images are installed here, in another place than there.
        environment = {key: value for key, value in process.environment.items() if key != "PATH"}
        found = shutil.which(program, path=os.pathsep.join((_SCRIPTS, os.environ["PATH"])))
        command = (found or program, *arguments)
        self.child = ChildProcess(ChildSpec(name, command, self.log_file, environment, folder=folder))

    async def status(self, probe: str) -> int:
        """What a probe gets; 0 while nobody answers."""
        return await self.ask(self.process.probes[probe])

    async def ask(self, place: str) -> int:
        """Status of ``port/path``; 0 while nobody answers."""
        try:
            return (await self.http.get(f"http://127.0.0.1:{place}")).status_code
        except httpx.TransportError:
            return 0

    async def succeeds(self, probe: str) -> None:
        """Wait until a probe is content, as the kubelet does.

        Raises:
            ServerStartError: it was not in time, or the process has ended.
        """
        try:
            async with asyncio.timeout(START_SECONDS):
                while (status := await self.status(probe)) != httpx.codes.OK:
                    if self.child.exit_code is not None:
                        raise self._failed(f"ended with {self.child.exit_code}")
                    await asyncio.sleep(_POLL_SECONDS)
        except TimeoutError:
            raise self._failed(f"{probe} {self.process.probes[probe]} gets {status}") from None

    def _failed(self, what: str) -> ServerStartError:
        return ServerStartError(f"{what}; its log:\n{self.log_file.read_text()[-3_000:]}", server=self.name)
