"""What goes into the bus and comes out of it: values without a connection.

Threading: frozen values.
"""

from dataclasses import dataclass
from enum import StrEnum, unique
from typing import Final
from urllib.parse import urlsplit

from blockyard.core.errors import BlockyardError
from blockyard.wire.trace_parent import NO_TRACE, TRACE_HEADER, TraceParent

_HEADER_MESSAGE_ID: Final = "Nats-Msg-Id"
_HEADER_BYTES: Final = 64
"""At least what the headers of a publication take beside the id."""
_HEADER_MARKS: Final = len(": \r\n")


@unique
class BusState(StrEnum):
    """State of the connection."""

    CONNECTING = "connecting"
    CONNECTED = "connected"
    AWAY = "away"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSpec:
    """A stream that must exist before something is published on its subjects."""

    name: str
    subjects: tuple[str, ...]
    max_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketSpec:
    """A bucket of records that expire unless they are written again."""

    name: str
    ttl_seconds: float
    marker_seconds: float = 30.0
    """How long watchers can still see that a record has expired."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingMessage:
    """One message; equal ids within two minutes are stored once."""

    subject: str
    message_id: str
    data: bytes
    trace: TraceParent = NO_TRACE
    """Trace context of the message; travels in a header."""

    @property
    def headers(self) -> dict[str, str]:
        """Headers to publish it with."""
        identified = {_HEADER_MESSAGE_ID: self.message_id}
        return identified | {TRACE_HEADER: self.trace} if self.trace else identified

    @property
    def sent_bytes(self) -> int:
        """At least what it takes on the wire, headers included."""
        trace = len(TRACE_HEADER) + len(self.trace) + _HEADER_MARKS if self.trace else 0
        return len(self.data) + len(self.message_id) + _HEADER_BYTES + trace


@dataclass(frozen=True, slots=True)
class PublishOutcome:
    """Result of a publication: the first ``acked`` messages are stored; ``failure`` says why not the next one."""

    acked: int
    failure: BlockyardError | None = None


@dataclass(frozen=True, slots=True)
class Record:
    """Entry of a bucket: ``value`` is None where there is none; ``revision`` is what the next write must name."""

    key: str
    value: bytes | None
    revision: int


def server_of(url: str) -> str:
    """Host and port, or path, for logs and errors: the address itself may hold a password."""
    parts = urlsplit(url)
    return f"{parts.hostname}:{parts.port}" if parts.port else parts.hostname or parts.path
