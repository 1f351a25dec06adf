"""A demo engine as a child process, driven over its pipes.

Invariants: an engine that owes an answer is ended without being asked.
Threading: one event loop, in the main thread.
"""

import asyncio
import contextlib
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from blockyard.cli.child_process import ChildProcess, ChildSpec
from blockyard.cli.engine_link import LINE_LIMIT_BYTES, EngineLink
from blockyard.connectors.mock.commands import Quit
from blockyard.core.errors import DeadlineExceededError, PeerClosedError

_START_SECONDS: Final = 40.0
_QUIT_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """What kind of engine to start."""

    name: str
    socket: Path
    blocks: int
    block_bytes: int
    log_file: Path

    def child(self) -> ChildSpec:
        """Its command line."""
        options = (
            *("--socket", str(self.socket), "--name", self.name),
            *("--blocks", str(self.blocks), "--block-bytes", str(self.block_bytes)),
        )
        command = (sys.executable, "-m", "blockyard.connectors.mock", *options)
        return ChildSpec(self.name, command, self.log_file, piped=True)


class EngineProcess(EngineLink):
    """One running demo engine."""

    def __init__(self, spec: EngineSpec) -> None:
        """Start the process; it connects by itself once its node answers."""
        super().__init__(spec.name)
        self._child = ChildProcess(spec.child())
        self._events = asyncio.StreamReader(limit=LINE_LIMIT_BYTES)
        self._transport: asyncio.ReadTransport | None = None

    @property
    def pid(self) -> int:
        """Process id."""
        return self._child.pid

    @property
    def running(self) -> bool:
        """Whether the process lives."""
        return self._child.exit_code is None

    async def wait_ready(self) -> None:
        """Wait until it is connected.

        Raises:
            PeerClosedError: it ended; the message holds the end of its log.
            DeadlineExceededError: it did not connect in time.
        """
        loop = asyncio.get_running_loop()
        self._transport, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(self._events), self._child.stdout
        )
        try:
            async with asyncio.timeout(_START_SECONDS):
                await self._greeting()
        except TimeoutError:
            raise DeadlineExceededError("the demo engine did not connect", engine=self.name) from None

    async def stop(self) -> None:
        """End it in order; by a signal when it is busy, because it would first end what it does."""
        if self.running and not self._unanswered:
            with contextlib.suppress(PeerClosedError):
                self._send(Quit())
            await self._child.wait_async(_QUIT_SECONDS)
        await self._child.stop_async(_QUIT_SECONDS)
        self._close()

    def kill(self) -> None:
        """SIGKILL."""
        self._child.kill()
        self._close()

    async def _read_line(self) -> bytes:
        return await self._events.readline()

    def _write_line(self, line: bytes) -> None:
        # Short enough for a pipe to take it whole.
        self._child.stdin.write(line)

    def _gone(self) -> PeerClosedError:
        detail = f"the demo engine ended; end of its log:\n{self._child.log_tail()}"
        return PeerClosedError(detail, engine=self.name)

    def _close(self) -> None:
        if self._transport is not None:
            self._transport.close()
            self._transport = None
        else:
            self._child.stdout.close()
