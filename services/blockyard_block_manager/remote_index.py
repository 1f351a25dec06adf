"""The shared index as the decisions ask for it: a call to the remote tier that never blocks and always answers.

No answer in time, no remote tier, a malformed answer: all of these are *unknown*, never *not there*. A remote tier
that left a question without an answer is not asked for a moment, then by one question at a time until it answers.
Threading: one event loop.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, Final, Protocol

from blockyard.core.block_name import BlockName
from blockyard.core.clock import Clock
from blockyard.core.errors import BlockyardError, MalformedFrameError
from blockyard.core.events import BlockScope
from blockyard.core.vocabulary import Availability, WorkerRole
from blockyard.runtime.current_trace import begin_work
from blockyard.runtime.logs import get_logger
from blockyard.tiers.breaker import Breaker, BreakerState
from blockyard.tiers.index_value import Locator, decode_wire_locators
from blockyard.wire.trace_parent import NO_TRACE, TraceParent
from blockyard.wire.worker_channel import Find, Found
from blockyard_block_manager.load import FindCallback
from blockyard_block_manager.manager_spans import ManagerSpans

Answers = list[tuple[Availability, Locator | None]]

_LONGEST_PAUSE_SECONDS: Final = 2.0
_PATIENCE_SECONDS: Final = 0.25
"""A question without an answer for less than this says nothing about the remote tier."""
_log: Final = get_logger(__name__)


class Finder(Protocol):
    """What can ask the index: the link to the remote tier."""

    @property
    def answering(self) -> bool:
        """Whether it is attached and does not hang."""
        ...

    async def find(self, request: Find, timeout_seconds: float, trace: TraceParent) -> Found:
        """Ask; raises ``BlockyardError`` where no answer came."""
        ...


class RemoteIndex:
    """``SharedIndex`` over the link to the remote tier."""

    def __init__(self, clock: Clock, spans: ManagerSpans | None = None) -> None:
        """Answer *unknown* until a link is given."""
        self._breaker = Breaker(WorkerRole.REMOTE_TIER.label, clock, longest_pause_seconds=_LONGEST_PAUSE_SECONDS)
        self._spans = spans or ManagerSpans()
        self._link: Finder | None = None
        self._asking: set[asyncio.Task[Any]] = set()

    def connect(self, link: Finder) -> None:
        """Ask over this link from now on."""
        self._link = link

    def usable(self) -> bool:
        """Whether the remote tier is there and has not left a question without an answer lately."""
        return self._answering_link() is not None and self._breaker.state is not BreakerState.OPEN

    def find(
        self,
        scope: BlockScope,
        names: Sequence[BlockName],
        timeout_seconds: float,
        done: FindCallback,
        trace: TraceParent = NO_TRACE,
    ) -> None:
        """Ask in the background; ``done`` runs on the event loop, once."""
        task = asyncio.create_task(self._find(scope, tuple(names), timeout_seconds, done, trace))
        self._asking.add(task)
        task.add_done_callback(self._ended)

    async def ask(
        self, scope: BlockScope, names: Sequence[BlockName], timeout_seconds: float, trace: TraceParent = NO_TRACE
    ) -> Answers:
        """One answer per block, after at most about ``timeout_seconds``."""
        unknown: Answers = [(Availability.UNKNOWN, None)] * len(names)
        link = self._answering_link()
        if link is None or timeout_seconds <= 0 or self._breaker.state is BreakerState.OPEN:
            return unknown
        request = Find(identity=scope.identity, group=scope.group, keys=b"".join(name.key for name in names))
        # A caller in a hurry must not make the remote tier look dead, so the question outlives him.
        patience_seconds = max(timeout_seconds, _PATIENCE_SECONDS)
        asking = asyncio.create_task(self._call(link, request, len(names), patience_seconds, trace))
        self._asking.add(asking)
        asking.add_done_callback(self._ended)
        await asyncio.wait({asking}, timeout=timeout_seconds)
        return (asking.result() if asking.done() else None) or unknown

    async def close(self) -> None:
        """End the questions under way; their ``done`` is not called."""
        for task in self._asking:
            task.cancel()
        await asyncio.gather(*self._asking, return_exceptions=True)

    def _answering_link(self) -> Finder | None:
        return self._link if self._link is not None and self._link.answering else None

    async def _call(
        self, link: Finder, request: Find, count: int, timeout_seconds: float, trace: TraceParent
    ) -> Answers | None:
        try:
            with self._breaker.attempt(), self._spans.index_find(trace, count) as span:
                return _answers(await link.find(request, timeout_seconds, span.traceparent), count)
        except BlockyardError as error:
            _log.debug("the shared index did not answer", reason=str(error))
            return None

    async def _find(
        self,
        scope: BlockScope,
        names: Sequence[BlockName],
        timeout_seconds: float,
        done: FindCallback,
        trace: TraceParent,
    ) -> None:
        # Also what the answer leads to is done for this trace, not for whoever happened to run when it was asked.
        begin_work(trace)
        done(await self.ask(scope, names, timeout_seconds, trace))

    def _ended(self, task: asyncio.Task[Any]) -> None:
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
