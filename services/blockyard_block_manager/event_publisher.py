"""From the outbox to the bus: in order, at least once, never in the way of anything else.

While the bus is away, or the name of the node is not its own, events wait in the outbox; what its ring drops meanwhile
leaves a hole in the numbers, which is the declaration to consumers. Publication goes on from the first message that was
not acknowledged.
Invariants: one publisher per outbox; a message is marked published only after its acknowledgement.
Threading: one event loop; one task.
"""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from blockyard.core.errors import DeadlineExceededError, FrameTooLargeError, UnavailableError
from blockyard.core.outbox import Outbox, OutboxBatch
from blockyard.core.vocabulary import EventSeq
from blockyard.runtime.backoff import Backoff
from blockyard.runtime.bus_values import BusState, OutgoingMessage, PublishOutcome, StreamSpec
from blockyard.runtime.current_trace import current_trace
from blockyard.runtime.logs import get_logger
from blockyard.runtime.telemetry import Metrics, Operation, Server
from blockyard.wire.event_codec import message_id
from blockyard.wire.trace_parent import NO_TRACE, TraceParent

WINDOW_MESSAGES: Final = 512
_MOST_CAUSES: Final = 8_192
_log: Final = get_logger(__name__)


class EventBus(Protocol):
    """What a publisher needs of the bus."""

    def listen(self, listener: Callable[[BusState], None]) -> None:
        """Tell about changes of the connection."""
        ...

    async def ensure_stream(self, spec: StreamSpec) -> None:
        """Make the stream if it is missing; raises ``UnavailableError`` while the bus is away."""
        ...

    async def publish_window(self, messages: Sequence[OutgoingMessage]) -> PublishOutcome:
        """Publish in order; says how many from the start were acknowledged."""
        ...


class EventPublisher:
    """Publishes one outbox; ``run`` is its task."""

    def __init__(
        self,
        outbox: Outbox,
        bus: EventBus,
        stream: StreamSpec,
        subject: str,
        metrics: Metrics,
        *,
        may_speak: Callable[[], bool],
    ) -> None:
        """Publish on ``subject`` of ``stream`` while ``may_speak`` says that the name in it is this node's."""
        self._outbox = outbox
        self._bus = bus
        self._stream = stream
        self._subject = subject
        self._metrics = metrics
        self._may_speak = may_speak
        for failure in (UnavailableError.code, DeadlineExceededError.code):
            metrics.dependency_errors.labels(Server.NATS, failure)
        self._cursor = EventSeq(0)
        self._counted = 0
        self._causes: dict[EventSeq, TraceParent] = {}
        """For which trace the events that wait came to be; those of none are not listed."""
        self._wake = asyncio.Event()
        self._back = asyncio.Event()
        self._retry = Backoff(0.1, 2.0)
        bus.listen(self._bus_changed)

    def appended(self, seq: EventSeq) -> None:
        """An event was appended, in work for the current trace."""
        if trace := current_trace():
            self._causes[seq] = trace
            if len(self._causes) > _MOST_CAUSES:
                del self._causes[next(iter(self._causes))]
        self._wake.set()

    async def run(self) -> None:
        """Publish until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while (batch := self._outbox.next_batch(self._cursor, WINDOW_MESSAGES)).messages:
                self._back.clear()
                published = await self._publish(batch)
                # Also while there is no end of it: a bus that is always a little too slow loses events all the time.
                self._count()
                if not published:
                    await self._pause()

    async def _publish(self, batch: OutboxBatch) -> bool:
        try:
            await self._bus.ensure_stream(self._stream)
        except UnavailableError:
            return False
        messages = [
            OutgoingMessage(
                subject=self._subject,
                message_id=message_id(self._outbox.instance, self._outbox.epoch, message.seq),
                data=message.payload,
                trace=self._causes.get(message.seq, NO_TRACE),
            )
            for message in batch.messages
        ]
        if not self._may_speak():
            return False
        outcome = await self._publish_window(messages)
        if outcome.acked:
            self._cursor = batch.messages[outcome.acked - 1].seq
            self._outbox.mark_published(self._cursor)
            for message in batch.messages[: outcome.acked]:
                self._causes.pop(message.seq, None)
            self._metrics.events_published.inc(outcome.acked)
            self._retry.reset()
        if outcome.failure is not None:
            self._metrics.publish_failures.inc()
        if isinstance(outcome.failure, FrameTooLargeError):
            # It can never be published: leave a hole, which consumers recover from like from any other.
            self._cursor = batch.messages[outcome.acked].seq
            self._causes.pop(self._cursor, None)
            self._metrics.events_overwritten.inc()
            _log.error("an event is too large for the bus", seq=self._cursor, reason=str(outcome.failure))
            return True
        return outcome.failure is None

    async def _publish_window(self, messages: Sequence[OutgoingMessage]) -> PublishOutcome:
        loop = asyncio.get_running_loop()
        started = loop.time()
        outcome = await self._bus.publish_window(messages)
        self._metrics.dependency_seconds.labels(Server.NATS, Operation.PUBLISH).observe(loop.time() - started)
        if outcome.failure is not None:
            self._metrics.dependency_errors.labels(Server.NATS, outcome.failure.code).inc()
        return outcome

    async def _pause(self) -> None:
        # Further events are no reason to try again, only time or the bus is.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._retry.next_seconds()):
                await self._back.wait()

    def _count(self) -> None:
        overwritten = self._outbox.overwritten
        self._metrics.events_overwritten.inc(overwritten - self._counted)
        self._counted = overwritten

    def lease_changed(self) -> None:
        """Whether the node may speak for its name may have changed."""
        self._retry.reset()
        self._back.set()
        self._wake.set()

    def _bus_changed(self, state: BusState) -> None:
        if state is BusState.CONNECTED:
            self.lease_changed()
