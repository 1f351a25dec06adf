"""The shared index as the decisions ask for it: a call to the remote tier that never blocks and always answers.

No answer in time, no remote tier, a malformed answer: all of these are *unknown*, never *not there*.
Threading: one event loop.
"""

import asyncio
from collections.abc import Sequence
from typing import Final, Protocol

from blockyard.core.block_name import BlockName
from blockyard.core.errors import BlockyardError, MalformedFrameError
from blockyard.core.events import BlockScope
from blockyard.core.vocabulary import Availability
from blockyard.runtime.logs import get_logger
from blockyard.tiers.index_value import Locator, decode_wire_locators
from blockyard.wire.worker_channel import Find, Found
from blockyard_block_manager.load import FindCallback

Answers = list[tuple[Availability, Locator | None]]

_log: Final = get_logger(__name__)


class Finder(Protocol):
    """What can ask the index: the link to the remote tier."""

    @property
    def attached(self) -> bool:
        """Whether it can be asked now."""
        ...

    async def find(self, request: Find, timeout_seconds: float) -> Found:
        """Ask; raises ``BlockyardError`` where no answer came."""
        ...


class RemoteIndex:
    """``SharedIndex`` over the link to the remote tier."""

    def __init__(self) -> None:
        """Answer *unknown* until a link is given."""
        self._link: Finder | None = None
        self._asking: set[asyncio.Task[None]] = set()

    def connect(self, link: Finder) -> None:
        """Ask over this link from now on."""
        self._link = link

    def usable(self) -> bool:
        """Whether the remote tier is attached."""
        return self._link is not None and self._link.attached

    def find(self, scope: BlockScope, names: Sequence[BlockName], timeout_seconds: float, done: FindCallback) -> None:
        """Ask in the background; ``done`` runs on the event loop, once."""
        task = asyncio.create_task(self._find(scope, tuple(names), timeout_seconds, done))
        self._asking.add(task)
        task.add_done_callback(self._ended)

    async def ask(self, scope: BlockScope, names: Sequence[BlockName], timeout_seconds: float) -> Answers:
        """One answer per block, after at most about ``timeout_seconds``."""
        unknown: Answers = [(Availability.UNKNOWN, None)] * len(names)
        if self._link is None or not self._link.attached or timeout_seconds <= 0:
            return unknown
        request = Find(identity=scope.identity, keys=b"".join(name.key for name in names))
        try:
            return _answers(await self._link.find(request, timeout_seconds), len(names))
        except BlockyardError as error:
            _log.debug("the shared index did not answer", reason=str(error))
            return unknown

    async def close(self) -> None:
        """End the questions under way; their ``done`` is not called."""
        for task in self._asking:
            task.cancel()
        await asyncio.gather(*self._asking, return_exceptions=True)

    async def _find(
        self, scope: BlockScope, names: Sequence[BlockName], timeout_seconds: float, done: FindCallback
    ) -> None:
        done(await self.ask(scope, names, timeout_seconds))

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._asking.discard(task)
        if not task.cancelled():
            task.result()  # an error here is a bug: it reaches the handler of the event loop


def _answers(found: Found, count: int) -> Answers:
    locators = decode_wire_locators(found.locators)
    if len(found.availability) != count or len(locators) != count:
        raise MalformedFrameError("one answer per key", keys=count, answers=len(found.availability))
    known = {int(Availability.MISS), int(Availability.G4)}
    return [
        (Availability(value) if value in known else Availability.UNKNOWN, locator)
        for value, locator in zip(found.availability, locators, strict=True)
    ]
