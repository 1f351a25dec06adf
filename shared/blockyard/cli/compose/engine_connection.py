"""A demo engine in a container, driven over its published port.

Threading: one event loop.
"""

import asyncio
import contextlib
from typing import Final, final

from blockyard.cli.engine_link import LINE_LIMIT_BYTES, EngineLink
from blockyard.cli.failures import EngineCommandError
from blockyard.core.errors import BlockyardError, DeadlineExceededError, PeerClosedError

_CONNECT_SECONDS: Final = 40.0
_PAUSE_SECONDS: Final = 0.2


@final
class EngineConnection(EngineLink):
    """One engine that runs by itself."""

    def __init__(self, name: str, place: str) -> None:
        """Reach the engine at ``place``, host and port."""
        super().__init__(name)
        self._place = place
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def connect(self) -> None:
        """Become its controller.

        Raises:
            DeadlineExceededError: it does not answer, because it waits for its node or has another controller.
        """
        reason = "no answer"
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                while True:
                    reason = await self._attempt()
                    if not reason:
                        return
                    await asyncio.sleep(_PAUSE_SECONDS)
        except TimeoutError:
            raise DeadlineExceededError(
                f"the demo engine does not answer: {reason}", engine=self.name, address=self._place
            ) from None

    async def _attempt(self) -> str:
        """Try once; why it failed, empty when it did not."""
        failure: BlockyardError | OSError
        try:
            await self._open()
            return ""
        # A proxy in between takes connections for an engine that does not listen yet, and then drops them.
        except (OSError, PeerClosedError, EngineCommandError) as error:
            failure = error
        except asyncio.CancelledError:
            self.close()
            raise
        self.close()
        return failure.detail if isinstance(failure, BlockyardError) else str(failure)

    async def _open(self) -> None:
        host, _, port = self._place.rpartition(":")
        self._reader, self._writer = await asyncio.open_connection(host.strip("[]"), int(port), limit=LINE_LIMIT_BYTES)
        await self._greeting()

    def close(self) -> None:
        """Let it go."""
        if self._writer is not None:
            self._writer.close()
            self._reader = self._writer = None

    async def _read_line(self) -> bytes:
        if self._reader is None:
            return b""
        # Not only a connection that was closed: one that leads nowhere any more ends in a timeout, or without a route.
        with contextlib.suppress(OSError):
            return await self._reader.readline()
        return b""

    def _write_line(self, line: bytes) -> None:
        if self._writer is None or self._writer.is_closing():
            raise ConnectionError("not connected")
        self._writer.write(line)

    def _gone(self) -> PeerClosedError:
        return PeerClosedError("the demo engine closed the connection", engine=self.name, address=self._place)
