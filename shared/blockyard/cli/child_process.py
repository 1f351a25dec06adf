"""A child process that never outlives the command: own session, dies with its parent, logs to a file.

Invariants: the kernel kills the child when the parent ends in any way (``PR_SET_PDEATHSIG``), SIGKILL included; a
Ctrl-C in the terminal reaches only the parent, which then stops its children in order; the exit is always collected.
Threading: start from the main thread only, because the kernel ties the death signal to the thread that forked. Waiting
never blocks an event loop when the async form is used (it waits on a pidfd).
"""

import asyncio
import contextlib
import ctypes
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Final, Self

from blockyard.core.errors import ServerStartError, UnsupportedOperationError
from blockyard.runtime.setting_variables import ENV_PREFIX

_PR_SET_PDEATHSIG: Final = 1
# Loaded before any fork: a child may not import or allocate much between fork and exec.
_LIBC: Final = ctypes.CDLL(None)
_PRIVATE_UMASK: Final = 0o077
_LOG_TAIL_BYTES: Final = 4_096
DEFAULT_GRACE_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """How to start one child."""

    name: str
    command: tuple[str, ...]
    log_file: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    """Added to (and winning over) the environment of this process without Blockyard's own settings."""
    folder: Path | None = None
    """Working directory; the parent's by default."""
    piped: bool = False
    """Give the parent the child's stdin and stdout; otherwise stdout goes to the log file too."""


class ChildProcess:
    """One running child; collected by :meth:`stop`, :meth:`kill` or a wait."""

    def __init__(self, spec: ChildSpec) -> None:
        """Start the child now.

        Raises:
            ServerStartError: the program cannot be run.
            UnsupportedOperationError: called outside the main thread.
        """
        if threading.current_thread() is not threading.main_thread():
            raise UnsupportedOperationError("children start from the main thread", child=spec.name)
        self.spec = spec
        with spec.log_file.open("ab") as log:
            try:
                self._popen = subprocess.Popen(
                    spec.command,
                    stdin=subprocess.PIPE if spec.piped else subprocess.DEVNULL,
                    stdout=subprocess.PIPE if spec.piped else log,
                    stderr=log,
                    # Unbuffered: nothing is left to be written when the other end is gone.
                    bufsize=0,
                    cwd=spec.folder,
                    env=child_environment(os.environ, spec.environment),
                    start_new_session=True,
                    # What a server makes in a shared folder, sockets above all, is for this user only.
                    umask=_PRIVATE_UMASK,
                    preexec_fn=_die_with_parent(os.getpid()),
                )
            except OSError as error:
                raise ServerStartError(
                    "the program cannot be run", server=spec.name, program=spec.command[0], reason=str(error)
                ) from error

    @property
    def pid(self) -> int:
        """Process id."""
        return self._popen.pid

    @property
    def exit_code(self) -> int | None:
        """Exit status (negative: minus the signal), or None while it runs."""
        return self._popen.poll()

    @property
    def stdin(self) -> IO[bytes]:
        """Write end of a piped child's input."""
        return _present(self._popen.stdin, self.spec)

    @property
    def stdout(self) -> IO[bytes]:
        """Read end of a piped child's output; whoever reads it closes it."""
        return _present(self._popen.stdout, self.spec)

    def send(self, signal_number: signal.Signals) -> None:
        """Signal the child's whole session; nothing happens if it has ended."""
        if self._popen.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal_number)

    def wait(self, timeout_seconds: float) -> bool:
        """Wait for the end; False if it still runs after the timeout."""
        try:
            self._popen.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            return False
        self._close_stdin()
        return True

    async def wait_async(self, timeout_seconds: float | None = None) -> bool:
        """As :meth:`wait`, without blocking the loop; None waits for ever."""
        if self._popen.poll() is None:
            try:
                async with asyncio.timeout(timeout_seconds):
                    await _process_end(self.pid)
            except TimeoutError:
                return False
        self._popen.wait()
        self._close_stdin()
        return True

    def stop(self, grace_seconds: float = DEFAULT_GRACE_SECONDS) -> None:
        """Ask it to end, then end it by force after the grace time."""
        self.send(signal.SIGTERM)
        if not self.wait(grace_seconds):
            self.kill()

    async def stop_async(self, grace_seconds: float = DEFAULT_GRACE_SECONDS) -> None:
        """As :meth:`stop`, without blocking the loop."""
        self.send(signal.SIGTERM)
        if not await self.wait_async(grace_seconds):
            self.kill()

    def kill(self) -> None:
        """SIGKILL and collect."""
        self.send(signal.SIGKILL)
        self._popen.wait()
        self._close_stdin()

    def log_tail(self) -> str:
        """Last part of its log, for messages."""
        return read_tail(self.spec.log_file)

    def _close_stdin(self) -> None:
        if self._popen.stdin is not None:
            self._popen.stdin.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()


def child_environment(base: Mapping[str, str], added: Mapping[str, str]) -> dict[str, str]:
    """Environment of a child: ``base`` without Blockyard settings, because it gets a complete set in ``added``."""
    kept = {name: value for name, value in base.items() if not name.upper().startswith(ENV_PREFIX)}
    return kept | dict(added)


def read_tail(log_file: Path) -> str:
    """Last few kilobytes of a log file; empty if there is none."""
    try:
        with log_file.open("rb") as log:
            log.seek(0, os.SEEK_END)
            log.seek(max(0, log.tell() - _LOG_TAIL_BYTES))
            return log.read().decode(errors="replace")
    except FileNotFoundError:
        return ""


def _die_with_parent(parent_pid: int) -> Callable[[], None]:
    def ask_kernel() -> None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        # The parent may have died before the request; then no signal will come.
        if os.getppid() != parent_pid:
            os._exit(127)

    return ask_kernel


async def _process_end(pid: int) -> None:
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    pidfd = os.pidfd_open(pid)
    try:
        loop.add_reader(pidfd, ended.set)
        await ended.wait()
    finally:
        loop.remove_reader(pidfd)
        os.close(pidfd)


def _present(pipe: IO[bytes] | None, spec: ChildSpec) -> IO[bytes]:
    if pipe is None:
        raise UnsupportedOperationError("the child was started without pipes", child=spec.name)
    return pipe
