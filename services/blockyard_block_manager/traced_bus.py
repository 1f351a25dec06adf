"""The bus of events with one span per published message, whose context travels in the header of the message.

A message names in ``trace`` what led to its event; the span is caused by that, and replaces it on the way out, so that
consumers join behind it. Repeats of a message are publications of their own.
Threading: one event loop.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Final

from blockyard.runtime import span_names as names
from blockyard.runtime.bus_values import BusState, OutgoingMessage, PublishOutcome, StreamSpec
from blockyard.runtime.span_names import SpanName
from blockyard.runtime.spans import AttributeValue, Span, SpanKind, Tracer
from blockyard_block_manager.event_publisher import EventBus

_NATS: Final = "nats"
_OPERATION: Final = "send"
_NOT_SENT: Final = "not_sent"
"""The bus came to its end before this message."""


class TracedBus:
    """``EventBus`` around another one."""

    def __init__(self, inner: EventBus, tracer: Tracer) -> None:
        """Publish over ``inner``."""
        self._inner = inner
        self._tracer = tracer

    def listen(self, listener: Callable[[BusState], None]) -> None:
        """Tell about changes of the connection."""
        self._inner.listen(listener)

    async def ensure_stream(self, spec: StreamSpec) -> None:
        """Make the stream if it is missing."""
        await self._inner.ensure_stream(spec)

    async def publish_window(self, messages: Sequence[OutgoingMessage]) -> PublishOutcome:
        """Publish in order; says how many from the start were acknowledged."""
        spans = [self._start(message) for message in messages]
        try:
            outcome = await self._inner.publish_window(
                [
                    message
                    if span.traceparent == message.trace
                    else dataclasses.replace(message, trace=span.traceparent)
                    for message, span in zip(messages, spans, strict=True)
                ]
            )
            for place, span in enumerate(spans):
                span.end(_error(outcome, place))
        finally:
            for span in spans:
                span.end(_NOT_SENT)
        return outcome

    def _start(self, message: OutgoingMessage) -> Span:
        attributes: dict[str, AttributeValue] = {
            names.MESSAGING_SYSTEM: _NATS,
            names.MESSAGING_DESTINATION: message.subject,
            names.MESSAGING_OPERATION_NAME: SpanName.PUBLISH.value,
            names.MESSAGING_OPERATION_TYPE: _OPERATION,
            names.MESSAGING_MESSAGE_ID: message.message_id,
            names.MESSAGING_BODY_BYTES: len(message.data),
        }
        return self._tracer.start(SpanName.PUBLISH, message.trace, SpanKind.PRODUCER, attributes)


def _error(outcome: PublishOutcome, place: int) -> str:
    if place < outcome.acked or outcome.failure is None:
        return ""
    return outcome.failure.code if place == outcome.acked else _NOT_SENT
