"""Keeps an engine or a rank connected to its block-manager: connects, says who it is, tries again after every end.

::

    away ──welcomed──► connected ──closed──► away            away ──refused──► refused ──later──► away

A refusal is told to whoever waits, and tried again now and then: a block-manager with other settings may come back.
An engine goes on without its node, and nobody would notice: the log says so once, with the reason, when it has lasted a
while, and once that it has its node, for the first time or again.
Invariants: there is at most one connection; it is offered to callers exactly as long as its welcome holds.
Threading: one event loop.
"""

import asyncio
import copy
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from pathlib import Path
from typing import Final

from blockyard.connectors.manager_link import ManagerLink, Notice
from blockyard.core.errors import (
    BlockyardError,
    ConfigurationError,
    EngineNameTakenError,
    IdentityMismatchError,
    LayoutMismatchError,
    RequestError,
    UnavailableError,
    UnsupportedOperationError,
    UnsupportedVersionError,
)
from blockyard.runtime.backoff import Backoff

Works = Sequence[Coroutine[object, object, None]]
"""What runs alongside the calls of a connection."""

_log: Final = logging.getLogger(__name__)

_FIRST_PAUSE_SECONDS: Final = 0.05
_LONGEST_PAUSE_SECONDS: Final = 1.0
_REFUSED_SECONDS: Final = 5.0
"""Pause after a refusal."""
_STEADY_SECONDS: Final = 5.0
"""A connection that lived shorter than this counts as a failed attempt: whatever ends it at once would else do so again
without a pause."""
_AWAY_SECONDS: Final = 3.0
"""How long the block-manager may be away before that is worth a warning: longer than it takes to start again."""
_REFUSALS: Final = (
    EngineNameTakenError,
    IdentityMismatchError,
    LayoutMismatchError,
    UnsupportedOperationError,
    UnsupportedVersionError,
    ConfigurationError,
)


class ManagerConnector:
    """The connection of one engine or rank, over all lives of its block-manager."""

    def __init__(
        self,
        socket: Path,
        introduce: Callable[[ManagerLink], Awaitable[Works]],
        on_state: Callable[[bool], None],
        on_notice: Callable[[Notice], None],
        *,
        who: str,
    ) -> None:
        """Prepare.

        Args:
            socket: where the block-manager serves engines.
            introduce: says over a new connection who this is, before any call can use it; what it returns runs
                alongside the calls and is cancelled when the connection ends.
            on_state: told True after each welcome and False after each loss of the connection.
            on_notice: called with every push that nobody waits for; must neither block nor raise.
            who: this engine or rank, in words, for the log.
        """
        self._who = who
        self._socket = socket
        self._introduce = introduce
        self._on_state = on_state
        self._on_notice = on_notice
        self.link: ManagerLink | None = None
        """The open connection, if any."""
        self._task: asyncio.Task[None] | None = None
        self._answered = asyncio.Event()
        self._failure: BlockyardError | None = None
        """Why the last attempt failed; None while connected."""
        self._away_since = 0.0
        """Loop time since which there is no connection."""
        self._said_connected: bool | None = None
        """What the log said last, if anything."""

    def start(self) -> None:
        """Connect in the background."""
        self._task = asyncio.create_task(self._stay_connected(), name="blockyard-client")
        self._task.add_done_callback(self._ended)

    async def stop(self) -> None:
        """Close the connection and try no more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)  # a defect was logged when it happened

    async def wait_connected(self, timeout_seconds: float) -> None:
        """Wait until the introduction was answered; see ``BlockyardClient.wait_connected``."""
        try:
            await asyncio.wait_for(self._answered.wait(), timeout_seconds)
        except TimeoutError:
            raise self._unavailable("no block-manager answered") from None
        if self._failure is not None:
            raise copy.copy(self._failure)
        if self._task is not None and self._task.done():
            self._task.result()

    def connected(self) -> ManagerLink:
        """The open connection.

        Raises:
            UnavailableError: there is none; says why.
        """
        if self.link is None:
            raise self._unavailable("not connected to a block-manager")
        return self.link

    def _unavailable(self, detail: str) -> UnavailableError:
        reason = {} if self._failure is None else {"reason": self._failure.finding}
        return UnavailableError(detail, socket=str(self._socket), **reason)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Wake who waits for a connection; a defect here must not look like a manager that is away."""
        self._answered.set()
        if not task.cancelled() and (defect := task.exception()) is not None:
            _log.error("the client stopped connecting", exc_info=defect)

    async def _stay_connected(self) -> None:
        backoff = Backoff(_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS)
        self._away_since = asyncio.get_running_loop().time()
        while True:
            pause_seconds = 0.0
            try:
                await self._connect_once(backoff)
            except BlockyardError as error:
                if isinstance(error, _REFUSALS) or type(error) is RequestError:
                    self._refused(error)
                    pause_seconds = _REFUSED_SECONDS
                else:
                    self._missed(error)
            await asyncio.sleep(pause_seconds or backoff.next_seconds())

    def _missed(self, error: BlockyardError) -> None:
        """The block-manager is away or restarting."""
        if not self._answered.is_set():
            self._failure = error
        away_seconds = asyncio.get_running_loop().time() - self._away_since
        if away_seconds >= _AWAY_SECONDS and self._said_connected is not False:
            self._said_connected = False
            _log.warning(
                "%s has no node and computes everything: no block-manager serves it at %s (%s). "
                "Start it there, or correct the path (blockyard.socket); the connection is tried again all the time.",
                self._who,
                self._socket,
                error.fields.get("reason", error.detail),
            )

    def _refused(self, error: BlockyardError) -> None:
        if str(error) != str(self._failure):
            self._said_connected = False
            _log.warning("the block-manager at %s refuses %s: %s", self._socket, self._who, error)
        self._failure = error
        self._answered.set()

    async def _connect_once(self, backoff: Backoff) -> None:
        link = await ManagerLink.open(self._socket, self._on_notice)
        try:
            works = await self._introduce(link)
            loop = asyncio.get_running_loop()
            welcomed_at = loop.time()
            await self._serve(link, works)
            if loop.time() - welcomed_at >= _STEADY_SECONDS:
                backoff.reset()
        finally:
            link.close()

    async def _serve(self, link: ManagerLink, works: Works) -> None:
        """Let calls use the connection until it ends."""
        self.link, self._failure = link, None
        self._answered.set()
        if not self._said_connected:
            self._said_connected = True
            _log.info("%s is connected to the block-manager at %s", self._who, self._socket)
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(work) for work in works]
                self._on_state(True)
                await link.wait_closed()
                for task in tasks:
                    task.cancel()
        finally:
            self.link = None
            self._away_since = asyncio.get_running_loop().time()
            self._answered.clear()
            self._on_state(False)
