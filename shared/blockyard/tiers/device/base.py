"""The device port: streams, events and copies between host memory and the pages of an engine.

Work on one stream runs in the order in which it was submitted; work on different streams runs in any order that events
do not forbid. Everything here is submitted and returns at once; only ``Event.query`` tells what has happened.
An event stands for its latest ``record``: to wait for it, or to query it, means that record. It can be recorded again,
and must not be while somebody still means the earlier record (``events.EventPool``).
Invariants: the port decides no order by itself; ``fences`` says who waits for what.
Threading: one thread submits and queries; the work runs wherever the device runs it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum, unique
from typing import Generic, Protocol, TypeVar, final

from blockyard.tiers.checksum import ByteArray

PagesT = TypeVar("PagesT")
"""How a device names the pages of one region: n pages of equal size, page i being that of engine block i."""


@unique
class SourceOrder(StrEnum):
    """When a copy may read its source."""

    STREAM = "stream"
    """When its turn on its stream has come."""
    ANY = "any"
    """At any time from its submission on; no device needs to offer it."""


class Event(Protocol):
    """A point on a stream."""

    def query(self) -> bool:
        """Whether the work before its latest record is done; True if it was never recorded."""
        ...


class Stream(Protocol):
    """Work in order."""

    def record(self, event: Event) -> None:
        """Let ``event`` stand for everything submitted here so far."""
        ...

    def wait(self, event: Event) -> None:
        """Let everything submitted here from now on wait, on the device, for the event as recorded now."""
        ...


@final
@dataclass(frozen=True, slots=True)
class PageCopy(Generic[PagesT]):
    """Pages of one region, and their places in host memory."""

    pages: PagesT
    indexes: tuple[int, ...]
    host: ByteArray
    """Two-dimensional: one row of page bytes per index; stays mapped until the copy has ended."""


class Device(Protocol[PagesT]):
    """A device that copies the pages of an engine."""

    @property
    def compute_stream(self) -> Stream:
        """The stream on which the engine's next kernels will be submitted."""
        ...

    def new_stream(self) -> Stream:
        """A side stream that waits for nothing."""
        ...

    def new_event(self) -> Event:
        """An event that was never recorded; take events from a pool instead."""
        ...

    def page_shape(self, pages: PagesT) -> tuple[int, int]:
        """Number of pages of this region, and bytes of one."""
        ...

    def copy_to_host(self, stream: Stream, copies: Sequence[PageCopy[PagesT]], order: SourceOrder) -> None:
        """Submit copies out of pages.

        Raises:
            UnsupportedOperationError: the device does not offer this order.
        """
        ...

    def copy_to_device(self, stream: Stream, copies: Sequence[PageCopy[PagesT]], order: SourceOrder) -> None:
        """Submit copies into pages; raises as ``copy_to_host``."""
        ...

    def register_host(self, memory: ByteArray, unit_bytes: int) -> None:
        """Pin host memory that copies will use, where the device has a use for that.

        Args:
            memory: flat.
            unit_bytes: no copy crosses a multiple of this many bytes, so the memory can be pinned in pieces.

        Raises:
            ConfigurationError: the system refuses; copies still work, more slowly.
        """
        ...

    def unregister_host(self, memory: ByteArray) -> None:
        """End ``register_host`` of this memory; nothing where it was not registered."""
        ...

    def synchronize(self) -> None:
        """Wait until everything submitted so far is done."""
        ...

    def close(self) -> None:
        """Wait as ``synchronize`` does and give up what the device runs on; harmless when repeated."""
        ...
