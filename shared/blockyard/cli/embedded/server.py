"""Life of one embedded server: start, ready, stop, kill, restart on the same port and data.

States: ``new -> starting -> ready -> stopped -> starting ...``. While starting for the first time, a port taken by
somebody else leads to another choice; afterwards the ports stay, so that clients find a restarted server.
Threading: main thread only (see :mod:`blockyard.cli.child_process`).
"""

import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import ClassVar, Final, Self

from blockyard.cli import janitor
from blockyard.cli.child_process import DEFAULT_GRACE_SECONDS, ChildProcess, ChildSpec, read_tail
from blockyard.cli.embedded.ports import free_ports, listening
from blockyard.cli.run_folder import RunFolder
from blockyard.core.errors import ServerStartError

START_TIMEOUT_SECONDS: Final = 30.0
_POLL_SECONDS: Final = 0.005
_PORT_ATTEMPTS: Final = 5
_PORT_TAKEN_WORDS: Final = ("address already in use", "port allocation failed")


class EmbeddedServer(ABC):
    """A server process of this run, reachable on loopback."""

    name: ClassVar[str]
    port_count: ClassVar[int] = 1

    def __init__(self, run_folder: RunFolder, name: str | None = None) -> None:
        """Prepare; nothing is started yet. ``name`` sets two servers of one kind apart."""
        self.label = name or self.name
        self.run_folder = run_folder
        self.data_folder = run_folder.folder(self.label)
        self.log_file = run_folder.logs / f"{self.label}.log"
        self.ports: tuple[int, ...] = ()
        self._child: ChildProcess | None = None
        self._was_ready = False
        self._port_attempts = 0

    # --- what a kind of server says about itself --------------------------------------------------------------------
    @abstractmethod
    def command(self) -> tuple[str, ...]:
        """Program and arguments for :attr:`ports`; writes configuration files as needed.

        It starts in :attr:`data_folder`, and names what lies there by relative paths: servers read separators, quotes
        and escapes into absolute ones, each in its own way.
        """

    @abstractmethod
    def answers(self) -> bool:
        """True when the server serves requests; may take some 100 ms."""

    def environment(self) -> dict[str, str]:
        """Variables for the process."""
        return {}

    def stray_files(self) -> tuple[Path, ...]:
        """Files the server makes outside its folder, to be removed after it."""
        return ()

    # --- life -------------------------------------------------------------------------------------------------------
    @property
    def pid(self) -> int:
        """Process id while running.

        Raises:
            ServerStartError: it does not run.
        """
        if self._child is None:
            raise ServerStartError("not running", server=self.label)
        return self._child.pid

    @property
    def running(self) -> bool:
        """True between a start and the end of the process."""
        return self._child is not None and self._child.exit_code is None

    def spawn(self) -> None:
        """Start the process without waiting."""
        if not self.ports:
            self.ports = free_ports(self.port_count)
        self.run_folder.add_stray(*self.stray_files())
        self._child = ChildProcess(
            ChildSpec(self.label, self.command(), self.log_file, self.environment(), folder=self.data_folder)
        )

    def poll_ready(self) -> bool:
        """One look at a starting server; starts it again with other ports when one was taken.

        Raises:
            ServerStartError: it ended; the message holds the end of its log.
        """
        child = self._child
        if child is None:
            raise ServerStartError("not started", server=self.label)
        if child.exit_code is not None:
            self._again_with_other_ports(child)
            return False
        if not self._was_ready and self.answers() and self._listens(child.pid):
            self._was_ready = True
        return self._was_ready and self.running

    def start(self, timeout_seconds: float = START_TIMEOUT_SECONDS) -> None:
        """Start and wait until it serves.

        Raises:
            ServerStartError: it ended or did not get ready in time.
        """
        self.spawn()
        deadline = time.monotonic() + timeout_seconds
        while not self.poll_ready():
            if time.monotonic() > deadline:
                self.kill()
                raise ServerStartError(
                    f"not ready in time; end of its log:\n{read_tail(self.log_file)}",
                    server=self.label,
                    seconds=timeout_seconds,
                )
            time.sleep(_POLL_SECONDS)

    def stop(self, grace_seconds: float = DEFAULT_GRACE_SECONDS) -> None:
        """End it in order; data and ports are kept for another start."""
        if self._child is not None:
            self._child.stop(grace_seconds)
            self._forget()

    async def stop_async(self, grace_seconds: float = DEFAULT_GRACE_SECONDS) -> None:
        """As :meth:`stop`, without blocking the loop."""
        if self._child is not None:
            await self._child.stop_async(grace_seconds)
            self._forget()

    def kill(self) -> None:
        """End it with SIGKILL; data and ports are kept for another start."""
        if self._child is not None:
            self._child.kill()
            self._forget()

    def restart(self) -> None:
        """Start again on the same ports and data, and wait until it serves."""
        self.stop()
        self.start()

    def _listens(self, pid: int) -> bool:
        """Whether the answers come from the own process, and not from somebody who was faster on these ports."""
        return {port for _, port in listening(pid)}.issuperset(self.ports)

    def _forget(self) -> None:
        self._child = None
        self._was_ready = False
        for file in self.stray_files():
            janitor.remove(str(file))

    def _again_with_other_ports(self, child: ChildProcess) -> None:
        tail = child.log_tail()
        taken = any(word in tail.lower() for word in _PORT_TAKEN_WORDS)
        self._port_attempts += 1
        if not taken or self._port_attempts >= _PORT_ATTEMPTS:
            raise ServerStartError(
                f"it ended while starting; end of its log:\n{tail}", server=self.label, exit=child.exit_code or 0
            )
        self.ports = free_ports(self.port_count)
        self.log_file.unlink(missing_ok=True)
        self.spawn()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()
